"""The watch over batches: relief at the end of the window, once, and never of a batch that is over."""

import threading

from forgeflow.domain.pace import WINDOW_SECONDS
from forgeflow.process.clock import boottime
from forgeflow.worker.watch import BatchWatch
from tests.support.waiting import wait_for


class Watched:
    def __init__(self) -> None:
        self.talk = threading.RLock()
        self.relieved_at: list[float] = []
        self.watch = BatchWatch(self.talk, self._relieve)
        self.is_refused = False

    def _relieve(self) -> bool:
        self.relieved_at.append(boottime())
        return not self.is_refused


def test_batch_is_relieved_once_at_the_end_of_its_window() -> None:
    watched = Watched()
    for number in range(1, 4):
        began = boottime()
        watched.watch.begin()
        wait_for(lambda: len(watched.relieved_at) == number)  # noqa: B023
        assert watched.relieved_at[-1] >= began + WINDOW_SECONDS
        watched.watch.end()


def test_batch_that_ends_in_time_is_not_relieved() -> None:
    watched = Watched()
    for _ in range(1000):
        watched.watch.begin()
        watched.watch.end()
    watched.watch.begin()
    wait_for(lambda: watched.relieved_at)
    assert len(watched.relieved_at) == 1


def test_batch_that_ends_while_its_relief_waits_for_a_turn_is_left_alone() -> None:
    watched = Watched()
    with watched.talk:
        watched.watch.begin()
        late = boottime() + 2 * WINDOW_SECONDS
        wait_for(lambda: boottime() > late)
        watched.watch.end()
    began = boottime()
    watched.watch.begin()
    wait_for(lambda: watched.relieved_at)
    assert watched.relieved_at[0] >= began + WINDOW_SECONDS


def test_relief_that_was_refused_is_tried_again_until_the_batch_is_over() -> None:
    watched = Watched()
    watched.is_refused = True
    watched.watch.begin()
    wait_for(lambda: len(watched.relieved_at) == 3)
    watched.is_refused = False
    wait_for(lambda: len(watched.relieved_at) == 4)
    watched.watch.end()


def test_bug_in_one_relief_leaves_the_next_batch_its_watch() -> None:
    relieved: list[bool] = []

    def relieve() -> bool:
        relieved.append(True)
        if len(relieved) == 1:
            raise ValueError("a bug")
        return True

    watch = BatchWatch(threading.RLock(), relieve)
    for number in (1, 2):
        watch.begin()
        wait_for(lambda: len(relieved) == number)  # noqa: B023
        watch.end()
