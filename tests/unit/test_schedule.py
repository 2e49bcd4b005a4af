"""Schedules: the shared cases, each rule in words, and a slow clock that knows nothing of croniter.

The numbers at the row tests are those in brackets in `forgeflow/domain/schedule.py` and `expression.py`.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgeflow.domain.schedule import Schedule, check_zone
from forgeflow.errors import CronError

CASES: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parents[1] / "cases" / "cron.jsonl").read_text().splitlines()
]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def show_ticks(expr: str, zone: str, start: str, count: int) -> list[str]:
    """The next ticks after `start` (UTC) on the zone's clock, as `month-day hour:minute offset`."""
    return [f"{tick.astimezone(ZoneInfo(zone)):%m-%d %H:%M %z}" for tick in walk(expr, zone, start, count)]


def walk(expr: str, zone: str, start: str, count: int) -> list[datetime]:
    return Schedule(expr, zone).between(at(start), datetime.max.replace(tzinfo=UTC), count)


def show_days(expr: str, start: str, count: int) -> list[str]:
    """The dates of the next ticks in UTC."""
    return [f"{tick:%Y-%m-%d}" for tick in walk(expr, "UTC", start, count)]


def minutes_of(field: str) -> list[int]:
    hour = Schedule(f"{field} * * * *", "UTC").between(at("2024-05-09T23:59:59"), at("2024-05-10T00:59:59"), 60)
    return [tick.minute for tick in hour]


def weekdays_of(field: str) -> str:
    """The weekdays, Sunday first, on which a schedule ticks, as `0..6`."""
    week = Schedule(f"0 0 * * {field}", "UTC").between(at("2024-05-11T12:00"), at("2024-05-18T12:00"), 7)
    return "".join(str(tick.isoweekday() % 7) for tick in week)


# -- The shared cases ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case_has_its_right_answer_from_its_start_and_from_every_tick(case: dict[str, Any]) -> None:
    began = time.monotonic()
    schedule = read(case["expr"], case["tz"])
    if schedule is None:
        assert case.get("error") or case.get("may_reject")
    else:
        assert not case.get("error")
        right = [case["fires"], *case.get("alt", [])]
        assert any(answers(schedule, at(case["start"][:-1]), fires) for fires in right)
    assert time.monotonic() - began < 5


def read(expr: str, zone: str) -> Schedule | None:
    try:
        return Schedule.parse(expr, zone)
    except CronError:
        return None


def answers(schedule: Schedule, start: datetime, fires: list[str]) -> bool:
    ticks = [at(fire[:-1]) for fire in fires]
    asked_again = [schedule.next_after(instant) for instant in [start, *ticks[:-1]]]
    backwards = [schedule.previous(tick) for tick in ticks[1:]]
    at_once = schedule.between(start, ticks[-1], len(ticks) + 1)
    return asked_again == ticks and backwards == ticks[:-1] and at_once == ticks


# -- The rules, row by row -------------------------------------------------------------------------


@pytest.mark.parametrize("expr", ["", " ", "* * * *", "* * * * * * *", "0 0 1 1 * 2030 *"])
def test_row_1_anything_but_five_or_six_fields_is_refused(expr: str) -> None:
    with pytest.raises(CronError, match="expected 5, or 6 with the second first"):
        Schedule(expr, "UTC")


def test_row_1_the_first_of_six_fields_is_the_second() -> None:
    assert walk("15 30 2 * * *", "UTC", "2024-05-10T00:00", 1) == [at("2024-05-10T02:30:15")]


@pytest.mark.parametrize("clock", ["30 2", "30 1", "*/15 *", "0,30 1-3", "30 */2"])
@pytest.mark.parametrize("start", ["2024-03-30T00:00", "2024-10-26T00:00"])
def test_row_2_second_zero_is_the_five_field_form_through_dst(clock: str, start: str) -> None:
    five = walk(f"{clock} * * *", "Europe/Berlin", start, 200)
    assert walk(f"0 {clock} * * *", "Europe/Berlin", start, 200) == five


