"""What becomes of a tick while another run of its job is unfinished."""

from typing import get_args
from uuid import UUID

import pytest

from forgeflow.domain.overlap import Decision, Overlap, UnfinishedRun, decide_overlap

POLICIES = get_args(Overlap)


def run(number: int, kind: str) -> UnfinishedRun:
    """A run that is running, waiting for a worker (`pending`), or held; ids grow with their number."""
    return UnfinishedRun(UUID(int=number), is_running=kind == "running", is_held=kind == "held")


RUNNING, PENDING, HELD = run(3, "running"), run(2, "pending"), run(1, "held")


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_runs_when_nothing_is_unfinished(policy: Overlap) -> None:
    assert decide_overlap(policy, [], limit=1) == Decision()


@pytest.mark.parametrize("unfinished", [[RUNNING], [PENDING], [HELD], [RUNNING, PENDING, HELD] * 50])
def test_allow_runs_beside_the_others(unfinished: list[UnfinishedRun]) -> None:
    assert decide_overlap("allow", unfinished, limit=1) == Decision()


@pytest.mark.parametrize(
    ("unfinished", "first"),
    [
        ([PENDING], PENDING),
        ([HELD, PENDING], PENDING),
        ([HELD, PENDING, RUNNING], RUNNING),
        ([run(9, "running"), run(8, "running")], run(8, "running")),
    ],
)
def test_skip_names_the_run_that_is_in_the_way(unfinished: list[UnfinishedRun], first: UnfinishedRun) -> None:
    """The one that runs before those that wait, and of those the oldest."""
    for order in (unfinished, unfinished[::-1]):
        assert decide_overlap("skip", order, limit=10) == Decision(blocked_by=first.id)


def test_queue_holds_and_limits_how_many_wait() -> None:
    unfinished = [RUNNING]
    for number in range(10, 13):
        assert decide_overlap("queue", unfinished, limit=3) == Decision(is_held=True)
        unfinished.append(run(number, "held"))
    assert decide_overlap("queue", unfinished, limit=3) == Decision(blocked_by=RUNNING.id)
    assert decide_overlap("queue", unfinished, limit=4) == Decision(is_held=True)


def test_queue_waits_for_what_has_not_begun_too() -> None:
    assert decide_overlap("queue", [PENDING], limit=1) == Decision(is_held=True)


@pytest.mark.parametrize(
    ("unfinished", "is_held"),
    [([PENDING], False), ([HELD, PENDING], False), ([HELD, PENDING, RUNNING], True), ([RUNNING], True)],
)
def test_replace_ends_the_others_and_waits_for_running_ones(unfinished: list[UnfinishedRun], is_held: bool) -> None:
    assert decide_overlap("replace", unfinished, limit=1) == Decision(is_held=is_held, is_replacing=True)
