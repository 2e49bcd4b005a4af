"""What a worker has in hand: every run is begun once, reported once or handed back."""

import threading
from datetime import UTC, datetime
from uuid import UUID, uuid4

from forgeflow.domain.run import Ending
from forgeflow.store.runs import ClaimedRun
from forgeflow.worker.hand import Hand


def claimed(count: int) -> list[ClaimedRun]:
    now = datetime.now(UTC)
    return [
        ClaimedRun(*(uuid4(), uuid4(), "job", "shell", {}, 60.0, "UTC", "kill"), *(1, 0, 3), *(now, False, 5, now))
        for _ in range(count)
    ]


def test_begun_run_is_no_longer_handed_back() -> None:
    hand, runs = Hand(), claimed(3)
    hand.take(runs)
    assert hand.begin() == runs[0]
    hand.hand_back()
    assert [(ending.run_id, ending.is_begun) for ending in hand.endings()] == [(run.id, False) for run in runs[1:]]


def test_what_is_handed_back_is_never_begun() -> None:
    """Two threads at it: each run is the one's or the other's."""
    for _ in range(200):
        hand, runs = Hand(), claimed(20)
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
        assert begun + handed_back == [run.id for run in runs]


def test_ending_that_comes_during_a_report_is_kept_for_the_next() -> None:
    hand, (first, second) = Hand(), claimed(2)
    hand.end(Ending(first.id, 1))
    reported = hand.endings()
    hand.end(Ending(second.id, 1))
    hand.forget(reported)
    assert hand.endings() == [Ending(second.id, 1)]