@pytest.mark.parametrize(
    ("expr", "zone", "start", "tick"),
    [
        ("30 2 * * *", "Europe/Berlin", "2024-03-30T12:00", "03-31 03:00 +0200"),
        ("0 2 * * *", "America/New_York", "2024-03-09T12:00", "03-10 03:00 -0400"),
        ("0 3 * * *", "Pacific/Chatham", "2024-09-27T18:00", "09-29 03:45 +1345"),
        ("15 2 * * *", "Australia/Lord_Howe", "2024-10-05T00:00", "10-06 02:30 +1100"),
        ("0 0 * * *", "Africa/Cairo", "2024-04-25T12:00", "04-26 01:00 +0300"),
        ("*/10 30 2 * * *", "Europe/Berlin", "2024-03-30T12:00", "03-31 03:00 +0200"),
        ("1,30 2 * * *", "Europe/Berlin", "2024-03-30T12:00", "03-31 03:00 +0200"),
        ("15 30 2 31 3 *", "Europe/Berlin", "2024-03-30T12:00", "03-31 03:00 +0200"),
    ],
)
def test_row_3_skipped_fixed_times_tick_once_at_the_end_of_the_gap(expr: str, zone: str, start: str, tick: str) -> None:
    first, second = walk(expr, zone, start, 2)
    assert f"{first.astimezone(ZoneInfo(zone)):%m-%d %H:%M %z}" == tick
    assert first.second == 0
    assert second - first > timedelta(hours=20)


def test_row_4_repeated_fixed_times_tick_in_the_first_pass_only() -> None:
    assert show_ticks("0,30 1 * * *", "America/New_York", "2024-11-02T12:00", 3) == [
        "11-03 01:00 -0400",
        "11-03 01:30 -0400",
        "11-04 01:00 -0500",
    ]


def test_row_4_a_start_in_the_second_pass_does_not_change_that() -> None:
    start = "2024-11-03T06:10"
    assert show_ticks("30 1 * * *", "America/New_York", start, 1) == ["11-04 01:30 -0500"]
    schedule = Schedule("30 1 * * *", "America/New_York")
    assert schedule.previous(at(start)) == at("2024-11-03T05:30")


def test_row_5_interval_like_schedules_tick_in_both_passes() -> None:
    assert show_ticks("30 * * * *", "America/New_York", "2024-11-03T05:00", 3) == [
        "11-03 01:30 -0400",
        "11-03 01:30 -0500",
        "11-03 02:30 -0500",
    ]
    assert len(walk("*/15 1 * * *", "America/New_York", "2024-11-03T05:00", 8)) == 8


@pytest.mark.parametrize(
    ("expr", "tick"),
    [("*/15 2 * * *", "04-01 02:00 +0200"), ("30 */2 * * *", "03-31 04:30 +0200")],
)
def test_row_6_nothing_is_made_up_for_skipped_interval_readings(expr: str, tick: str) -> None:
    assert show_ticks(expr, "Europe/Berlin", "2024-03-31T00:59", 1) == [tick]


def test_row_7_ranges_and_lists_of_hours_are_fixed_time() -> None:
    ranged = show_ticks("0 1-3 * * *", "Europe/Berlin", "2024-10-26T22:30", 4)
    assert ranged == [
        "10-27 01:00 +0200",
        "10-27 02:00 +0200",
        "10-27 03:00 +0100",
        "10-28 01:00 +0100",
    ]
    assert show_ticks("0 1,2,3 * * *", "Europe/Berlin", "2024-10-26T22:30", 4) == ranged


def test_row_8_either_day_field_is_enough_when_both_are_restricted() -> None:
    days = show_days("0 0 13 * FRI", "2024-09-06T12:00", 3)
    assert days == ["2024-09-13", "2024-09-20", "2024-09-27"]
    assert show_days("0 0 15 * FRI", "2024-09-12", 2) == ["2024-09-13", "2024-09-15"]


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ("*/2 * MON", "2024-01-15"),
        ("*/31,1-7 * 2", "2024-02-06"),
        ("8-14 * */7", "2024-01-14"),
        ("1-31 * MON", "2024-01-10"),
        ("15 * 0-6", "2024-01-10"),
    ],
)
def test_row_9_both_day_fields_must_match_when_one_begins_with_a_star(days: str, expected: str) -> None:
    assert show_days(f"0 0 {days}", "2024-01-09T12:00", 1) == [expected]


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ("13 * FRI#2", ["2024-01-12", "2024-01-13", "2024-02-09"]),
        ("L * MON", ["2024-01-08", "2024-01-15", "2024-01-22"]),
        ("15W * SUN", ["2024-01-07", "2024-01-14", "2024-01-15"]),
        ("*/2 * FRI#2", ["2024-02-09", "2024-08-09", "2024-09-13"]),
        ("L * */7", ["2024-03-31", "2024-06-30", "2025-08-31"]),
        ("15W,L * MON,FRI#2", ["2024-01-08", "2024-01-12", "2024-01-15"]),
    ],
)
def test_row_10_that_holds_with_hash_last_and_workdays_too(days: str, expected: list[str]) -> None:
    assert show_days(f"0 0 {days}", "2024-01-01T12:00", 3) == expected


