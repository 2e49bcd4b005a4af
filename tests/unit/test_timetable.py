"""Ticks of a schedule within a window."""

from datetime import UTC, datetime, timedelta

from forgeflow.domain.catch_up import plan_ticks
from forgeflow.domain.schedule import Schedule
from forgeflow.domain.timetable import Timetable

HOURLY = Schedule("0 * * * *", "UTC")
MOMENT = timedelta(microseconds=1)


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 3, 1, hour, minute, tzinfo=UTC)


def test_ticks_begin_with_the_start_and_end_with_the_end() -> None:
    window = Timetable(HOURLY, at(8, 30), at(10, 30))
    assert window.between(at(0), at(23), 100) == [at(9), at(10)]
    assert window.next_after(at(0)) == at(9)
    assert window.next_after(at(9)) == at(10)
    assert window.next_after(at(10)) is None


def test_start_and_end_that_are_ticks_belong_to_the_window() -> None:
    window = Timetable(HOURLY, at(8), at(9))
    assert window.between(at(0), at(23), 100) == [at(8), at(9)]
    assert window.next_after(at(8) - MOMENT) == at(8)
    assert window.next_after(at(8)) == at(9)
    assert window.previous(at(23)) == at(9)


def test_window_without_a_tick_has_none() -> None:
    window = Timetable(HOURLY, at(8, 1), at(8, 59))
    assert window.between(at(0), at(23), 100) == []
    assert window.next_after(at(0)) is None
    assert window.previous(at(23)) is None


def test_previous_stays_within_the_window() -> None:
    window = Timetable(HOURLY, at(8, 30), at(10, 30))
    assert window.previous(at(23)) == at(10)
    assert window.previous(at(10)) == at(9)
    assert window.previous(at(9)) is None
    assert window.previous(at(8)) is None


def test_outage_that_reaches_over_the_end_owes_ticks_up_to_the_end() -> None:
    window = Timetable(HOURLY, None, at(10))
    plan = plan_ticks(window, at(8), at(20, 30), misfire_grace=60, catch_up="all", limit=10)
    assert plan.caught_up == (at(8), at(9), at(10))
    assert (plan.on_time, plan.next_at) == ((), None)
    assert plan_ticks(window, at(8), at(20, 30), misfire_grace=60, catch_up="skip", limit=10).missed == (at(8), at(10))
