"""When another machine's clock counts as set."""

from hypothesis import given, settings
from hypothesis import strategies as st

from forgeflow.domain.clock import ClockWatch


def test_first_reading_is_no_step_and_the_next_ones_are_held_against_it() -> None:
    watch = ClockWatch(tolerance=1.0)
    assert watch.read(5000.0, asked_at=100.0, heard_at=100.1) is None
    assert watch.read(5005.0, asked_at=105.0, heard_at=105.1) == 0.0
    assert round(watch.read(5070.0, asked_at=110.0, heard_at=110.1) or 0) == 60
    assert watch.read(5075.0, asked_at=115.0, heard_at=115.1) == 0.0
    assert round(watch.read(1480.0, asked_at=120.0, heard_at=120.1) or 0) == -3600


@settings(derandomize=True)
@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10), st.floats(0, 1)), min_size=2), st.floats(-1e6, 1e6))
def test_slow_answers_are_never_a_step(waits: list[tuple[float, float, float]], offset: float) -> None:
    """However long an answer takes, and wherever between question and answer the clock was read."""
    watch, now = ClockWatch(tolerance=0.001), 0.0
    for pause, delay, share in waits:
        now += pause
        assert not watch.read(now + delay * share + offset, asked_at=now, heard_at=now + delay)
        now += delay