def test_row_11_a_range_with_equal_ends_is_one_value() -> None:
    assert minutes_of("5-5") == [5]
    assert [weekdays_of(field) for field in ["1-1", "7-7", "SUN-SUN", "0-0"]] == list("1000")
    assert show_days("0 0 9-9 JAN-JAN *", "2024-01-01", 2) == ["2024-01-09", "2025-01-09"]


def test_row_12_zero_and_seven_are_sunday_everywhere() -> None:
    fields = ["7", "0,7", "5-7", "0-7", "7-2", "7/2", "1-7/2"]
    expected = ["0", "0", "056", "0123456", "012", "0246", "0135"]
    assert [weekdays_of(field) for field in fields] == expected
    assert show_days("0 0 * * 7#1", "2024-05-01", 1) == show_days("0 0 * * 0#1", "2024-05-01", 1)


def test_row_13_ranges_may_end_in_sunday_by_name() -> None:
    assert [weekdays_of(field) for field in ["FRI-SUN", "Mon-Sun", "sat-sun"]] == [
        "056",
        "0123456",
        "06",
    ]


def test_row_14_other_backward_ranges_wrap_and_the_step_goes_on() -> None:
    assert [weekdays_of(field) for field in ["FRI-MON", "5-1", "FRI-MON/3"]] == ["0156", "0156", "15"]
    assert minutes_of("50-10/7") == [4, 50, 57]
    assert show_days("0 0 1 NOV-FEB/2 *", "2024-02-02", 3) == [
        "2024-11-01",
        "2025-01-01",
        "2025-11-01",
    ]
    hours = walk("0 22-4/3 * * *", "UTC", "2024-05-10T04:30", 3)
    assert [tick.hour for tick in hours] == [22, 1, 4]


def test_row_15_a_start_with_a_step_runs_to_the_end_of_the_field() -> None:
    assert minutes_of("5/15") == [5, 20, 35, 50]
    assert minutes_of("59/15") == [59]
    assert [weekdays_of(field) for field in ["1/2", "MON/5", "6/1"]] == ["135", "16", "6"]


@pytest.mark.parametrize(
    ("template", "size"),
    [
        ("{} * * * * *", 60),
        ("{} * * * *", 60),
        ("0 {} * * *", 24),
        ("0 0 {} * *", 31),
        ("0 0 1 {} *", 12),
        ("0 0 * * {}", 7),
    ],
)
def test_row_16_a_step_is_at_most_the_size_of_its_field(template: str, size: int) -> None:
    Schedule(template.format(f"*/{size}"), "UTC")
    for step in [0, size + 1, 10**200]:
        with pytest.raises(CronError, match=f"expected 1 to {size}"):
            Schedule(template.format(f"*/{step}"), "UTC")


@pytest.mark.parametrize("days", ["30 2 *", "31 2,4,6,9,11 *", "30,31 FEB */2", "*/31 * MON#2", "*/30 2 MON#5"])
def test_row_17_impossible_days_are_refused_when_given(days: str) -> None:
    with pytest.raises(CronError, match="never ticks"):
        Schedule(f"0 0 {days}", "UTC")


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ("30 2 MON", ["2072-02-29", "2073-02-06", "2073-02-13"]),
        ("31 2 0", ["2072-02-28", "2073-02-05", "2073-02-12"]),
        ("29 2 *", ["2072-02-29", "2076-02-29", "2080-02-29"]),
        ("* 2 MON#5", ["2072-02-29", "2112-02-29", "2140-02-29"]),
        ("29 2 */7", ["2088-02-29", "2128-02-29", "2156-02-29"]),
    ],
)
def test_row_17_rare_days_are_found_both_ways(days: str, expected: list[str]) -> None:
    schedule = Schedule(f"0 0 {days}", "UTC")
    assert show_days(schedule.expr, "2072-02-25", 3) == expected
    found, past = [], at(expected[-1]) + timedelta(days=1)
    for _ in expected:
        tick = schedule.previous(past)
        assert tick is not None
        found.append(f"{tick:%Y-%m-%d}")
        past = tick
    assert found == expected[::-1]


def test_row_18_last_days_nth_weekdays_and_aliases() -> None:
    assert show_days("0 0 L * *", "2024-01-31T12:00", 2) == ["2024-02-29", "2024-03-31"]
    assert show_days("0 0 15,L 2 *", "2023-02-01", 2) == ["2023-02-15", "2023-02-28"]
    assert show_days("0 0 * * MON#5", "2024-01-01", 2) == ["2024-01-29", "2024-04-29"]
    for alias, expr in [
        ("@hourly", "0 * * * *"),
        (" @Daily\t", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@WEEKLY", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ]:
        assert walk(alias, "UTC", "2024-05-10", 3) == walk(expr, "UTC", "2024-05-10", 3)


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ("* * 5L", ["2024-06-28", "2024-07-26", "2024-08-30"]),
        ("* * friL", ["2024-06-28", "2024-07-26", "2024-08-30"]),
        ("* * 7L", ["2024-06-30", "2024-07-28", "2024-08-25"]),
        ("15W * *", ["2024-06-14", "2024-07-15", "2024-08-15"]),
        ("1W * *", ["2024-06-03", "2024-07-01", "2024-08-01"]),
        ("LW * *", ["2024-06-28", "2024-07-31", "2024-08-30"]),
    ],
)
def test_row_19_last_weekdays_and_nearest_workdays_are_right(days: str, expected: list[str]) -> None:
    assert show_days(f"0 0 {days}", "2024-06-01T12:00", 3) == expected


