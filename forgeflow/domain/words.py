"""A schedule in English, by cron-descriptor.

It is not shown the user's text, which it reads by other rules than ours: `*/7` is no "every 7 minutes", `*/2` among the
days starts anew each month, and whether one day field is enough is decided by how they begin. It gets single columns,
written by us in a form of which it says the right thing, and only what it would not say clearly is said here.
"""

import itertools
from functools import lru_cache

from cron_descriptor import DescriptionTypeEnum, ExpressionDescriptor, Options

from forgeflow.domain.expression import Columns

# More than that is easier to read as an expression.
_MAX_TIMES = 6
_MAX_SPECIAL_DAYS = 6
_MAX_PIECES = 12


class _Unclear(Exception):
    """Words would be longer and less clear than the expression."""


def put_in_words(columns: Columns) -> str | None:
    """What a person would say, in one sentence without a full stop; None when the expression itself is clearer."""
    try:
        return f"{_say_time(columns)}{_say_days(columns)}{_say_months(columns.month)}"
    except _Unclear:
        return None


@lru_cache(maxsize=1024)  # it reads its words from a file each time
def _ask(fields: str, part: DescriptionTypeEnum = DescriptionTypeEnum.FULL) -> str:
    options = Options(locale_code="en_US", use_24hour_time_format=True)
    return str(ExpressionDescriptor(fields, options).get_description(part))


def _values(column: str, size: int) -> list[int]:
    return list(range(size)) if column == "*" else [int(value) for value in column.split(",")]


def _join(items: list[str], last: str = "and") -> str:
    return f"{', '.join(items[:-1])} {last} {items[-1]}" if len(items) > 1 else items[0]


# -- The shape of some values ----------------------------------------------------------------------


def _step(values: list[int]) -> int | None:
    """The distance of four values or more that all have the same; 1 is a range."""
    steps = {after - before for before, after in itertools.pairwise(values)}
    return steps.pop() if len(values) > 3 and len(steps) == 1 else None


def _ring(values: list[int], low: int, size: int) -> tuple[int, int] | None:
    """First and last of three values or more that follow each other, be it over the end of the field."""
    starts = [value for value in values if (value - low - 1) % size + low not in values]
    if len(values) < 3 or len(starts) != 1:
        return None
    return starts[0], (starts[0] - low + len(values) - 1) % size + low


def _pieces(values: list[int]) -> str:
    """Values and ranges, with commas between them."""
    runs = [
        [value for _, value in run] for _, run in itertools.groupby(enumerate(values), lambda pair: pair[1] - pair[0])
    ]
    pieces = [
        piece for run in runs for piece in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(each) for each in run])
    ]
    if len(pieces) > _MAX_PIECES:
        raise _Unclear
    return ",".join(pieces)


