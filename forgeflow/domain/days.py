"""Which days of a month a schedule names: its two day fields, laid over each kind of month.

What a month's days are depends on nothing but its length and the weekday of its first day, and of such kinds there
are 28. So a schedule is asked once for each of them, whatever it names, and afterwards a month is a look into a table.
A set of days is a number: bit n for day n. Numbers in brackets are the rules that `tests/unit/test_schedule.py` tells.
"""

from datetime import date
from functools import lru_cache

from forgeflow.domain.expression import Columns

_LENGTHS = (28, 29, 30, 31)
_LENGTH_OF = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ALL_DAYS, _ALL_WEEKDAYS = (2 << 31) - 2, (1 << 7) - 1
# Weekday n of each week, shifted by n; enough weeks for a month that begins on the last day of one.
_WEEKS = sum(1 << 7 * n for n in range(6))


def days_by_kind(columns: Columns) -> tuple[int, ...]:
    """The days meant, for every kind of month, in the order of `kind_of` [8, 9, 10]."""
    special_days = [text for text in columns.days if text[-1] in "LW"]
    special_weekdays = [text for text in columns.weekdays if "L" in text or "#" in text]
    days = sum(_read_set(text, _ALL_DAYS) for text in columns.days if text not in special_days)
    week = sum(_read_set(text, _ALL_WEEKDAYS) for text in columns.weekdays if text not in special_weekdays)
    found = []
    for length in _LENGTHS:
        for first in range(7):
            by_month, by_week = days, week * _WEEKS >> first << 1
            for text in special_days:
                by_month |= 1 << _special_day(text, length, first)
            for text in special_weekdays:
                by_week |= 1 << _special_weekday(text, length, first)
            meant = by_month | by_week if columns.is_either else by_month & by_week
            found.append(meant & (2 << length) - 2)
    return tuple(found)


@lru_cache(maxsize=4096)
def kind_of(year: int, month: int) -> int:
    """The place of this month's kind among the 28."""
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    length = 29 if month == 2 and is_leap else _LENGTH_OF[month - 1]
    return 7 * (length - 28) + date(year, month, 1).isoweekday() % 7


def kinds_of(month: int) -> range:
    """The kinds that this month comes in: February has two lengths, and each begins on any weekday [17].

    It takes 40 years at most until one returns (29 February on a given weekday, around 2100).
    """
    low = 7 * (_LENGTH_OF[month - 1] - 28)
    return range(low, low + (14 if month == 2 else 7))


def _read_set(text: str, every: int) -> int:
    return every if text == "*" else sum(1 << int(value) for value in text.split(","))


def _special_day(text: str, length: int, first: int) -> int:
    """The last day or the workday nearest to one: the Friday before, the Monday after; never in another month [19]."""
    if text == "L":
        return length
    day = min(int(text[:-1]), length)
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else 3
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _special_weekday(text: str, length: int, first: int) -> int:
    """The n-th of a weekday, be it beyond the month's end, or the last one."""
    if text[0] == "L":
        return length - (first + length - 1 - int(text[1:])) % 7
    weekday, nth = text.split("#")
    return 1 + (int(weekday) - first) % 7 + 7 * (int(nth) - 1)