@pytest.mark.parametrize(
    "days", ["29W * *", "31W * *", "0W * *", "L5 * *", "L-3 * *", "? * *", "* * ?", "* * L", "* * L5"]
)
def test_row_19_their_doubtful_relatives_are_refused(days: str) -> None:
    with pytest.raises(CronError):
        Schedule(f"0 0 {days}", "UTC")


@pytest.mark.parametrize("item", ["R", "r/5", "R(1-5)", "H", "h/15", "H(0-29)/10"])
def test_row_20_random_and_hashed_fields_are_refused(item: str) -> None:
    with pytest.raises(CronError, match="hashed or random"):
        Schedule(f"{item} 0 * * *", "UTC")


@pytest.mark.parametrize(
    "expr",
    [
        "٥ * * * *",
        "² * * * *",
        "＊ * * * *",
        "0\u00a00 * * *",
        "0 0 * * \u017fun",
        "0 0 * * *\n",
        "0 0\x0b* * *",
        "0\x000 * * *",
        "+5 * * * *",
        "-5 * * * *",
        "1.5 * * * *",
        "1_0 * * * *",
    ],
)
def test_row_21_only_plain_ascii_is_read(expr: str) -> None:
    with pytest.raises(CronError):
        Schedule(expr, "UTC")


def test_row_21_blanks_and_tabs_separate() -> None:
    assert walk(" \t0  9\t* * *  ", "UTC", "2024-05-10", 1) == [at("2024-05-10T09:00")]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Mars/Olympus_Mons",
        "Europe",
        "Europe/",
        "leapseconds",
        "localtime",
        "posixrules",
        "Factory",
        "right/UTC",
        "posix/Europe/Berlin",
        "/etc/localtime",
        "/usr/share/zoneinfo/UTC",
        "../zoneinfo/UTC",
        "UTC\0",
        " UTC",
        "+02:00",
        "A/" * 5000,
    ],
)
def test_row_22_names_that_are_not_iana_zones_are_refused(name: str) -> None:
    with pytest.raises(CronError, match=r"expected an IANA name|must be an IANA name") as caught:
        check_zone(name)
    assert len(str(caught.value)) < 250
    with pytest.raises(CronError):
        Schedule("* * * * *", name)


@pytest.mark.parametrize(
    ("name", "near"),
    [("europe/berlin", "Europe/Berlin"), ("Pacific/Aukland", "Pacific/Auckland"), ("utc", "UTC")],
)
def test_row_22_the_nearest_name_is_suggested(name: str, near: str) -> None:
    with pytest.raises(CronError, match=f"such as {near}$"):
        check_zone(name)


def test_row_23_the_start_is_exclusive_and_microseconds_count() -> None:
    schedule = Schedule("0 12 * * *", "UTC")
    noon, breath = at("2024-05-10T12:00"), timedelta(microseconds=1)
    day = timedelta(days=1)
    assert [schedule.next_after(noon + n * breath) for n in (-1, 0, 1)] == [noon, noon + day, noon + day]
    assert [schedule.previous(noon + n * breath) for n in (-1, 0, 1)] == [noon - day, noon - day, noon]


def test_row_24_a_missing_day_ticks_once_at_its_end() -> None:
    # The clock of Apia went from the end of the 29th of December to the start of the 31st.
    assert show_ticks("0 12 * * *", "Pacific/Apia", "2011-12-29T12:00", 3) == [
        "12-29 12:00 -1000",
        "12-31 00:00 +1400",
        "12-31 12:00 +1400",
    ]


