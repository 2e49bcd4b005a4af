"""What a schedule is going to do: its next fires, what changes of the clock do to them, and what may surprise.

Pure: the instant to look from is given. The work is bounded for any schedule: `count` steps, a look at the clock for
every two days of the next two years, and of one year at most before each fire.
"""

import calendar
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from forgeflow.domain.expression import Columns, read_columns
from forgeflow.domain.offsets import (
    SECOND,
    Change,
    clamp,
    find_latest_change,
    offset_at,
    read_offset,
    to_utc,
    walk_changes,
)
from forgeflow.domain.schedule import Schedule
from forgeflow.errors import InvalidInput

DEFAULT_COUNT = 10
MAX_COUNT = 100

# Whoever reads a note or a warning thinks of this change and the next.
_NOTE_REACH = timedelta(days=366)
_WARNING_REACH = timedelta(days=2 * 365 + 1)
_MAX_INSTANT = datetime.max.replace(tzinfo=UTC)
_COMMON_YEAR = 2026


@dataclass(frozen=True, slots=True)
class Fire:
    """One tick: in UTC, and as the zone's clock shows it, with its offset."""

    at: datetime
    local: datetime
    notes: tuple[str, ...] = ()

    @property
    def offset(self) -> str:
        """Such as `+02:00`."""
        return self.local.isoformat(timespec="seconds")[len("2026-10-25T02:30:00") :]


@dataclass(frozen=True, slots=True)
class Preview:
    """`fires` are fewer than asked for only if the schedule has no more before its end, or the year 10000."""

    schedule: Schedule
    description: str
    fires: tuple[Fire, ...]
    warnings: tuple[str, ...]


def preview(
    schedule: Schedule,
    after: datetime,
    count: int = DEFAULT_COUNT,
    *,
    end_at: datetime | None = None,
    without: Collection[datetime] = (),
) -> Preview:
    """The next `count` fires after an instant and up to `end_at`, which are those of `Schedule.between`.

    Ticks in `without` are left out.

    Raises InvalidInput for a count that is not 1 to MAX_COUNT, ValueError for a naive instant.
    """
    if not 1 <= count <= MAX_COUNT:
        raise InvalidInput(f"the number of fires must be from 1 to {MAX_COUNT}")
    zone = ZoneInfo(schedule.zone)
    ticks = schedule.between(after, end_at or _MAX_INSTANT, count + len(without))
    ticks = [tick for tick in ticks if tick not in without][:count]
    notes = _Notes(schedule, zone, clamp(to_utc(after), zone))
    fires = tuple(Fire(tick, tick.astimezone(zone), notes.take(tick)) for tick in ticks)
    return Preview(schedule, schedule.describe(), fires, tuple(_warn(schedule, zone, after)))


# -- Changes of the clock --------------------------------------------------------------------------


class _Notes:
    """What changes of the clock do to ticks, which come in order; each change is told once."""

    def __init__(self, schedule: Schedule, zone: ZoneInfo, after: datetime) -> None:
        self._schedule = schedule
        self._zone = zone
        self._is_interval = read_columns(schedule.expr).is_interval
        self._last = after
        self._told: set[datetime] = set()

    def take(self, tick: datetime) -> tuple[str, ...]:
        change = self._find_change(tick)
        self._last = tick
        if change is None or change.at in self._told:
            return ()
        self._told.add(change.at)
        effect = self._say_effect(change, tick)
        return (f"{_say_change(change)}: {effect}" if effect else _say_change(change),)

    def _find_change(self, tick: datetime) -> Change | None:
        """The change that ends the hour that comes twice, or that has moved the clock since the tick before."""
        local = tick.astimezone(self._zone)
        repeated = read_offset(local.replace(fold=0)) - read_offset(local.replace(fold=1))
        if repeated > timedelta() and local.fold == 0:
            return next(walk_changes(self._zone, tick, tick + repeated), None)
        offset = offset_at(tick, self._zone)
        before = [offset_at(clamp(instant, self._zone), self._zone) for instant in (self._last, tick - SECOND)]
        if before == [offset, offset]:
            return None
        start = self._last if tick - self._last < _NOTE_REACH else tick - _NOTE_REACH
        return find_latest_change(self._zone, start, tick)

    def _say_effect(self, change: Change, tick: datetime) -> str | None:
        if change.is_forward:
            return _say_gap(self._schedule, change, is_interval=self._is_interval)
        if tick < change.at:
            return "runs in both passes" if self._is_interval else "runs once, in the first pass"
        is_second_pass = tick < change.at + (change.before - change.after)
        return "this is the second pass" if is_second_pass else None


