"""Which ticks a due job owes; all instants are seconds from noon."""

from datetime import UTC, datetime, timedelta

import pytest

from forgeflow.domain.catch_up import CatchUp, TickPlan, plan_once, plan_ticks
from forgeflow.domain.schedule import Schedule
from forgeflow.domain.timetable import Timetable

NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
HOURLY = Schedule.parse("0 * * * *")
MINUTELY = Schedule.parse("* * * * *")
SECONDLY = Schedule.parse("* * * * * *")


def at(**offset: float) -> datetime:
    return NOON + timedelta(**offset)


def plan(
    schedule: Schedule,
    due: datetime,
    now: datetime,
    catch_up: CatchUp = "skip",
    *,
    limit: int = 10,
    grace: float = 60.0,
) -> TickPlan:
    return plan_ticks(Timetable(schedule), due, now, misfire_grace=grace, catch_up=catch_up, limit=limit)


def test_tick_on_time_runs() -> None:
    assert plan(HOURLY, NOON, at(seconds=0.2)) == TickPlan((), (NOON,), at(hours=1))


def test_tick_late_within_the_grace_simply_runs() -> None:
    assert plan(HOURLY, NOON, at(seconds=59)) == TickPlan((), (NOON,), at(hours=1))


def test_tick_later_than_the_grace_is_missed() -> None:
    assert plan(HOURLY, NOON, at(seconds=60)) == TickPlan((), (), at(hours=1), (NOON, NOON))


def test_once_runs_the_latest_missed_tick_and_tells_the_gap_before_it() -> None:
    planned = plan(HOURLY, NOON, at(hours=3, minutes=5), "once")
    assert planned == TickPlan((at(hours=3),), (), at(hours=4), (NOON, at(hours=2)))


def test_all_runs_every_missed_tick_oldest_first() -> None:
    planned = plan(HOURLY, NOON, at(hours=2, minutes=5), "all")
    assert planned == TickPlan((NOON, at(hours=1), at(hours=2)), (), at(hours=3))


def test_all_is_limited_to_the_most_recent_ones() -> None:
    planned = plan(HOURLY, NOON, at(hours=10, minutes=5), "all", limit=2)
    assert planned.caught_up == (at(hours=9), at(hours=10))
    assert planned.missed == (NOON, at(hours=8))


def test_missed_and_punctual_ticks_go_side_by_side() -> None:
    planned = plan(HOURLY, NOON, at(hours=2, seconds=5), "all")
    assert (planned.caught_up, planned.on_time) == ((NOON, at(hours=1)), (at(hours=2),))


@pytest.mark.parametrize("catch_up", ["skip", "once", "all"])
def test_outage_of_years_in_seconds_costs_no_walk(catch_up: CatchUp) -> None:
    planned = plan(SECONDLY, NOON, at(days=4000), catch_up)
    assert len(planned.caught_up) == {"skip": 0, "once": 1, "all": 10}[catch_up]
    assert planned.next_at == at(days=4000, seconds=1)
    assert planned.missed
    assert planned.missed[0] == NOON


def test_burst_of_seconds_owes_one_tick_older_than_fifteen_seconds() -> None:
    planned = plan(SECONDLY, NOON, at(seconds=40, milliseconds=500))
    assert planned.on_time == tuple(at(seconds=second) for second in range(25, 41))
    assert planned.coalesced == (NOON, at(seconds=24))
    assert planned.missed is None


def test_all_means_all_within_the_grace_too() -> None:
    """Older ticks that are caught up beside newer ones that are not would leave a hole in the middle."""
    planned = plan(SECONDLY, NOON, at(seconds=70), "all", limit=5)
    assert planned.caught_up == tuple(at(seconds=second) for second in range(6, 11))
    assert planned.on_time == tuple(at(seconds=second) for second in range(11, 71))
    assert planned.coalesced is None


def test_ticks_a_minute_apart_are_no_burst() -> None:
    planned = plan(MINUTELY, NOON, at(minutes=3, seconds=30), grace=600.0)
    assert planned.on_time == tuple(at(minutes=minute) for minute in range(4))


def test_tick_of_an_older_schedule_still_counts() -> None:
    odd = at(minutes=7)
    assert plan(HOURLY, odd, at(minutes=7, seconds=1)).on_time == (odd,)
    assert plan(HOURLY, odd, at(minutes=30), "once").caught_up == (odd,)


def test_run_at_runs_once_however_late() -> None:
    assert plan_once(NOON) == TickPlan((), (NOON,), None)