# -- Refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expr", "told"),
    [
        ("60 * * * *", '"60" is not a value of the minute field; expected 0 to 59'),
        ("* 24 * * *", '"24" is not a value of the hour field'),
        ("* * 0 * *", '"0" is not a value of the day-of-month field; expected 1 to 31'),
        ("* * * 13 *", '"13" is not a value of the month field; expected 1 to 12 or JAN to DEC'),
        ("* * * * 8", "expected 0 to 7 or SUN to SAT"),
        ("60 * * * * *", '"60" is not a value of the second field'),
        ("JAN * * * *", '"JAN" is not a value of the minute field'),
        ("* * * MON *", '"MON" is not a value of the month field'),
        ("* * * * MONDAY", '"MONDAY" in the day-of-week field cannot be read'),
        ("1,,2 * * * *", "an empty item in the minute field"),
        ("5- * * * *", '"5-" in the minute field cannot be read'),
        ("*-5 * * * *", "cannot be read"),
        ("5-1-3/2 * * * *", "cannot be read"),
        ("5/ * * * *", "cannot be read"),
        ("*/2/3 * * * *", "cannot be read"),
        ("** * * * *", "cannot be read"),
        ("0-999999999 * * * *", '"999999999" is not a value'),
        ("0-59/1000000 * * * *", 'the step "1000000" is out of range'),
        ("0 0 * * 1#6", "expected #1 to #5"),
        ("0 0 * * 1#0", "expected #1 to #5"),
        ("0 0 * * 8#1", '"8" is not a value'),
        ("0 0 * * 1-5#1", "cannot be read"),
        ("@reboot", 'the alias "@reboot" is unknown; expected one of @hourly'),
        ("@every 5m", "is unknown"),
        ("x" * 1_000_000, "has 1000000 characters; expected at most 256"),
        ("1," * 200_000 + " * * * *", "expected at most 256"),
        ("\x1b[31m * * * *", "the character U+001B"),
    ],
)
def test_refusal_says_in_one_short_sentence_what_was_wrong(expr: str, told: str) -> None:
    began = time.monotonic()
    with pytest.raises(CronError) as caught:
        Schedule(expr, "UTC")
    assert time.monotonic() - began < 1
    assert told in str(caught.value)
    assert len(str(caught.value)) < 250
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("expr", "near"),
    [
        ("0 0 * * MONDAY", "MON"),
        ("0 0 * * Monday-Friday", "MON-FRI"),
        ("0 0 * * thurs#1", "THU#1"),
        ("0 0 1 SEPTEMBER *", "SEP"),
        ("0 0 * * WDE", "WED"),
        ("0 0 * * L5", "5L"),
        ("0 0 ? * MON", "*"),
        ("0 0 1 * ?", "*"),
        ("@dayly", "@daily"),
        ("@Month", "@monthly"),
        ("0 0 * * XYZ", None),
        ("0 0 * * NOONDAY", None),
        ("? 0 * * *", None),
        ("0 0 L5 * *", None),
        ("@reboot", None),
    ],
)
def test_refusal_names_the_right_spelling_where_one_is_near(expr: str, near: str | None) -> None:
    with pytest.raises(CronError) as caught:
        Schedule(expr, "UTC")
    assert ("did you mean" in str(caught.value)) == bool(near)
    if near:
        assert f"(did you mean {near}?)" in str(caught.value)
        assert len(str(caught.value)) < 250


@pytest.mark.parametrize("wrong", [None, 5, b"* * * * *", ["*"]])
def test_what_is_not_text_is_refused(wrong: Any) -> None:
    with pytest.raises(CronError):
        Schedule(wrong, "UTC")
    with pytest.raises(CronError):
        Schedule("* * * * *", wrong)


@pytest.mark.parametrize("length", [256, 257])
def test_a_text_may_have_256_characters(length: int) -> None:
    expr = "* * * * " + "1," * 124
    expr = expr[: length - 1].rstrip(",").ljust(length - 1) + "\t"
    assert len(expr) == length
    if length == 256:
        Schedule(expr, "UTC")
    else:
        with pytest.raises(CronError):
            Schedule(expr, "UTC")


def test_naive_instants_are_refused() -> None:
    schedule, naive, aware = Schedule("* * * * *", "UTC"), datetime(2024, 5, 10), at("2024-05-10")  # noqa: DTZ001
    for ask in (
        lambda: schedule.next_after(naive),
        lambda: schedule.previous(naive),
        lambda: schedule.between(naive, aware, 1),
        lambda: schedule.between(aware, naive, 1),
    ):
        with pytest.raises(ValueError, match="naive"):
            ask()


# -- A schedule as a value -------------------------------------------------------------------------


def test_schedules_are_equal_and_hashable_by_their_text() -> None:
    assert Schedule.parse("0 0 * * *") == Schedule("0 0 * * *", "UTC")
    assert len({Schedule("0 0 * * *", "UTC"), Schedule("0 0 * * *", "UTC")}) == 1
    assert Schedule("0 0 * * *", "UTC") != Schedule("0 0 * * *", "Europe/Berlin")
    assert Schedule(" @daily", "UTC").expr == " @daily"


