"""Schedules in words: what is said is what runs."""

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgeflow.domain.expression import read_columns
from forgeflow.domain.schedule import Schedule
from forgeflow.domain.words import put_in_words
from forgeflow.errors import CronError
from tests.unit.test_schedule import Pattern, draw_pattern


def words(expr: str) -> str:
    return Schedule.parse(expr, "UTC").describe()


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        ("* * * * *", "Every minute"),
        ("*/5 * * * *", "Every 5 minutes"),
        ("0 * * * *", "Every hour"),
        ("5 * * * *", "At 5 minutes past the hour"),
        ("0-10 * * * *", "Minutes 0 through 10 past the hour"),
        ("0 */2 * * *", "Every 2 hours"),
        ("0 9 * * MON-FRI", "At 09:00, Monday through Friday"),
        ("0 9,17 * * *", "At 09:00 and 17:00"),
        ("0,30 9,17 * * *", "At 09:00, 09:30, 17:00 and 17:30"),
        ("0 9-17 * * *", "Every hour from 09:00 through 17:00"),
        ("30 22-4 * * *", "Every hour from 22:30 through 04:30"),
        ("0 1-23/2 * * *", "Every 2 hours, between 01:00 and 23:59"),
        ("*/15 9-17 * * *", "Every 15 minutes, between 09:00 and 17:59"),
        ("*/5 3 * * *", "Every 5 minutes, between 03:00 and 03:59"),
        ("5-20 3 * * *", "Every minute between 03:05 and 03:20"),
        ("@hourly", "Every hour"),
        (" @Daily\t", "At 00:00"),
        ("@midnight", "At 00:00"),
        ("@weekly", "At 00:00, only on Sunday"),
        ("@monthly", "At 00:00, on day 1 of the month"),
        ("@yearly", "At 00:00, on day 1 of the month, only in January"),
        ("0 0 1,15 * *", "At 00:00, on day 1 and 15 of the month"),
        ("0 0 1-7 * *", "At 00:00, between day 1 and 7 of the month"),
        ("0 0 L * *", "At 00:00, on the last day of the month"),
        ("0 0 15W * *", "At 00:00, on the weekday nearest day 15 of the month"),
        ("0 0 LW * *", "At 00:00, on the last weekday of the month"),
        ("0 0 * * FRI#2", "At 00:00, on the second Friday of the month"),
        ("0 0 * * 7#5", "At 00:00, on the fifth Sunday of the month"),
        ("0 0 * * 5L", "At 00:00, on the last Friday of the month"),
        ("0 0 * * MON,WED,FRI", "At 00:00, only on Monday, Wednesday, and Friday"),
        ("0 0 * * SUN,SAT", "At 00:00, only on Saturday and Sunday"),
        ("0 0 1 1,7 *", "At 00:00, on day 1 of the month, only in January and July"),
        ("0 0 1 NOV-FEB *", "At 00:00, on day 1 of the month, November through February"),
        ("0 9-17 1 * * *", "Every minute between 01:09 and 01:17"),
    ],
)
def test_a_schedule_is_said_in_words(expr: str, said: str) -> None:
    assert words(expr) == said


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        # The second comes first, and 0 is none.
        ("* * * * * *", "Every second"),
        ("*/10 * * * * *", "Every 10 seconds"),
        ("30 * * * * *", "At 30 seconds past the minute"),
        ("15 30 2 * * *", "At 02:30:15"),
        ("0 30 2 * * *", "At 02:30"),
        ("5 0 9,17 * * *", "At 09:00:05 and 17:00:05"),
        # Steps that do not divide the hour, the minute or the day are no "every".
        ("*/7 * * * *", "Every 7 minutes, minutes 0 through 56 past the hour"),
        ("*/40 * * * * *", "At 0 and 40 seconds past the minute"),
        ("0 */5 * * *", "At 00:00, 05:00, 10:00, 15:00 and 20:00"),
        ("5/15 * * * *", "Every 15 minutes, minutes 5 through 50 past the hour"),
        ("0 0 */2 * *", "At 00:00, every 2 days, between day 1 and 31 of the month"),
        ("0 0 1 */5 *", "At 00:00, on day 1 of the month, only in January, June, and November"),
        ("0 0 * * */2", "At 00:00, only on Tuesday, Thursday, Saturday, and Sunday"),
        # More than once in each of these hours.
        ("* 9,11 * * *", "Every minute, in the hours 09 and 11"),
        ("*/5 */2 * * *", "Every 5 minutes, in every 2nd hour from 00 to 22"),
        ("*/20 1,2,9-17 * * *", "Every 20 minutes, in the hours 01, 02 and 09 through 17"),
        # Two steps side by side might be read either way.
        (
            "*/10 0-15/5 9 * * *",
            "Every 10 seconds, at 0, 5, 10, and 15 minutes past the hour, between 09:00 and 09:59",
        ),
        # Rows 11 to 15: equal ends, 7, ranges over the end, a start with a step.
        ("5-5 * * * *", "At 5 minutes past the hour"),
        ("0 0 * * 7", "At 00:00, only on Sunday"),
        ("0 0 * * FRI-SUN", "At 00:00, Friday through Sunday"),
        ("0 0 * * FRI-MON/3", "At 00:00, only on Monday and Friday"),
        ("0 0 * * 1/2", "At 00:00, only on Monday, Wednesday, and Friday"),
        ("50-5/5 * * * *", "At 0, 5, 50, and 55 minutes past the hour"),
    ],
)
def test_what_the_library_would_say_wrongly_is_said_rightly(expr: str, said: str) -> None:
    assert words(expr) == said


