"""When a job is due: a cron expression, read on the clock of a time zone.

croniter finds the next matching reading of a clock; the rest is ours. croniter accepts texts that
must be refused, takes equal ranges for whole cycles and goes wrong where the offset changes. So it
sees neither the user's text, only numbers that we wrote, nor an aware datetime, only naive readings
of the local clock, which we place on the UTC line. Numbers in brackets are the rules that
`tests/unit/test_schedule.py` tells one by one.

- *Interval-like* is a schedule whose minute or hour field begins with `*`. It ticks at every real
  instant whose reading matches, in both passes of a repeated hour; nothing is made up for skipped
  readings [5, 6].
- *Fixed-time* is every other. Each matching reading ticks once: at the first instant at which the
  clock shows it or, if it is skipped, is past it. Readings that meet there are one tick [3, 4].
"""

import copy
import difflib
import itertools
import re
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, croniter

from forgeflow.errors import CronError

_MAX_EXPR_LENGTH = 256
_MAX_ZONE_LENGTH = 64
_SHOWN_LENGTH = 24

_SECOND = timedelta(seconds=1)
# After these years the Gregorian calendar repeats, weekdays included.
_CYCLE_YEARS = 400
_CYCLE = timedelta(days=146_097)
_YEAR_2000 = datetime(2000, 1, 1)  # noqa: DTZ001 - a reading
# No zone changes its offset twice within two days (the least in tzdata 2026f is 3.99 days, in
# Freetown, 1939), nor moves its clock by more than one day at once. So the offsets at both ends of
# a window of this length tell whether a change lies inside.
_WINDOW = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron expression and the IANA zone on whose clock it is read; an invalid one cannot exist.

    Making one from anything wrong raises CronError. Threads may share it.
    """

    expr: str
    zone: str

    def __post_init__(self) -> None:
        _check_text(self.expr)
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
        last = _clamp(_to_utc(instant), plan.zone).replace(microsecond=0)
        try:
            return _next_interval(plan, last) if plan.is_interval else _next_fixed(plan, last)
        except OverflowError:
            return None

    def previous(self, instant: datetime) -> datetime | None:
        """Last tick strictly before `instant`, in UTC; None only if that lies before the year 1.

        Raises ValueError for a naive `instant`.
        """
        plan = _compile(self.expr, self.zone)
        end = _clamp(_to_utc(instant), plan.zone)
        try:
            last = end.replace(microsecond=0) if end.microsecond else end - _SECOND
            search = _previous_interval if plan.is_interval else _previous_fixed
            return search(plan, last)
        except OverflowError:
            return None

    def between(self, start: datetime, end: datetime, limit: int) -> list[datetime]:
        """The first `limit` ticks after `start` and up to `end` inclusive, oldest first.

        The bound is there because one day of `* * * * * *` has 86 400 of them.
        """
        return list(itertools.islice(self._walk(start, _to_utc(end)), max(limit, 0)))

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
            f"the time zone {_show(name)} is not known on every machine;"
            f" expected an IANA name such as {_suggest_zone(name)}"
        )
    return ZoneInfo(name)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    odd = {"localtime", "posixrules", "Factory"}
    return frozenset(
        name for name in zoneinfo.available_timezones() if name not in odd and not name.startswith(("right/", "posix/"))
    )


def _suggest_zone(name: str) -> str:
    by_lower = {known.lower(): known for known in _zone_names()}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.75)
    return by_lower[near[0]] if near else "Europe/Berlin"


# -- The text --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Field:
    """A column: what may be written, `low` to `top` or a name, where `names[i]` is `low + i`.

    It has `size` values: `top` of the weekdays, 7, is Sunday once more [12].
    """

    name: str
    low: int
    top: int
    size: int
    names: tuple[str, ...] = ()

    @property
    def high(self) -> int:
        return self.low + self.size - 1

    @property
    def expected(self) -> str:
        names = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"{self.low} to {self.top}{names}"


_MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"
_WEEKDAYS = "SUN MON TUE WED THU FRI SAT"

_SECOND_FIELD = _Field("second", 0, 59, 60)
_MINUTE_FIELD = _Field("minute", 0, 59, 60)
_HOUR_FIELD = _Field("hour", 0, 23, 24)
_DAY_FIELD = _Field("day-of-month", 1, 31, 31)
_MONTH_FIELD = _Field("month", 1, 12, 12, tuple(_MONTHS.split()))
_WEEKDAY_FIELD = _Field("day-of-week", 0, 7, 7, tuple(_WEEKDAYS.split()))

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_VALUE = r"[0-9]+|[A-Z]{3}"
_ITEM = re.compile(rf"(?:\*|({_VALUE})(?:-({_VALUE}))?)(?:/([0-9]+))?")
_NEAREST_WORKDAY = re.compile(r"([0-9]+)W")
_NTH_WEEKDAY = re.compile(rf"({_VALUE})(?:#([0-9]+)|L)")


def _show(text: str) -> str:
    """A quotation that is short and safe to print, for errors end in logs and on terminals."""
    shown = "".join(c if " " <= c <= "~" else f"<U+{ord(c):04X}>" for c in text[:_SHOWN_LENGTH])
    return f'"{shown}…"' if len(text) > _SHOWN_LENGTH else f'"{shown}"'


def _check_text(expr: str) -> None:
    """Refuse by length and alphabet [21], first of all: the rest takes time by the length."""
    if not isinstance(expr, str):
        raise CronError(f"a cron expression must be text, not {type(expr).__name__}")
    if len(expr) > _MAX_EXPR_LENGTH:
        raise CronError(f"the cron expression has {len(expr)} characters; expected at most {_MAX_EXPR_LENGTH}")
    for char in expr:
        if not (" " <= char <= "~" or char == "\t"):
            raise CronError(
                f"the cron expression contains the character U+{ord(char):04X};"
                " expected printable ASCII, with blanks or tabs between the fields"
            )


def _split_fields(expr: str) -> list[str]:
    """The six columns, second first and in capitals, of a text of ASCII [1, 2, 18]."""
    text = expr.strip()
    if text.startswith("@"):
        if text.lower() not in _ALIASES:
            known = ", ".join(_ALIASES)
            raise CronError(f"the alias {_show(text)} is unknown; expected one of {known}")
        text = _ALIASES[text.lower()]
    columns = text.upper().split()
    if len(columns) not in (5, 6):
        raise CronError(
            f"the cron expression {_show(expr)} has {len(columns)} fields; expected 5, or 6 with the second first"
        )
    return ["0", *columns] if len(columns) == 5 else columns


def _read_value(field: _Field, text: str) -> int:
    if text in field.names:
        return field.low + field.names.index(text)
    if not text.isdigit() or not field.low <= int(text) <= field.top:
        raise CronError(f"{_show(text)} is not a value of the {field.name} field; expected {field.expected}")
    return int(text)


def _read_step(field: _Field, text: str | None) -> int:
    """The step, 1 for None. One above the size of the field would silently do nothing [16]."""
    step = 1 if text is None else int(text)
    if not 1 <= step <= field.size:
        raise CronError(
            f"the step {_show(str(text))} is out of range in the {field.name} field; expected 1 to {field.size}"
        )
    return step


def _expand_range(field: _Field, low: int, high: int, step: int) -> set[int]:
    """Values of `low-high/step`. Backwards it wraps, and the step goes on over the wrap [13, 14].

    Equal ends are one value [11].
    """
    if low != high and low > field.high:
        low = field.low
    if high < low:
        high += field.size
    return {(v - field.low) % field.size + field.low for v in range(low, high + 1, step)}


def _expand_item(field: _Field, item: str) -> set[int]:
    """Values of `*`, `a` or `a-b`, with or without `/n`; `a/n` runs to the field's end [15]."""
    match = _ITEM.fullmatch(item)
    if match is None:
        raise CronError(_explain_item(field, item))
    first, last, step = match.groups()
    low = field.low if first is None else _read_value(field, first)
    if last is not None:
        high = _read_value(field, last)
    else:
        high = low if first is not None and step is None else field.high
    return _expand_range(field, low, high, _read_step(field, step))