def test_ticks_are_utc_whatever_offset_the_instant_has() -> None:
    schedule = Schedule("0 9 * * *", "America/New_York")
    start = at("2024-03-09T20:00")
    ticks = [schedule.next_after(start.astimezone(ZoneInfo(z))) for z in ("UTC", "Asia/Tokyo")]
    assert ticks == [at("2024-03-10T13:00")] * 2
    assert all(tick is not None and tick.tzinfo is UTC for tick in ticks)


def test_between_excludes_its_start_includes_its_end_and_stops_at_the_limit() -> None:
    schedule = Schedule("* * * * * *", "UTC")
    start, second = at("2024-05-10"), timedelta(seconds=1)
    assert schedule.between(start, start + 2 * second, 9) == [start + second, start + 2 * second]
    assert schedule.between(start, start + timedelta(days=999), 1) == [start + second]
    assert schedule.between(start, start, 9) == []
    assert schedule.between(start, start + second, 0) == []
    assert schedule.between(start, start + second, -1) == []


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("expr", ["* * * * * *", "0 0 * * *"])
def test_the_calendar_is_served_to_both_its_ends(expr: str, zone: str) -> None:
    schedule = Schedule(expr, zone)
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    day = timedelta(days=2)
    early, late = schedule.next_after(first), schedule.previous(last)
    assert early is not None
    assert late is not None
    assert first <= early < first + day
    assert last - day < late <= last
    assert schedule.next_after(late) is None
    assert schedule.previous(first) is None


def test_threads_may_share_a_schedule() -> None:
    # Real threads meet in the few instructions that matter once in thousands of asks; so another
    # ask is put in at every call that an answer makes.
    schedule, start = Schedule("*/7 3 * * MON", "Europe/Berlin"), at("2024-05-10")
    later, earlier = schedule.next_after(start), schedule.previous(start)

    def ask_elsewhere(*_: object) -> None:
        schedule.next_after(at("2030-01-01"))
        schedule.previous(at("2030-01-01"))

    usual = sys.gettrace()
    sys.settrace(ask_elsewhere)
    try:
        interrupted = schedule.next_after(start), schedule.previous(start)
    finally:
        sys.settrace(usual)
    assert interrupted == (later, earlier)


# -- A slow clock ----------------------------------------------------------------------------------
# Texts are drawn together with what they mean, so that nothing here reads one; ticks are found by
# looking at the local clock once a minute, or a second, as a daemon does.

Days = Callable[[date], bool]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


@dataclass(frozen=True)
class Pattern:
    expr: str
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    months: frozenset[int]
    day: Days
    is_interval: bool

    def matches(self, reading: datetime) -> bool:
        return (
            reading.minute in self.minutes
            and reading.hour in self.hours
            and reading.second in self.seconds
            and reading.month in self.months
            and self.day(reading.date())
        )


@st.composite
def draw_item(draw: st.DrawFn, low: int, high: int, most: int) -> tuple[str, list[int]]:
    """One item of a list, written with values up to `most`, and all that it means."""
    a, b = draw(st.integers(low, most)), draw(st.integers(low, most))
    ring = [*range(a, high + 1), *range(low, a)]
    n = draw(st.integers(1, high - low + 1))
    item: tuple[str, list[int]] = draw(
        st.sampled_from(
            [
                (f"{a}", [a]),
                (f"0{a}"[-2:], [a]),
                (f"{a}-{b}", ring[: ring.index(b) + 1]),
                (f"{a}-{b}/{n}", ring[: ring.index(b) + 1 : n]),
                (f"{a}/{n}", list(range(a, high + 1, n))),
                (f"*/{n}", list(range(low, high + 1, n))),
                ("*", list(range(low, high + 1))),
            ]
        )
    )
    return item


@st.composite
def draw_field(draw: st.DrawFn, low: int, high: int, most: int | None = None) -> tuple[str, frozenset[int]]:
    item = draw_item(low, high, high if most is None else most)
    items = draw(st.lists(item, min_size=1, max_size=2))
    text = ",".join(text for text, _ in items)
    return text, frozenset(itertools.chain.from_iterable(values for _, values in items))


def is_last_in_month(day: date, step: int) -> bool:
    return (day + timedelta(days=step)).month != day.month


def is_workday_nearest(day: date, target: date) -> bool:
    near = [target + timedelta(days=n) for n in (0, -1, 1, -2, 2)]
    return day == next(d for d in near if d.weekday() < 5 and d.month == target.month)


def last_of_month(day: date) -> date:
    return next(d for n in range(31) if is_last_in_month(d := day + timedelta(days=n), 1))