def _write(column: str, size: int, *, with_steps: bool = True) -> str:
    """Minutes or seconds, or hours with one minute, as cron-descriptor says them rightly."""
    values = _values(column, size)
    if column == "*" or len(values) == 1:
        return column
    if with_steps and size % len(values) == 0 and values == list(range(0, size, size // len(values))):
        return f"*/{size // len(values)}"
    step = _step(values)
    if with_steps and step and step > 1:
        return f"{values[0]}-{values[-1]}/{step}"
    return _pieces(values)


# -- Times of the day ------------------------------------------------------------------------------


def _say_time(columns: Columns) -> str:
    seconds, minutes, hours = _values(columns.second, 60), _values(columns.minute, 60), _values(columns.hour, 24)
    is_even = columns.second == columns.minute == "0" and _write(columns.hour, 24).startswith("*/")
    if len(seconds) * len(minutes) * len(hours) <= _MAX_TIMES and not is_even:
        ends = [f":{second:02}" for second in seconds] if seconds != [0] else [""]
        times = [f"{hour:02}:{minute:02}{end}" for hour in hours for minute in minutes for end in ends]
        return f"At {_join(times)}"
    ring = _ring(hours, 0, 24)
    if ring and len(seconds) == len(minutes) == 1 and columns.hour != "*":
        end = f":{minutes[0]:02}" + (f":{seconds[0]:02}" if seconds != [0] else "")
        return f"Every hour from {ring[0]:02}{end} through {ring[1]:02}{end}"
    # "Every 10 seconds, every 5 minutes" might be either.
    clock = f"{_write(columns.second, 60)} {_write(columns.minute, 60, with_steps=len(seconds) == 1)}"
    hour = _write_hours(columns.hour, hours, clock=clock, is_once=len(seconds) == len(minutes) == 1)
    if hour is None:
        return f"{_ask(f'{clock} * * * *')}, {_say_hours(hours)}"
    return _ask(f"{clock} {hour} * * *")


def _write_hours(column: str, hours: list[int], *, clock: str, is_once: bool) -> str | None:
    """The hours as cron-descriptor says them rightly, or None.

    With more than one time in an hour it says "every 2 hours" and "at 09:00", which would be wrong.
    """
    if len(hours) == 1:
        # It knows "every minute between 09:05 and 09:20".
        is_range = clock.startswith("0 ") and "-" in clock and not {",", "/"} & set(clock)
        return column if is_range else f"{column}-{column}"
    if column == "*" or (is_once and _step(hours)):
        return _write(column, 24)
    ring = _ring(hours, 0, 24)
    return f"{ring[0]}-{ring[1]}" if ring else None


def _say_hours(hours: list[int]) -> str:
    step = _step(hours)
    if step:
        nth = {2: "2nd", 3: "3rd"}.get(step, f"{step}th")
        return f"in every {nth} hour from {hours[0]:02} to {hours[-1]:02}"
    pieces = [piece.split("-") for piece in _pieces(hours).split(",")]
    return f"in the hours {_join([' through '.join(end.zfill(2) for end in piece) for piece in pieces])}"


# -- Days and months -------------------------------------------------------------------------------


def _say_days(columns: Columns) -> str:
    if len(columns.days) + len(columns.weekdays) > _MAX_SPECIAL_DAYS + 1:
        raise _Unclear
    days = [] if columns.days == ("*",) else [_say_month_days(each) for each in columns.days]
    weekdays = [] if columns.weekdays == ("*",) else [_say_weekdays(each) for each in columns.weekdays]
    if not (days and weekdays):
        # Either is enough, and one of them is every day: `1-31 * MON`.
        is_daily = columns.is_either or not (days or weekdays)
        return "" if is_daily else f", {_say_any(days or weekdays)}"
    joint, rule = ("or", "either is enough") if columns.is_either else ("and", "both must match")
    comma = "," if len(days) + len(weekdays) > 2 else ""
    sides = f"{_say_any(days)}{comma} {joint} {_say_any(weekdays)}"
    return f", {sides.replace('only on', 'on')} ({rule})"


def _say_any(phrases: list[str]) -> str:
    """One of them is enough; "only" is said of one that stands alone."""
    return phrases[0] if len(phrases) == 1 else _join(phrases, "or").replace("only on", "on")


def _say_month_days(text: str) -> str:
    if text == "31W":
        text = "LW"
    elif text[-1].isdigit():
        values = _values(text, 32)
        step = _step(values)
        text = f"{values[0]}-{values[-1]}/{step}" if step and step > 1 else _pieces(values)
    return _ask(f"0 0 {text} * *", DescriptionTypeEnum.DAYOFMONTH).removeprefix(", ")


def _say_weekdays(text: str) -> str:
    if text.startswith("L"):
        text = f"{text[1:]}L"
    elif "#" not in text:
        text = _write_names(_values(text, 7), 0, 7)
    return _ask(f"0 0 * * {text}", DescriptionTypeEnum.DAYOFWEEK).removeprefix(", ")


def _say_months(column: str) -> str:
    if column == "*":
        return ""
    return _ask(f"0 0 * {_write_names(_values(column, 13), 1, 12)} *", DescriptionTypeEnum.MONTH)


def _write_names(values: list[int], low: int, size: int) -> str:
    """Weekdays or months: a range, be it over the end, or one by one; Sunday is the last of the week."""
    ring = _ring(values, low, size)
    if ring:
        return f"{ring[0]}-{ring[1]}"
    return ",".join(str(value) for value in sorted(values, key=lambda value: value or 7))