def _explain_item(field: _Field, item: str) -> str:
    where = f"in the {field.name} field"
    if not item:
        return f"there is an empty item {where}; expected a value between two commas"
    if re.match(r"[HR](?![A-Z])", item):
        return f"{_show(item)} {where} is a hashed or random value; expected {field.expected}"
    return (
        f"{_show(item)} {where} cannot be read;"
        f" expected * or a value ({field.expected}) or a range of two, with or without /step"
    )


def _write(field: _Field, values: set[int]) -> str:
    """The values in the plainest form that croniter reads; empty for none."""
    return "*" if len(values) == field.size else ",".join(map(str, sorted(values)))


def _normalize(field: _Field, text: str) -> str:
    return _write(field, set().union(*(_expand_item(field, item) for item in text.split(","))))


def _normalize_days(text: str) -> list[str]:
    """croniter's day-of-month fields that together are `text`; it takes `15W` only alone.

    `LW`, the last workday, is croniter's `31W`, which goes by the last day of a shorter month. A
    user may expect such months to be passed over: above 28W we refuse [19].
    """
    values: set[int] = set()
    special: set[str] = set()
    for item in text.split(","):
        workday = _NEAREST_WORKDAY.fullmatch(item)
        if item == "L":
            special.add("L")
        elif item == "LW":
            special.add("31W")
        elif workday is None:
            values |= _expand_item(_DAY_FIELD, item)
        elif 1 <= int(workday[1]) <= 28:
            special.add(f"{int(workday[1])}W")
        else:
            raise CronError(f"{_show(item)} is not in every month; expected 1W to 28W, or LW")
    return _join_special(_write(_DAY_FIELD, values), special)