@st.composite
def draw_month_days(draw: st.DrawFn) -> tuple[str, Days]:
    n = draw(st.integers(1, 28))
    text, values = draw(draw_field(1, 31))
    days: tuple[str, Days] = draw(
        st.sampled_from(
            [
                ("*", lambda day: True),
                (text, lambda day: day.day in values),
                (text, lambda day: day.day in values),
                (f"{text},L", lambda day: day.day in values or is_last_in_month(day, 1)),
                (f"{n}W", lambda day: is_workday_nearest(day, day.replace(day=n))),
                ("LW", lambda day: is_workday_nearest(day, last_of_month(day))),
            ]
        )
    )
    return days


@st.composite
def draw_weekdays(draw: st.DrawFn) -> tuple[str, Days]:
    d, n = draw(st.integers(0, 6)), draw(st.integers(1, 5))
    name = draw(st.sampled_from([str(d or 7), WEEKDAYS[d]]))
    text, values = draw(draw_field(0, 6))

    def is_nth(day: date) -> bool:
        return day.isoweekday() % 7 == d and (day.day + 6) // 7 == n

    def is_last(day: date) -> bool:
        return day.isoweekday() % 7 == d and is_last_in_month(day, 7)

    def is_plain(day: date) -> bool:
        return day.isoweekday() % 7 in values

    days: tuple[str, Days] = draw(
        st.sampled_from(
            [
                ("*", lambda day: True),
                (text, is_plain),
                (f"{name}", lambda day: day.isoweekday() % 7 == d),
                (f"{name}#{n}", is_nth),
                (f"{name}L", is_last),
                (f"{text},{name}#{n}", lambda day: is_plain(day) or is_nth(day)),
            ]
        )
    )
    return days


@st.composite
def draw_days(draw: st.DrawFn) -> tuple[str, str, Days]:
    (month_text, by_month), (week_text, by_week) = draw(draw_month_days()), draw(draw_weekdays())
    if month_text[0] == "*" or week_text[0] == "*":
        return month_text, week_text, lambda day: by_month(day) and by_week(day)
    return month_text, week_text, lambda day: by_month(day) or by_week(day)


@st.composite
def draw_pattern(draw: st.DrawFn, fields: int, any_day: bool) -> Pattern:
    """With `any_day`, the day fields are mostly free, or no tick would come near a change."""
    second, seconds = ("0", frozenset({0})) if fields == 5 else draw(draw_field(0, 59))
    minute, minutes = draw(draw_field(0, 59))
    # Clocks change at night.
    hour, hours = draw(draw_field(0, 23, draw(st.sampled_from([3, 23]))))
    month, months = draw(draw_field(1, 12)) if not any_day else ("*", frozenset(range(1, 13)))
    free = any_day and draw(st.integers(0, 3)) > 0
    month_day, weekday, day = ("*", "*", lambda day: True) if free else draw(draw_days())
    expr = f"{minute} {hour} {month_day} {month} {weekday}"
    return Pattern(
        expr if fields == 5 else f"{second} {expr}",
        seconds,
        minutes,
        hours,
        months,
        day,
        minute[0] == "*" or hour[0] == "*",
    )


CHANGES = [
    ("Europe/Berlin", "2024-03-31T01:00"),
    ("Europe/Berlin", "2024-10-27T01:00"),
    ("America/New_York", "2024-03-10T07:00"),
    ("America/New_York", "2024-11-03T06:00"),
    ("Australia/Lord_Howe", "2024-10-05T15:30"),  # half an hour
    ("Australia/Lord_Howe", "2024-04-06T15:00"),
    ("America/St_Johns", "2010-03-14T03:31"),  # from 00:01
    ("America/St_Johns", "2010-11-07T02:31"),  # back over midnight
    ("Africa/Cairo", "2024-04-25T22:00"),  # from midnight
    ("America/Havana", "2024-11-03T05:00"),
    ("Pacific/Chatham", "2024-09-28T14:00"),  # from 02:45
    ("Asia/Pyongyang", "2018-05-04T15:00"),  # half an hour up to midnight
    ("Asia/Almaty", "2024-02-29T19:00"),  # the end of a leap day twice
    ("Antarctica/Troll", "2024-10-27T01:00"),  # two hours
    ("Pacific/Apia", "2011-12-30T10:00"),  # a day
    ("America/New_York", "2040-11-04T06:00"),  # after the tables end
    ("UTC", "2024-02-29T00:00"),
]