@pytest.mark.parametrize(
    ("days", "said"),
    [
        ("13 * FRI", ", on day 13 of the month or on Friday (either is enough)"),
        ("13 * FRI#2", ", on day 13 of the month or on the second Friday of the month (either is enough)"),
        ("1,15 * MON-FRI", ", on day 1 and 15 of the month or Monday through Friday (either is enough)"),
        ("*/31,1-7 * 2", ", between day 1 and 7 of the month and on Tuesday (both must match)"),
        ("8-14 * */7", ", between day 8 and 14 of the month and on Sunday (both must match)"),
        ("*/10 * 1", ", every 10 days, between day 1 and 31 of the month and on Monday (both must match)"),
        ("1-31 * MON", ""),
        ("15 * 0-6", ""),
        ("* * MON", ", only on Monday"),
        ("*/1 * MON", ", only on Monday"),
        ("15 * *", ", on day 15 of the month"),
        ("15 * */1", ", on day 15 of the month"),
        ("15,L * *", ", on day 15 of the month or on the last day of the month"),
        ("* * MON,FRI#2", ", on Monday or on the second Friday of the month"),
        (
            "15W,L * MON",
            ", on the weekday nearest day 15 of the month or on the last day of the month, or on Monday"
            " (either is enough)",
        ),
    ],
)
def test_day_fields_say_whether_one_or_both_must_match(days: str, said: str) -> None:
    assert words(f"0 0 {days}") == f"At 00:00{said}"


@pytest.mark.parametrize(
    "expr",
    ["1,4,6,9,13,15,18,24,33,37,44,51,57 * * * *", "0 0 1,3,4,6,8,9,11,13,15,17,20,22,25,29 * *"],
)
def test_what_words_would_not_make_clearer_stays_an_expression(expr: str) -> None:
    assert words(f" {expr.replace(' ', '  ')}") == expr


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("@daily", "0 0 0 * * *"),
        ("0 9 * * 1-5", "00 09 * * mon,tue,wed,thu,fri"),
        ("*/15 * * * *", "45,30,15,0 * * * *"),
        ("0 0 * JAN-JUN/1 *", "0 0 * 1,2,3,4,5,6 *"),
        ("0 22-2 * * *", "0 22,23,0,1,2 * * *"),
        ("0 0 * * 5-7", "0 0 * * SUN,FRI,SAT"),
    ],
)
def test_words_follow_the_meaning_not_the_spelling(one: str, other: str) -> None:
    assert words(one) == words(other)


def test_schedules_that_differ_are_said_differently() -> None:
    clocks = ["0", "*", "5", "*/15", "*/7", "0,30", "5-20", "7,9-12"]
    hours = ["*", "0", "9", "*/2", "*/5", "1,2", "9-17", "22-3", "1,2,9-17"]
    days = ["*", "1", "*/2", "1-7", "1-31", "15,L", "LW"]
    weekdays = ["*", "0", "1-5", "*/2", "FRI#2", "5L", "0-6"]
    meanings: dict[str, set[object]] = {}
    for second, minute, hour in itertools.product(["0", "*", "*/10"], clocks, hours):
        columns = read_columns(f"{second} {minute} {hour} * * *")
        meanings.setdefault(str(put_in_words(columns)), set()).add((columns.second, columns.minute, columns.hour))
    assert all(len(found) == 1 for found in meanings.values())
    assert len(meanings) == 3 * len(clocks) * len(hours)
    meanings = {}
    for day, month, weekday in itertools.product(days, ["*", "2", "11-2"], weekdays):
        columns = read_columns(f"0 0 {day} {month} {weekday}")
        is_daily = columns.is_either and ("*",) in (columns.days, columns.weekdays)
        meaning = "daily" if is_daily else (columns.is_either, columns.days, columns.weekdays)
        alone = ("*",) in (columns.days, columns.weekdays) and not is_daily
        found = (columns.days, columns.weekdays) if alone else meaning
        is_free = found == (("*",), ("*",))
        meanings.setdefault(str(put_in_words(columns)), set()).add((columns.month, "daily" if is_free else found))
    assert all(len(found) == 1 for found in meanings.values())


@settings(deadline=None, derandomize=True, max_examples=400)
@given(pattern=st.one_of(draw_pattern(5, any_day=False), draw_pattern(6, any_day=False)))
def test_any_schedule_can_be_described_soon(pattern: Pattern) -> None:
    try:
        schedule = Schedule.parse(pattern.expr, "UTC")
    except CronError:  # never ticks
        return
    began = time.process_time()
    said = schedule.describe()
    assert time.process_time() - began < 0.1
    assert said
    assert said.isprintable()
    assert len(said) < 600
    assert "?" not in said
    assert "None" not in said
    assert "{" not in said
