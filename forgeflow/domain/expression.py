"""The text of a cron expression, read into plain numbers.

Numbers in brackets are the rules that `tests/unit/test_schedule.py` tells one by one.
"""

import difflib
import re
from dataclasses import dataclass

from forgeflow.errors import CronError

_MAX_EXPR_LENGTH = 256
_SHOWN_LENGTH = 24


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


def show(text: str) -> str:
    """A quotation that is short and safe to print, for errors end in logs and on terminals."""
    shown = "".join(c if " " <= c <= "~" else f"<U+{ord(c):04X}>" for c in text[:_SHOWN_LENGTH])
    return f'"{shown}…"' if len(text) > _SHOWN_LENGTH else f'"{shown}"'


def check_text(expr: str) -> None:
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
            near = difflib.get_close_matches(text.lower(), _ALIASES, n=1, cutoff=0.7)
            raise CronError(f"the alias {show(text)} is unknown{_did_you_mean(near)}; expected one of {known}")
        text = _ALIASES[text.lower()]
    columns = text.upper().split()
    if len(columns) not in (5, 6):
        raise CronError(
            f"the cron expression {show(expr)} has {len(columns)} fields; expected 5, or 6 with the second first"
        )
    return ["0", *columns] if len(columns) == 5 else columns


def _read_value(field: _Field, text: str) -> int:
    if text in field.names:
        return field.low + field.names.index(text)
    if not text.isdigit() or not field.low <= int(text) <= field.top:
        near = difflib.get_close_matches(text, field.names, n=1)
        raise CronError(
            f"{show(text)} is not a value of the {field.name} field{_did_you_mean(near)}; expected {field.expected}"
        )
    return int(text)


def _read_step(field: _Field, text: str | None) -> int:
    """The step, 1 for None. One above the size of the field would silently do nothing [16]."""
    step = 1 if text is None else int(text)
    if not 1 <= step <= field.size:
        raise CronError(
            f"the step {show(str(text))} is out of range in the {field.name} field; expected 1 to {field.size}"
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


def _did_you_mean(near: list[str]) -> str:
    return f" (did you mean {near[0]}?)" if near else ""


def _respell(field: _Field, item: str) -> list[str]:
    """What other crons, or people, write for something that we read: `MONDAY`, `?`, `L5`; one text or none."""
    if item == "?" and field in (_DAY_FIELD, _WEEKDAY_FIELD):
        return ["*"]
    if field == _WEEKDAY_FIELD and re.fullmatch("L[0-7]", item):
        return [f"{item[1]}L"]
    short = re.sub(r"[A-Z]{4,}", lambda word: word[0][:3] if word[0][:3] in field.names else word[0], item)
    return [short] if short != item and (_ITEM.fullmatch(short) or _NTH_WEEKDAY.fullmatch(short)) else []


def _explain_item(field: _Field, item: str) -> str:
    where = f"in the {field.name} field"
    if not item:
        return f"there is an empty item {where}; expected a value between two commas"
    if re.match(r"[HR](?![A-Z])", item):
        return f"{show(item)} {where} is a hashed or random value; expected {field.expected}"
    return (
        f"{show(item)} {where} cannot be read{_did_you_mean(_respell(field, item))};"
        f" expected * or a value ({field.expected}) or a range of two, with or without /step"
    )


def _write(field: _Field, values: set[int]) -> str:
    """The values in order, `*` for all of them, empty for none."""
    return "*" if len(values) == field.size else ",".join(map(str, sorted(values)))


def _normalize(field: _Field, text: str) -> str:
    return _write(field, set().union(*(_expand_item(field, item) for item in text.split(","))))


def _normalize_days(text: str) -> tuple[str, ...]:
    """The plain days of `text`, and each other one alone.

    `LW`, the last workday, is written `31W`, which goes by the last day of a shorter month. A user may expect such
    months to be passed over: above 28W we refuse [19].
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
            raise CronError(f"{show(item)} is not in every month; expected 1W to 28W, or LW")
    return _join_special(_write(_DAY_FIELD, values), special)


def _normalize_weekdays(text: str) -> tuple[str, ...]:
    """The plain weekdays of `text`, and each other one alone; `5L` becomes `L5`."""
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
            raise CronError(f"{show(item)} is in no month; expected #1 to #5")
    return _join_special(_write(_WEEKDAY_FIELD, values), special)


def _join_special(plain: str, special: set[str]) -> tuple[str, ...]:
    if plain == "*":
        return (plain,)
    return (*filter(None, [plain]), *sorted(special))


@dataclass(frozen=True, slots=True)
class Columns:
    """What the six fields mean, in plain numbers: `*`, or values in order with commas between them.

    The days are several texts that together are what the field says, each of one kind: plain values,
    `L`, `15W`, with `31W` for the last workday; `5#2`, and `L5` for the last Friday.
    """

    second: str
    minute: str
    hour: str
    days: tuple[str, ...]
    month: str
    weekdays: tuple[str, ...]
    is_free_minute: bool
    is_free_hour: bool
    is_free_day: bool
    is_free_weekday: bool

    @property
    def is_interval(self) -> bool:
        """Whether the schedule follows real time through changes of the clock."""
        return self.is_free_minute or self.is_free_hour

    @property
    def is_either(self) -> bool:
        """Whether one of the day fields is enough, for both are restricted.

        A field that *begins* with `*`, be it `*/2`, is free; then both must match [8, 9]; with `L`, `W` and `#` too
        [10].
        """
        return not (self.is_free_day or self.is_free_weekday)


def read_columns(expr: str) -> Columns:
    """Read five fields, six with the second first, or an alias.  Raises CronError."""
    check_text(expr)
    second, minute, hour, day, month, weekday = _split_fields(expr)
    return Columns(
        second=_normalize(_SECOND_FIELD, second),
        minute=_normalize(_MINUTE_FIELD, minute),
        hour=_normalize(_HOUR_FIELD, hour),
        days=_normalize_days(day),
        month=_normalize(_MONTH_FIELD, month),
        weekdays=_normalize_weekdays(weekday),
        is_free_minute=minute.startswith("*"),
        is_free_hour=hour.startswith("*"),
        is_free_day=day.startswith("*"),
        is_free_weekday=weekday.startswith("*"),
    )