def _say_change(change: Change) -> str:
    """`clocks go back on 2026-10-25 from 03:00 to 02:00`"""
    old, new = change.old_reading, change.new_reading
    to = _say_reading(new) if new.date() == old.date() else f"{new:%Y-%m-%d} {_say_reading(new)}"
    return f"clocks go {'forward' if change.is_forward else 'back'} on {old:%Y-%m-%d} from {_say_reading(old)} to {to}"


def _say_reading(reading: datetime) -> str:
    return f"{reading:%H:%M:%S}" if reading.second else f"{reading:%H:%M}"


def _say_run(readings: tuple[datetime, datetime]) -> str:
    first, last = map(_say_reading, readings)
    return f"{first} runs" if readings[0] == readings[1] else f"{first} to {last} run"


def _say_gap(schedule: Schedule, change: Change, *, is_interval: bool) -> str | None:
    """What becomes of the skipped readings; None when none of them matches."""
    skipped = schedule.readings_within(change.first, change.last)
    if skipped is None:
        return None
    if is_interval:
        return f"{_say_run(skipped)} at no time"
    once = "" if skipped[0] == skipped[1] else " once,"
    day = "" if skipped[0].date() == change.last.date() else f"{change.last:%Y-%m-%d} "
    return f"{_say_run(skipped)}{once} at {day}{_say_reading(change.last)}"


def _say_fold(schedule: Schedule, change: Change, *, is_interval: bool) -> str | None:
    """What becomes of the readings that come twice; None when none of them matches."""
    repeated = schedule.readings_within(change.first, change.last)
    if repeated is None:
        return None
    return f"{_say_run(repeated)} {'in both passes' if is_interval else 'once, in the first pass'}"


# -- Warnings --------------------------------------------------------------------------------------


def _warn(schedule: Schedule, zone: ZoneInfo, after: datetime) -> Iterator[str]:
    columns = read_columns(schedule.expr)
    yield from _warn_of_days(columns)
    yield from _warn_of_either(columns)
    if not (columns.is_free_hour or columns.hour == "*"):
        yield from _warn_of_changes(schedule, zone, after, is_interval=columns.is_interval)
    per_minute = 60 if columns.second == "*" else columns.second.count(",") + 1
    if per_minute > 1:
        yield f"runs up to {per_minute} times a minute"


def _warn_of_days(columns: Columns) -> Iterator[str]:
    """Days 29 to 31 that are named, unless they end a range that begins earlier: `15-31` is the second half."""
    if columns.is_free_day:
        return
    days = {int(day) for text in columns.days if text[-1].isdigit() for day in text.split(",")}
    months = range(1, 13) if columns.month == "*" else [int(month) for month in columns.month.split(",")]
    for day in (29, 30, 31):
        if day not in days or days.issuperset(range(28, day)):
            continue
        lacking = [month for month in months if calendar.monthrange(_COMMON_YEAR, month)[1] < day]
        if lacking:
            in_leap_years = " but for leap years" if day == 29 else ""
            yield f"there is no day {day} in {_say_months(lacking)}{in_leap_years}; L is the last day of any month"


def _say_months(months: list[int]) -> str:
    names = [_MONTHS[month - 1] for month in months]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)


def _warn_of_either(columns: Columns) -> Iterator[str]:
    if not columns.is_either:
        return
    effect = "either one is enough"
    if ("*",) in (columns.days, columns.weekdays):
        effect += ", and one of them is every day"
    yield f"both day fields are restricted: {effect}; if one begins with *, both must match"


def _warn_of_changes(schedule: Schedule, zone: ZoneInfo, after: datetime, *, is_interval: bool) -> Iterator[str]:
    """The first skipped and the first repeated hour that this schedule meets, of the next two years."""
    start = clamp(to_utc(after), zone)
    end = start + min(_WARNING_REACH, _MAX_INSTANT - start)
    told: set[bool] = set()
    for change in walk_changes(zone, start, end):
        if change.is_forward in told:
            continue
        say = _say_gap if change.is_forward else _say_fold
        effect = say(schedule, change, is_interval=is_interval)
        if effect:
            told.add(change.is_forward)
            yield f"{_say_change(change)}: {effect}"
