"""The next fires of a schedule, with notes and warnings."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgeflow.domain.preview import MAX_COUNT, Preview, preview
from forgeflow.domain.schedule import Schedule
from forgeflow.errors import CronError, InvalidInput
from tests.unit.test_schedule import CHANGES, Pattern, at, draw_pattern

LAST = datetime.max.replace(tzinfo=UTC)
SPRING = "clocks go forward on 2027-03-28 from 02:00 to 03:00"
AUTUMN = "clocks go back on 2026-10-25 from 03:00 to 02:00"


def look(expr: str, zone: str, after: str, count: int) -> Preview:
    return preview(Schedule.parse(expr, zone), at(after), count)


def lines(seen: Preview) -> list[str]:
    return [": ".join([f"{fire.local:%m-%d %H:%M} {fire.offset}", *fire.notes]) for fire in seen.fires]


def warnings(expr: str, zone: str = "UTC", after: str = "2026-01-01") -> list[str]:
    return list(look(expr, zone, after, 1).warnings)


# -- Fires -----------------------------------------------------------------------------------------


def test_fires_have_their_local_reading_their_offset_and_utc() -> None:
    seen = look("0 9 * * MON-FRI", "America/St_Johns", "2026-07-01T12:00", 2)
    assert [fire.at for fire in seen.fires] == [at("2026-07-02T11:30"), at("2026-07-03T11:30")]
    assert seen.fires[0].local.isoformat() == "2026-07-02T09:00:00-02:30"
    assert [fire.offset for fire in seen.fires] == ["-02:30", "-02:30"]
    assert seen.description == "At 09:00, Monday through Friday"
    assert seen.schedule == Schedule("0 9 * * MON-FRI", "America/St_Johns")


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    pattern=st.one_of(draw_pattern(5, any_day=True), draw_pattern(6, any_day=True), draw_pattern(5, any_day=False)),
    place=st.sampled_from(CHANGES),
    minutes=st.floats(-3000, 3000),
    years=st.integers(0, 60),
    count=st.integers(1, 30),
)
def test_fires_are_those_of_the_schedule(
    pattern: Pattern, place: tuple[str, str], minutes: float, years: int, count: int
) -> None:
    zone, change = place
    try:
        schedule = Schedule.parse(pattern.expr, zone)
    except CronError:  # never ticks
        return
    after = at(change) + timedelta(days=years * 365.2425, minutes=minutes)
    seen = preview(schedule, after, count)
    assert [fire.at for fire in seen.fires] == schedule.between(after, LAST, count)
    assert all(fire.local.isoformat()[19:] == fire.offset for fire in seen.fires)
    assert all(fire.local == fire.at and fire.at.tzinfo is UTC for fire in seen.fires)
    notes = [note for fire in seen.fires for note in fire.notes]
    assert all(note.startswith("clocks go ") for note in notes)
    assert all(len(text) < 160 and text.isprintable() for text in [*notes, *seen.warnings])


@pytest.mark.parametrize("count", [0, -1, MAX_COUNT + 1])
def test_count_out_of_range_is_refused(count: int) -> None:
    with pytest.raises(InvalidInput, match="from 1 to 100"):
        preview(Schedule.parse("@daily"), at("2026-01-01"), count)


def test_a_naive_instant_is_refused() -> None:
    with pytest.raises(ValueError, match="naive"):
        preview(Schedule.parse("@daily"), datetime(2026, 1, 1), 1)  # noqa: DTZ001


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_a_schedule_that_ends_has_fewer_fires(zone: str) -> None:
    schedule = Schedule.parse("30 2 * * *", zone)
    assert len(preview(schedule, at("9999-12-25"), 100).fires) in (6, 7)
    assert preview(schedule, LAST, 100).fires == ()
    assert len(preview(schedule, datetime.min.replace(tzinfo=UTC), 100).fires) == 100


# -- Notes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expr", "zone", "after", "fires"),
    [
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2027-03-27T12:00",
            [f"03-28 03:00 +02:00: {SPRING}: 02:30 runs at 03:00", "03-29 02:30 +02:00"],
        ),
        (
            "0,30 2 * * *",
            "Europe/Berlin",
            "2027-03-27T12:00",
            [f"03-28 03:00 +02:00: {SPRING}: 02:00 to 02:30 run once, at 03:00", "03-29 02:00 +02:00"],
        ),
        (
            "0 9 * * *",
            "Europe/Berlin",
            "2027-03-27T12:00",
            [f"03-28 09:00 +02:00: {SPRING}", "03-29 09:00 +02:00"],
        ),
        (
            "*/15 2 * * *",
            "Europe/Berlin",
            "2027-03-27T12:00",
            [f"03-29 02:00 +02:00: {SPRING}: 02:00 to 02:45 run at no time", "03-29 02:15 +02:00"],
        ),
        (
            "0 9 * * MON",
            "Europe/Berlin",
            "2027-03-21T12:00",
            ["03-22 09:00 +01:00", f"03-29 09:00 +02:00: {SPRING}"],
        ),
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00",
            [f"10-25 02:30 +02:00: {AUTUMN}: runs once, in the first pass", "10-26 02:30 +01:00"],
        ),
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-10-25T00:00",
            [f"10-25 02:30 +02:00: {AUTUMN}: runs in both passes", "10-25 02:30 +01:00", "10-25 03:30 +01:00"],
        ),
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-10-25T00:45",
            [f"10-25 02:30 +01:00: {AUTUMN}: this is the second pass", "10-25 03:30 +01:00"],
        ),
        ("0 9 * * *", "Europe/Berlin", "2026-10-24T12:00", [f"10-25 09:00 +01:00: {AUTUMN}"]),
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T00:00",
            [
                "04-05 01:45 +11:00: clocks go back on 2026-04-05 from 02:00 to 01:30: runs once, in the first pass",
                "04-06 01:45 +10:30",
            ],
        ),
        (
            "30 23 * * *",
            "America/St_Johns",
            "2010-11-06T12:00",
            [
                "11-06 23:30 -02:30: clocks go back on 2010-11-07 from 00:01 to 2010-11-06 23:01:"
                " runs once, in the first pass"
            ],
        ),
        (
            "0 12 * * *",
            "Pacific/Apia",
            "2011-12-29T22:00",
            [
                "12-31 00:00 +14:00: clocks go forward on 2011-12-30 from 00:00 to 2011-12-31 00:00:"
                " 12:00 runs at 2011-12-31 00:00"
            ],
        ),
    ],
)
def test_a_note_says_what_a_change_of_offset_does(expr: str, zone: str, after: str, fires: list[str]) -> None:
    assert lines(look(expr, zone, after, len(fires))) == fires


@pytest.mark.parametrize("expr", ["*/10 * * * *", "30 2 * * *", "0 9 * * MON", "* * * * *", "0 0 1 * *"])
def test_a_change_is_told_once(expr: str) -> None:
    notes = [note for fire in look(expr, "Europe/Berlin", "2026-10-24T23:30", 100).fires for note in fire.notes]
    assert len([note for note in notes if "2026-10-25" in note]) == 1
    assert len(set(notes)) == len(notes)


@pytest.mark.parametrize(
    ("expr", "zone", "after"),
    [
        ("30 2 * * *", "UTC", "2026-10-24"),
        ("0 9 1 1 *", "Europe/Berlin", "2026-01-01"),  # twice a year there and back again
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:30"),  # it is over
        ("30 2 * * *", "Asia/Kolkata", "2026-10-24"),
    ],
)
def test_no_change_no_note(expr: str, zone: str, after: str) -> None:
    assert [fire.notes for fire in look(expr, zone, after, 20).fires] == [()] * 20


# -- Warnings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("days", "told"),
    [
        ("31 * *", ["there is no day 31 in February, April, June, September and November"]),
        ("30 * *", ["there is no day 30 in February"]),
        ("29 2 *", ["there is no day 29 in February but for leap years"]),
        ("15,30 * *", ["there is no day 30 in February"]),
        ("30,31 2,4 *", ["there is no day 30 in February", "there is no day 31 in February and April"]),
        ("29-31 4 *", ["there is no day 31 in April"]),
        ("31 1,3 *", []),
        ("28 * *", []),
        ("15-31 * *", []),  # the second half
        ("28-31 * *", []),  # the end of the month
        ("*/2 * *", []),
        ("L * *", []),
        ("LW * *", []),
    ],
)
def test_days_that_some_months_lack_are_warned_of(days: str, told: list[str]) -> None:
    assert warnings(f"0 0 {days}") == [f"{each}; L is the last day of any month" for each in told]


@pytest.mark.parametrize(
    ("days", "told"),
    [
        ("13 * FRI", "either one is enough"),
        ("L * MON", "either one is enough"),
        ("1-31 * MON", "either one is enough, and one of them is every day"),
        ("13 * 0-6", "either one is enough, and one of them is every day"),
        ("*/31,1-7 * 2", None),
        ("13 * *", None),
        ("* * FRI", None),
    ],
)
def test_two_restricted_day_fields_are_warned_of(days: str, told: str | None) -> None:
    expected = [f"both day fields are restricted: {told}; if one begins with *, both must match"] if told else []
    assert warnings(f"0 0 {days}") == expected


@pytest.mark.parametrize(
    ("expr", "in_autumn", "in_spring"),
    [
        ("30 2 * * *", "02:30 runs once, in the first pass", "02:30 runs at 03:00"),
        ("0,30 2 * * *", "02:00 to 02:30 run once, in the first pass", "02:00 to 02:30 run once, at 03:00"),
        ("*/15 2 * * *", "02:00 to 02:45 run in both passes", "02:00 to 02:45 run at no time"),
        ("30 1-3 * * *", "02:30 runs once, in the first pass", "02:30 runs at 03:00"),
        ("15 30 2 * * *", "02:30:15 runs once, in the first pass", "02:30:15 runs at 03:00"),
        ("30 2 * * SUN", "02:30 runs once, in the first pass", "02:30 runs at 03:00"),
        ("30 2 28 3 *", None, "02:30 runs at 03:00"),
    ],
)
def test_clock_changes_within_two_years_are_warned_of(expr: str, in_autumn: str | None, in_spring: str) -> None:
    told = [f"{AUTUMN}: {in_autumn}"] if in_autumn else []
    assert warnings(expr, "Europe/Berlin", "2026-06-01") == [*told, f"{SPRING}: {in_spring}"]


@pytest.mark.parametrize(
    ("expr", "zone"),
    [
        ("30 3 * * *", "Europe/Berlin"),
        ("30 2 * * MON", "Europe/Berlin"),
        ("30 2 1 * *", "Europe/Berlin"),
        ("30 2 * * *", "Asia/Tokyo"),
        ("30 * * * *", "Europe/Berlin"),
        ("30 */2 * * *", "Europe/Berlin"),
        ("30 2 31 3 *", "Europe/Berlin"),  # not before 2030
    ],
)
def test_clock_changes_that_move_nothing_are_not_warned_of(expr: str, zone: str) -> None:
    assert warnings(expr, zone, "2026-06-01") == []


@pytest.mark.parametrize(
    ("expr", "times"),
    [("* * * * * *", 60), ("*/10 * * * * *", 6), ("0,30 0 12 * * *", 2), ("30 * * * * *", None), ("* * * * *", None)],
)
def test_more_than_one_a_minute_is_warned_of(expr: str, times: int | None) -> None:
    assert warnings(expr) == ([f"runs up to {times} times a minute"] if times else [])


@pytest.mark.parametrize("expr", ["@daily", "0 9 * * MON-FRI", "*/5 * * * *", "0 0 1 * *", "0 0 L * *"])
def test_an_ordinary_schedule_has_no_warnings(expr: str) -> None:
    assert warnings(expr, "America/New_York") == []


# -- Work ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expr", "count", "most_seconds"),
    [
        ("0 9 * * MON-FRI", 10, 0.01),
        ("30 2 * * *", 10, 0.01),
        ("*/5 * * * *", 10, 0.01),
        ("* * * * * *", 100, 0.05),
        ("0 0 29 2 */7", 100, 0.5),  # 3,000 years
        ("30 2 28 3 *", 100, 0.5),
    ],
)
def test_a_preview_is_made_soon(expr: str, count: int, most_seconds: float) -> None:
    schedule, spent = Schedule.parse(expr, "Europe/Berlin"), []
    for _ in range(5):
        began = time.process_time()
        preview(schedule, at("2026-06-01"), count)
        spent.append(time.process_time() - began)
    assert min(spent) < most_seconds