def _normalize_weekdays(text: str) -> list[str]:
    """croniter's day-of-week fields that together are `text`.

    It takes neither `5#2`, the second Friday, nor `L5`, our `5L`, beside a plain `5`.
    """
    values: set[int] = set()
    special: set[str] = set()
    for item in text.split(","):
        match = _NTH_WEEKDAY.fullmatch(item)
        if match is None:
            values |= _expand_item(_WEEKDAY_FIELD, item)
            continue
        weekday, nth = _read_value(_WEEKDAY_FIELD, match[1]) % 7, match[2]
        if nth is None:
            special.add(f"L{weekday}")
        elif 1 <= int(nth) <= 5:
            special.add(f"{weekday}#{int(nth)}")
        else:
            raise CronError(f"{_show(item)} is in no month; expected #1 to #5")
    return _join_special(_write(_WEEKDAY_FIELD, values), special)


def _join_special(plain: str, special: set[str]) -> list[str]:
    if plain == "*":
        return [plain]
    return [*filter(None, [plain]), *sorted(special)]


def _combine_days(day: str, weekday: str) -> list[tuple[str, str]]:
    """Pairs of day fields that together are the days meant.

    Either field is enough if both are restricted. If one *begins* with `*`, be it `*/2`, both must
    match [8, 9]; with `L`, `W` and `#` too [10].
    """
    days, weekdays = _normalize_days(day), _normalize_weekdays(weekday)
    if day.startswith("*") or weekday.startswith("*"):
        return list(itertools.product(days, weekdays))
    return [(each, "*") for each in days] + [("*", each) for each in weekdays]


# -- Readings of the local clock -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    """A schedule made ready: a reading matches if one of the arms, each a plain `and`, matches.

    A croniter keeps its place in itself, so each search is done by a copy: threads share the plan.
    """

    zone: ZoneInfo
    is_interval: bool
    arms: tuple[croniter, ...]

    def first_reading(self, at: datetime) -> datetime:
        """First match not before `at`, in whole seconds. OverflowError past the year 9999."""
        shift = _cycle_shift(at)
        start = at - shift - _SECOND
        return min(copy.copy(arm).get_next(datetime, start) for arm in self.arms) + shift

    def last_reading(self, at: datetime) -> datetime:
        """Last match not after `at`, in whole seconds. OverflowError before the year 1."""
        shift = _cycle_shift(at)
        start = at - shift + _SECOND
        return max(copy.copy(arm).get_prev(datetime, start) for arm in self.arms) + shift


def _cycle_shift(reading: datetime) -> timedelta:
    """What leads back to the years 2000 to 2399; near the calendar's ends croniter gives up."""
    return (reading.year - 2000) // _CYCLE_YEARS * _CYCLE


@lru_cache(maxsize=4096)
def _compile(expr: str, zone: str) -> _Plan:
    second, minute, hour, day, month, weekday = _split_fields(expr)
    clock = " ".join(
        _normalize(field, text)
        for field, text in ((_SECOND_FIELD, second), (_MINUTE_FIELD, minute), (_HOUR_FIELD, hour))
    )
    months = _normalize(_MONTH_FIELD, month)
    arms = [_make_arm(f"{clock} {d} {months} {w}") for d, w in _combine_days(day, weekday)]
    possible = tuple(arm for arm in arms if arm is not None)
    if not possible:
        raise CronError(f"{_show(expr)} never ticks; expected a day that its months have")
    return _Plan(check_zone(zone), minute.startswith("*") or hour.startswith("*"), possible)


