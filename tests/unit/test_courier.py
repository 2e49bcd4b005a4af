"""In which order the courier obeys."""

from forgeflow.courier import _most_urgent_first


def test_beats_go_first_and_repeated_recoveries_once() -> None:
    recover = {"kind": "RECOVER", "child": 3, "run": None}
    other = {"kind": "RECOVER", "child": 4, "run": None}
    beat = {"kind": "BEAT", "children": [1]}
    assert _most_urgent_first([recover, other, dict(recover), beat]) == [beat, recover, other]


def test_no_timer_of_a_retry_is_lost_to_a_later_one() -> None:
    """The sooner one of two that came together once was, and its run waited for the next beat."""
    timers = [{"kind": "PEEK_IN", "seconds": 0.1}, {"kind": "PEEK_IN", "seconds": 600.0}]
    assert _most_urgent_first(timers) == timers
