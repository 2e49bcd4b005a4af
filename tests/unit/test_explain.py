"""Instants as a person asks for them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgeflow.domain.instant import read_moment

BERLIN = ZoneInfo("Europe/Berlin")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-07-01T09:00", "2026-07-01 09:00:00", "2026-07-01t09:00:00.000000"])
def test_reading_without_an_offset_is_read_on_the_clock_of_the_job(text: str) -> None:
    assert read_moment(text, BERLIN).at == utc("2026-07-01T07:00")
    assert read_moment(text, ZoneInfo("UTC")).at == utc("2026-07-01T09:00")


@pytest.mark.parametrize("text", ["2026-07-01T09:00:00Z", "2026-07-01 11:00+02:00", "2026-07-01T04:00:00-05:00"])
def test_time_with_an_offset_is_the_same_on_every_clock(text: str) -> None:
    for zone in (BERLIN, ZoneInfo("Asia/Kolkata")):
        assert read_moment(text, zone).at == utc("2026-07-01T09:00")


@pytest.mark.parametrize("text", ["2026-03-29T02:00", "2026-03-29T02:30", "2026-03-29T02:59:59.999999"])
def test_reading_in_a_gap_is_the_first_instant_after_it(text: str) -> None:
    assert read_moment(text, BERLIN).at == utc("2026-03-29T01:00")


def test_reading_that_comes_twice_is_its_first_pass() -> None:
    assert read_moment("2026-10-25T02:30", BERLIN).at == utc("2026-10-25T00:30")
    assert read_moment("2026-10-25T03:00", BERLIN).at == utc("2026-10-25T02:00")


def test_day_that_a_zone_skipped_ends_at_the_next() -> None:
    assert read_moment("2011-12-30T12:00", ZoneInfo("Pacific/Apia")).at == utc("2011-12-30T10:00")


@given(reading=st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)))  # noqa: DTZ001
def test_every_reading_is_an_instant_that_shows_it_or_follows_it(reading: datetime) -> None:
    instant = read_moment(reading.isoformat(), BERLIN).at
    shown = instant.astimezone(BERLIN).replace(tzinfo=None)
    assert shown == reading or timedelta() < shown - reading <= timedelta(hours=1)


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2026-07-01", "2026-07-01T9:00", "2026-07-01T09:00:00.", "2026-07-01T09:00 Z", "20260701T0900"),
        *("0000-01-01T00:00", "0001-01-01T00:00", "10000-01-01T00:00", "2026-02-30T00:00", "2026-07-01T09:60"),
        *("2026-07-01T09:00\n", "\u0662026-07-01T09:00", " 2026-07-01T09:00", "2026-07-01T09:00:00 02:00"),
    ],
)
def test_what_is_no_time_is_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a"):
        read_moment(text, BERLIN)


@pytest.mark.parametrize("value", [None, 5, 1.5, True, [], {}])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a time"):
        read_moment(value, BERLIN)