def _make_arm(fields: str) -> croniter | None:
    """None if no day matches [17].

    croniter gives up after 50 years. From 2000 on 28 years have every kind of year, and any kind
    returns within 40 (29 February on a given weekday, around 2100), so nothing possible is missed.
    """
    arm = croniter(fields, _YEAR_2000, day_or=False, second_at_beginning=True)
    try:
        arm.get_next(datetime, _YEAR_2000)
    except CroniterBadDateError:
        return None
    return arm


# -- The UTC line ----------------------------------------------------------------------------------


def _to_utc(instant: datetime) -> datetime:
    if instant.utcoffset() is None:
        raise ValueError(f"the instant {instant.isoformat()} is naive; expected one with an offset")
    return instant.astimezone(UTC)


def _clamp(instant: datetime, zone: ZoneInfo) -> datetime:
    """The nearest instant at which the local clock shows a year from 1 to 9999."""
    try:
        instant.astimezone(zone)
    except OverflowError:
        edge = datetime.min if instant.year == 1 else datetime.max  # noqa: DTZ901
        return edge.replace(tzinfo=zone).astimezone(UTC)
    return instant


def _read_offset(local: datetime) -> timedelta:
    offset = local.utcoffset()
    assert offset is not None  # a ZoneInfo always knows
    return offset


def _offset_at(instant: datetime, zone: ZoneInfo) -> timedelta:
    return _read_offset(instant.astimezone(zone))


def _find_change(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """The instant in (low, high], at most `_WINDOW`, from which on the offset is that of `high`.

    At `low` it must be another.
    """
    after = _offset_at(high, zone)
    while high - low > _SECOND:
        middle = low + (high - low) // _SECOND // 2 * _SECOND
        if _offset_at(middle, zone) == after:
            high = middle
        else:
            low = middle
    return high


def _next_fixed(plan: _Plan, last: datetime) -> datetime:
    return _place(plan.zone, plan.first_reading(_latest_reading(plan.zone, last) + _SECOND))


def _previous_fixed(plan: _Plan, last: datetime) -> datetime:
    return _place(plan.zone, plan.last_reading(_latest_reading(plan.zone, last)))


def _latest_reading(zone: ZoneInfo, instant: datetime) -> datetime:
    """The latest reading that the local clock has shown up to `instant`.

    In the second pass of a repeated time that is the last second of the first.
    """
    local = instant.astimezone(zone)
    if local.fold == 0:
        return local.replace(tzinfo=None)
    before = _read_offset(local.replace(fold=0))
    change = _find_change(zone, instant - (before - _read_offset(local)), instant)
    return (change + before - _SECOND).replace(tzinfo=None)


def _place(zone: ZoneInfo, reading: datetime) -> datetime:
    """First instant at which the clock shows `reading` or, if that is skipped, is past it [3, 4].

    Later readings are never placed earlier, so the next reading always is the next tick.
    """
    local = reading.replace(tzinfo=zone)
    instant = local.astimezone(UTC)
    jump = _read_offset(local.replace(fold=1)) - _read_offset(local)
    return _find_change(zone, instant - jump, instant) if jump > timedelta() else instant


def _next_interval(plan: _Plan, last: datetime) -> datetime:
    """Cut the UTC line at the changes of offset: within a piece, local time is UTC plus a constant.

    To a far tick it is one leap. No instant between can match: readings from `start` to the tick
    do not, and a change of offset shows other ones only within a day of these two.
    """
    start = last + _SECOND
    while True:
        offset = _offset_at(start, plan.zone)
        reading = plan.first_reading((start + offset).replace(tzinfo=None))
        tick = (reading - offset).replace(tzinfo=UTC)
        is_near = tick - start <= _WINDOW
        end = tick if is_near else start + _WINDOW
        if _offset_at(end, plan.zone) != offset:
            start = _find_change(plan.zone, start, end)
        elif is_near:
            return tick
        else:
            start = tick - _WINDOW


def _previous_interval(plan: _Plan, last: datetime) -> datetime:
    """The mirror image of `_next_interval`; `last` itself may be the tick."""
    while True:
        offset = _offset_at(last, plan.zone)
        reading = plan.last_reading((last + offset).replace(tzinfo=None))
        tick = (reading - offset).replace(tzinfo=UTC)
        is_near = last - tick <= _WINDOW
        start = tick if is_near else last - _WINDOW
        if _offset_at(start, plan.zone) != offset:
            last = _find_change(plan.zone, start, last) - _SECOND
        elif is_near:
            return tick
        else:
            last = tick + _WINDOW