@lru_cache(maxsize=4)
def watch_clock(
    zone: str, change: str, hours: int, step: timedelta
) -> tuple[list[datetime], list[list[datetime]], list[datetime]]:
    """Instants around a change; the readings new at each, skipped ones included; the reading."""
    start, count = at(change) - timedelta(hours=hours), timedelta(hours=2 * hours) // step
    instants = [start + n * step for n in range(count)]
    shown = [instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for instant in instants]
    seen: set[datetime] = set()
    new: list[list[datetime]] = []
    for before, reading in zip([shown[0] - step, *shown], shown, strict=False):
        passed = [reading] if reading <= before else [*count_up(before + step, reading, step)]
        new.append([each for each in passed if each not in seen])
        seen.update(passed)
    return instants, new, shown


def count_up(first: datetime, last: datetime, step: timedelta) -> Iterator[datetime]:
    while first <= last:
        yield first
        first += step


def find_slowly(pattern: Pattern, zone: str, change: str, hours: int, step: timedelta) -> list[datetime]:
    instants, new, shown = watch_clock(zone, change, hours, step)
    if pattern.is_interval:
        return [i for i, reading in zip(instants, shown, strict=True) if pattern.matches(reading)]
    return [i for i, readings in zip(instants, new, strict=True) if any(map(pattern.matches, readings))]


def compare(pattern: Pattern, zone: str, change: str, hours: int, step: timedelta, asked: list[datetime]) -> None:
    """Ask at some instants, all well inside the time watched, and at the ticks around the change."""
    schedule, ticks = read(pattern.expr, zone), find_slowly(pattern, zone, change, hours, step)
    if schedule is None:
        assert not any(find_days(pattern, date(2000, 1, 1), 1, 28 * 366))
        return
    first, last = at(change) - timedelta(hours=hours), at(change) + timedelta(hours=hours)
    near = sorted(ticks, key=lambda tick: abs(tick - at(change)))[:6]
    for instant in [*asked, *near]:
        later, earlier = schedule.next_after(instant), schedule.previous(instant)
        expected = next((tick for tick in ticks if tick > instant), None)
        if expected is None:
            assert later is None or later >= last
        else:
            assert later == expected, (pattern.expr, zone, instant)
        expected = next((tick for tick in reversed(ticks) if tick < instant), None)
        if expected is None:
            assert earlier is None or earlier < first
        else:
            assert earlier == expected, (pattern.expr, zone, instant)


@settings(deadline=None, derandomize=True, max_examples=250)
@given(
    pattern=draw_pattern(5, any_day=True),
    place=st.sampled_from(CHANGES),
    minutes=st.lists(st.floats(-1700, 1700), min_size=3, max_size=3),
)
def test_five_fields_follow_a_slow_clock_through_changes(
    pattern: Pattern, place: tuple[str, str], minutes: list[float]
) -> None:
    zone, change = place
    asked = [at(change) + timedelta(minutes=n) for n in [-30, -1, 0, 1, 30, *minutes]]
    compare(pattern, zone, change, 30, timedelta(minutes=1), asked)


@settings(deadline=None, derandomize=True, max_examples=80)
@given(
    pattern=draw_pattern(6, any_day=True),
    place=st.sampled_from(CHANGES),
    seconds=st.lists(st.floats(-3600, 8000), min_size=3, max_size=3),
)
def test_six_fields_follow_a_slow_clock_through_changes(
    pattern: Pattern, place: tuple[str, str], seconds: list[float]
) -> None:
    zone, change = place
    asked = [at(change) + timedelta(seconds=n) for n in [-1, -0.5, 0, 0.5, 1, *seconds]]
    compare(pattern, zone, change, 3, timedelta(seconds=1), asked)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(pattern=draw_pattern(5, any_day=False), start=st.integers(0, 12_000))
def test_days_follow_a_slow_calendar(pattern: Pattern, start: int) -> None:
    day = date(2000, 1, 1) + timedelta(days=start)
    schedule = read(pattern.expr, "UTC")
    if schedule is None:
        assert not any(find_days(pattern, day, 1, 28 * 366))
        return
    hour, minute = min(pattern.hours), min(pattern.minutes)
    later = schedule.next_after(datetime(day.year, day.month, day.day, 23, 59, 59, tzinfo=UTC))
    expected = next(find_days(pattern, day, 1, 4000), None)
    if expected is not None:
        assert later == datetime(expected.year, expected.month, expected.day, hour, minute, tzinfo=UTC)
    earlier = schedule.previous(datetime(day.year, day.month, day.day, tzinfo=UTC))
    expected = next(find_days(pattern, day, -1, 4000), None)
    if expected is not None:
        assert earlier is not None
        assert earlier.date() == expected
        assert (earlier.hour, earlier.minute) == (max(pattern.hours), max(pattern.minutes))


def find_days(pattern: Pattern, day: date, step: int, count: int) -> Iterator[date]:
    for n in range(1, count):
        other = day + timedelta(days=n * step)
        if other.month in pattern.months and pattern.day(other):
            yield other
