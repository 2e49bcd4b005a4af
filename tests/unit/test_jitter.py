"""The delay of a run by a hash of its job and its tick."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgeflow.domain.jitter import jitter_delay

JOB = UUID("0197a2b4-5c6d-7e8f-9a0b-1c2d3e4f5a6b")
TICK = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
INSTANTS = st.datetimes(timezones=st.just(UTC))
JITTERS = st.floats(min_value=0, max_value=86_400)


@given(job=st.uuids(), tick=INSTANTS, jitter=JITTERS)
def test_delay_lies_between_nothing_and_the_jitter(job: UUID, tick: datetime, jitter: float) -> None:
    assert timedelta() <= jitter_delay(job, tick, jitter) <= timedelta(seconds=jitter)


@pytest.mark.parametrize("tick", [datetime.min, datetime.max])  # noqa: DTZ901
def test_ticks_at_the_ends_of_the_calendar_have_a_delay(tick: datetime) -> None:
    assert jitter_delay(JOB, tick.replace(tzinfo=UTC), 60) < timedelta(seconds=60)


def test_delay_is_the_same_for_the_same_tick_everywhere() -> None:
    """In another process, whose hash of strings is seeded otherwise, and whatever the zone of the instant."""
    told = jitter_delay(JOB, TICK, 30.0)
    assert told == timedelta(microseconds=12_226_399)
    assert jitter_delay(JOB, TICK.astimezone(timezone(timedelta(hours=5, minutes=30))), 30.0) == told
    script = (
        "from datetime import datetime; from uuid import UUID; from forgeflow.domain.jitter import jitter_delay; "
        f"print(jitter_delay(UUID('{JOB}'), datetime.fromisoformat('{TICK.isoformat()}'), 30.0))"
    )
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert other.stdout.strip() == str(told)


def test_delays_are_spread() -> None:
    """Over the ticks of one job, and over the jobs of one tick: a tenth of them falls into each tenth."""
    count = 2000
    by_tick = [jitter_delay(JOB, TICK + timedelta(minutes=number), 1000.0) for number in range(count)]
    by_job = [jitter_delay(UUID(int=JOB.int + number), TICK, 1000.0) for number in range(count)]
    for delays in (by_tick, by_job):
        tenths = [int(delay / timedelta(seconds=100)) for delay in delays]
        assert min(tenths.count(tenth) for tenth in range(10)) > count * 0.07
