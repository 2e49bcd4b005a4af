"""What a worker has in hand: every run is begun once, reported once or handed back."""

import threading
from uuid import UUID

from forgeflow.domain.run import Ending
from forgeflow.worker.hand import Hand
from tests.support.scenario import claimed_run


def test_begun_run_is_no_longer_handed_back() -> None:
    hand, runs = Hand(), [claimed_run() for _ in range(3)]
    hand.take(runs)
    assert hand.begin() == runs[0]
    hand.hand_back()
    assert {(ending.run_id, ending.is_begun) for ending in hand.endings()} == {(run.id, False) for run in runs[1:]}


def test_first_of_what_waits_is_kept_longest() -> None:
    hand, runs = Hand(), [claimed_run() for _ in range(5)]
    hand.take(runs)
    hand.hand_back(keep=2)
    assert hand.waiting() == runs[:2]
    assert {ending.run_id for ending in hand.endings()} == {run.id for run in runs[2:]}


def test_what_is_handed_back_is_never_begun() -> None:
    """Two threads at it: each run is the one's or the other's."""
    for _ in range(200):
        hand, runs = Hand(), [claimed_run() for _ in range(20)]
        hand.take(runs)
        begun: list[UUID] = []

        def execute(hand: Hand = hand, begun: list[UUID] = begun) -> None:
            while run := hand.begin():
                begun.append(run.id)

        thread = threading.Thread(target=execute)
        thread.start()
        hand.hand_back()
        thread.join()
        handed_back = [ending.run_id for ending in hand.endings()]
        assert begun + handed_back[::-1] == [run.id for run in runs]


def test_ending_that_comes_during_a_report_is_kept_for_the_next() -> None:
    hand, first, second = Hand(), claimed_run(), claimed_run()
    hand.end(Ending(first.id, 1))
    reported = hand.endings()
    hand.end(Ending(second.id, 1))
    hand.forget(reported)
    assert hand.endings() == [Ending(second.id, 1)]
