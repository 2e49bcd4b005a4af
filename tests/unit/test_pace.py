"""How many runs a worker claims at once, and from where in the queue it looks."""

import pytest

from forgeflow.domain.pace import Pace
from forgeflow.store.runs import WHOLE_QUEUE
from forgeflow.worker.watermark import Watermark
from tests.support.scenario import claimed_run


def test_first_claim_is_for_one_run() -> None:
    assert Pace().size(100) == 1


def test_batch_of_which_none_was_begun_says_nothing() -> None:
    """A worker that stood still between its claim and its first run finds all of it handed back."""
    pace = Pace()
    pace.note(0.06, 0)
    assert pace.size(100) == 1
    pace.note(0.001, 10)
    pace.note(60.0, 0)
    assert pace.size(100) == 100


@pytest.mark.parametrize(
    ("seconds", "size"), [(0.0, 100), (0.0001, 100), (0.001, 40), (0.002, 20), (0.03, 1), (0.05, 1), (3600.0, 1)]
)
def test_quick_runs_are_claimed_by_as_many_as_fit_into_fifty_milliseconds(seconds: float, size: int) -> None:
    pace = Pace()
    pace.note(10 * seconds, 10)
    assert pace.size(100) == size


def test_one_slow_run_brings_the_size_back_to_one() -> None:
    pace = Pace()
    for _ in range(50):
        pace.note(0.01, 100)
    pace.note(0.1, 1)
    assert pace.size(100) == 1
    for _ in range(20):
        pace.note(0.0001, 1)
    assert pace.size(100) == 100


def test_size_is_never_more_than_the_configured_batch() -> None:
    pace = Pace()
    pace.note(0.0001, 10)
    assert [pace.size(at_most) for at_most in (1, 20, 500)] == [1, 20, 500]


def test_claim_after_a_full_one_looks_behind_what_was_claimed_run() -> None:
    mark, run = Watermark(), claimed_run()
    assert mark.bounds(10.0) == WHOLE_QUEUE
    mark.note([claimed_run(), run], 2)
    bounds = mark.bounds(10.1)
    assert not mark.is_whole
    assert (run.run_after.isoformat() in bounds.at, str(run.id) in bounds.id) == (True, True)


@pytest.mark.parametrize("brought", [0, 1])
def test_claim_after_a_short_one_looks_at_the_whole_queue(brought: int) -> None:
    mark = Watermark()
    mark.bounds(10.0)
    mark.note([claimed_run()], 1)
    mark.bounds(10.1)
    mark.note([claimed_run()] * brought, 2)
    assert mark.bounds(10.2) == WHOLE_QUEUE
    assert mark.is_whole


def test_every_half_second_a_claim_looks_at_the_whole_queue() -> None:
    mark = Watermark()
    looked = []
    for tenths in range(100, 112):
        mark.bounds(tenths / 10)
        mark.note([claimed_run()], 1)
        looked += [tenths] * mark.is_whole
    assert looked == [100, 105, 110]


def test_priorities_have_watermarks_of_their_own() -> None:
    mark, urgent, usual = Watermark(), claimed_run(priority=2), claimed_run(priority=5)
    mark.bounds(10.0)
    mark.note([urgent], 1)
    mark.bounds(10.1)
    mark.note([usual], 1)
    ids = mark.bounds(10.2).id.strip("{}").split(",")
    assert (ids[1], ids[4]) == (str(urgent.id), str(usual.id))
    assert WHOLE_QUEUE.id.startswith("{" + ids[0])
