"""When a job is due: a cron expression, read on the clock of a time zone.

A schedule is searched on naive readings of the local clock, which are then placed on the UTC line. Numbers in brackets
are the rules that `tests/unit/test_schedule.py` tells one by one.

- *Interval-like* is a schedule whose minute or hour field begins with `*`. It ticks at every real
  instant whose reading matches, in both passes of a repeated hour; nothing is made up for skipped
  readings [5, 6].
- *Fixed-time* is every other. Each matching reading ticks once: at the first instant at which the
  clock shows it or, if it is skipped, is past it. Readings that meet there are one tick [3, 4].
"""

import difflib
import itertools
import zoneinfo
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from forgeflow.domain.days import days_by_kind, kind_of, kinds_of
from forgeflow.domain.expression import check_text, read_columns, show
from forgeflow.domain.offsets import SECOND, WINDOW, clamp, find_change, offset_at, place_reading, read_offset, to_utc
from forgeflow.errors import CronError

_MAX_ZONE_LENGTH = 64


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron expression and the IANA zone on whose clock it is read; an invalid one cannot exist.

    Making one from anything wrong raises CronError. Threads may share it.
    """

    expr: str
    zone: str

    def __post_init__(self) -> None:
        check_text(self.expr)
        check_zone(self.zone)
        _compile(self.expr, self.zone)

    @classmethod
    def parse(cls, expr: str, zone: str = "UTC") -> "Schedule":
        """Read five fields, six with the second first, or an alias such as `@daily`."""
        return cls(expr, zone)

    def next_after(self, instant: datetime) -> datetime | None:
        """First tick strictly after `instant`, in UTC; None only if that lies past the year 9999.

        Raises ValueError for a naive `instant`.
        """
        plan = _compile(self.expr, self.zone)
        last = clamp(to_utc(instant), plan.zone).replace(microsecond=0)
        try:
            return _next_interval(plan, last) if plan.is_interval else _next_fixed(plan, last)
        except OverflowError:
            return None

    def previous(self, instant: datetime) -> datetime | None:
        """Last tick strictly before `instant`, in UTC; None only if that lies before the year 1.

        Raises ValueError for a naive `instant`.
        """
        plan = _compile(self.expr, self.zone)
        end = clamp(to_utc(instant), plan.zone)
        try:
            last = end.replace(microsecond=0) if end.microsecond else end - SECOND
            search = _previous_interval if plan.is_interval else _previous_fixed
            return search(plan, last)
        except OverflowError:
            return None

    def between(self, start: datetime, end: datetime, limit: int) -> list[datetime]:
        """The first `limit` ticks after `start` and up to `end` inclusive, oldest first.

        The bound is there because one day of `* * * * * *` has 86 400 of them.
        """
        return list(itertools.islice(self._walk(start, to_utc(end)), max(limit, 0)))

    def readings_within(self, first: datetime, last: datetime) -> tuple[datetime, datetime] | None:
        """The first and the last matching reading from `first` to before `last`, both naive; None for none.

        Also those that the zone's clock never shows, or shows twice.
        """
        plan = _compile(self.expr, self.zone)
        try:
            earliest, latest = plan.first_reading(first), plan.last_reading(last - SECOND)
        except OverflowError:
            return None
        return (earliest, latest) if earliest < last else None

    @property
    def is_interval(self) -> bool:
        """Whether it follows real time through changes of the clock."""
        return _compile(self.expr, self.zone).is_interval

    def describe(self) -> str:
        """The schedule in English, `At 09:00, Monday through Friday`; the expression itself where that is clearer.

        Nothing is said of the zone, nor of changes of its clock: that is for `preview`.
        """
        return _describe(self.expr)

    def _walk(self, start: datetime, end: datetime) -> Iterator[datetime]:
        tick = self.next_after(start)
        while tick is not None and tick <= end:
            yield tick
            tick = self.next_after(tick)


def check_zone(name: str) -> ZoneInfo:
    """The zone of that IANA name. Raises CronError, with the nearest name if one is near.

    Refused are also names that mean another thing on another machine (`localtime`, `right/…`) or
    nothing (`Factory`), and whatever ZoneInfo would take for a path [22].
    """
    if not isinstance(name, str) or not 1 <= len(name) <= _MAX_ZONE_LENGTH:
        raise CronError(
            f"the time zone must be an IANA name such as Europe/Berlin, of at most {_MAX_ZONE_LENGTH} characters"
        )
    if name not in _zone_names():
        raise CronError(
            f"the time zone {show(name)} is not known on every machine;"
            f" expected an IANA name such as {_suggest_zone(name)}"
        )
    return ZoneInfo(name)


@lru_cache(maxsize=4096)
def _describe(expr: str) -> str:
    from forgeflow.domain.words import put_in_words  # cron_descriptor is for those who read, not for each worker

    return put_in_words(read_columns(expr)) or " ".join(expr.split())


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    odd = {"localtime", "posixrules", "Factory"}
    return frozenset(
        name for name in zoneinfo.available_timezones() if name not in odd and not name.startswith(("right/", "posix/"))
    )


def _suggest_zone(name: str) -> str:
    """The nearest name, or that of the city; never for an abbreviation, which has none of the same meaning."""
    text = name.lower().replace(" ", "_")
    cities = {known.lower().rpartition("/")[2]: known for known in sorted(_zone_names()) if "/" in known}
    by_lower = {**cities, **{known.lower(): known for known in _zone_names()}}
    cutoff = 0.75 if len(text) > 5 else 1.0
    near = difflib.get_close_matches(text, by_lower, n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else "Europe/Berlin"


# -- Readings of the local clock -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    """A schedule made ready: which times of day, in which months, on which days of these.

    `days` has a set of bits, bit n for day n, for each kind of month: a month's days depend on nothing but its length
    and the weekday of its first. Threads share the plan.
    """

    zone: ZoneInfo
    is_interval: bool
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]
    months: tuple[int, ...]
    days: tuple[int, ...]

    def first_reading(self, at: datetime) -> datetime:
        """First match not before `at`, in whole seconds. OverflowError past the year 9999."""
        year, month, day = at.year, at.month, at.day
        days = self._days_of(year, month) >> day << day
        if days >> day & 1:
            if time := self._first_time(at.hour, at.minute, at.second):
                return datetime(year, month, day, *time)  # noqa: DTZ001 - a reading
            days ^= 1 << day
        while not days:
            year, month = (year, month) if month < self.months[-1] else (year + 1, 0)
            month = self.months[bisect_right(self.months, month)]
            days = self._days_of(year, month)
        day = (days & -days).bit_length() - 1
        return datetime(year, month, day, self.hours[0], self.minutes[0], self.seconds[0])  # noqa: DTZ001

    def last_reading(self, at: datetime) -> datetime:
        """Last match not after `at`, in whole seconds. OverflowError before the year 1."""
        year, month, day = at.year, at.month, at.day
        days = self._days_of(year, month) & (2 << day) - 1
        if days >> day & 1:
            if time := self._last_time(at.hour, at.minute, at.second):
                return datetime(year, month, day, *time)  # noqa: DTZ001 - a reading
            days ^= 1 << day
        while not days:
            year, month = (year, month) if month > self.months[0] else (year - 1, 13)
            month = self.months[bisect_left(self.months, month) - 1]
            days = self._days_of(year, month)
        day = days.bit_length() - 1
        return datetime(year, month, day, self.hours[-1], self.minutes[-1], self.seconds[-1])  # noqa: DTZ001

    def _days_of(self, year: int, month: int) -> int:
        if not MINYEAR <= year <= MAXYEAR:
            raise OverflowError(f"the calendar has no year {year}")
        return self.days[kind_of(year, month)] if month in self.months else 0

    def _first_time(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        """First match of the day not before this time."""
        hours, minutes, seconds = self.hours, self.minutes, self.seconds
        if hour in hours:
            if minute in minutes and second <= seconds[-1]:
                return hour, minute, seconds[bisect_left(seconds, second)]
            if minute < minutes[-1]:
                return hour, minutes[bisect_right(minutes, minute)], seconds[0]
        return (hours[bisect_right(hours, hour)], minutes[0], seconds[0]) if hour < hours[-1] else None

    def _last_time(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        """Last match of the day not after this time."""
        hours, minutes, seconds = self.hours, self.minutes, self.seconds
        if hour in hours:
            if minute in minutes and second >= seconds[0]:
                return hour, minute, seconds[bisect_right(seconds, second) - 1]
            if minute > minutes[0]:
                return hour, minutes[bisect_left(minutes, minute) - 1], seconds[-1]
        return (hours[bisect_left(hours, hour) - 1], minutes[-1], seconds[-1]) if hour > hours[0] else None


@lru_cache(maxsize=4096)
def _compile(expr: str, zone: str) -> _Plan:
    columns = read_columns(expr)
    plan = _Plan(
        check_zone(zone),
        columns.is_interval,
        hours=_list_values(columns.hour, 0, 23),
        minutes=_list_values(columns.minute, 0, 59),
        seconds=_list_values(columns.second, 0, 59),
        months=_list_values(columns.month, 1, 12),
        days=days_by_kind(columns),
    )
    if not any(plan.days[kind] for month in plan.months for kind in kinds_of(month)):
        raise CronError(f"{show(expr)} never ticks; expected a day that its months have")
    return plan


def _list_values(text: str, low: int, high: int) -> tuple[int, ...]:
    return tuple(range(low, high + 1) if text == "*" else map(int, text.split(",")))


# -- The UTC line ----------------------------------------------------------------------------------


def _next_fixed(plan: _Plan, last: datetime) -> datetime:
    return place_reading(plan.zone, plan.first_reading(_latest_reading(plan.zone, last) + SECOND))


def _previous_fixed(plan: _Plan, last: datetime) -> datetime:
    return place_reading(plan.zone, plan.last_reading(_latest_reading(plan.zone, last)))


def _latest_reading(zone: ZoneInfo, instant: datetime) -> datetime:
    """The latest reading that the local clock has shown up to `instant`.

    In the second pass of a repeated time that is the last second of the first.
    """
    local = instant.astimezone(zone)
    if local.fold == 0:
        return local.replace(tzinfo=None)
    before = read_offset(local.replace(fold=0))
    change = find_change(zone, instant - (before - read_offset(local)), instant)
    return (change + before - SECOND).replace(tzinfo=None)


def _next_interval(plan: _Plan, last: datetime) -> datetime:
    """Cut the UTC line at the changes of offset: within a piece, local time is UTC plus a constant.

    To a far tick it is one leap. No instant between can match: readings from `start` to the tick
    do not, and a change of offset shows other ones only within a day of these two.
    """
    start = last + SECOND
    while True:
        offset = offset_at(start, plan.zone)
        reading = plan.first_reading((start + offset).replace(tzinfo=None))
        tick = (reading - offset).replace(tzinfo=UTC)
        is_near = tick - start <= WINDOW
        end = tick if is_near else start + WINDOW
        if offset_at(end, plan.zone) != offset:
            start = find_change(plan.zone, start, end)
        elif is_near:
            return tick
        else:
            start = tick - WINDOW


def _previous_interval(plan: _Plan, last: datetime) -> datetime:
    """The mirror image of `_next_interval`; `last` itself may be the tick."""
    while True:
        offset = offset_at(last, plan.zone)
        reading = plan.last_reading((last + offset).replace(tzinfo=None))
        tick = (reading - offset).replace(tzinfo=UTC)
        is_near = last - tick <= WINDOW
        start = tick if is_near else last - WINDOW
        if offset_at(start, plan.zone) != offset:
            last = find_change(plan.zone, start, last) - SECOND
        elif is_near:
            return tick
        else:
            last = tick + WINDOW
