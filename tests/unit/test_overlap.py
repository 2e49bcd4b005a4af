"""What becomes of a tick while another run of its job is unfinished."""

from typing import get_args
from uuid import UUID

import pytest

from forgeflow.domain.overlap import Decision, Overlap, Unfinished, add_run, decide_overlap

POLICIES = get_args(Overlap)
FIRST, NEW = UUID(int=1), UUID(int=2)
NOTHING = Unfinished()
PENDING, RUNNING = Unfinished(FIRST), Unfinished(FIRST, running=1)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_runs_when_nothing_is_unfinished(policy: Overlap) -> None:
    assert decide_overlap(policy, NOTHING, limit=1) == Decision()


@pytest.mark.parametrize("unfinished", [PENDING, RUNNING, Unfinished(FIRST, running=9, held=9)])
def test_allow_runs_beside_the_others(unfinished: Unfinished) -> None:
    assert decide_overlap("allow", unfinished, limit=1) == Decision()


@pytest.mark.parametrize("unfinished", [PENDING, RUNNING, Unfinished(FIRST, running=1, held=1)])
def test_skip_names_the_run_that_is_in_the_way(unfinished: Unfinished) -> None:
    assert decide_overlap("skip", unfinished, limit=10) == Decision(blocked_by=FIRST)


def test_queue_holds_and_limits_how_many_wait() -> None:
    unfinished = RUNNING
    for number in range(10, 13):
        decision = decide_overlap("queue", unfinished, limit=3)
        assert decision == Decision(is_held=True)
        unfinished = add_run(unfinished, UUID(int=number), decision)
    assert unfinished == Unfinished(FIRST, running=1, held=3)
    assert decide_overlap("queue", unfinished, limit=3) == Decision(blocked_by=FIRST)
    assert decide_overlap("queue", unfinished, limit=4) == Decision(is_held=True)


def test_queue_waits_for_what_has_not_begun_too() -> None:
    assert decide_overlap("queue", PENDING, limit=1) == Decision(is_held=True)


@pytest.mark.parametrize(
    ("unfinished", "is_held"), [(PENDING, False), (RUNNING, True), (Unfinished(FIRST, running=2, held=1), True)]
)
def test_replace_ends_the_others_and_waits_for_running_ones(unfinished: Unfinished, is_held: bool) -> None:
    assert decide_overlap("replace", unfinished, limit=1) == Decision(is_held=is_held, is_replacing=True)


def test_what_is_unfinished_keeps_up_with_what_is_decided() -> None:
    made = add_run(NOTHING, FIRST, Decision())
    assert made == PENDING
    assert add_run(made, NEW, Decision(is_replacing=True)) == Unfinished(NEW)
    waiting = add_run(Unfinished(FIRST, running=1, held=4), NEW, Decision(is_held=True, is_replacing=True))
    assert waiting == Unfinished(FIRST, running=1, held=1)
