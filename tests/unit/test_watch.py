"""The watch over batches: relief at the end of the window, once, then a look each second, and never after the end."""

import threading

import pytest

from forgeflow.domain.pace import WINDOW_SECONDS
from forgeflow.process.clock import boottime
from forgeflow.worker.watch import BatchWatch
from tests.support.waiting import wait_for

SHOW_SECONDS = 0.4


class Watched:
    def __init__(self) -> None:
        self.talk = threading.RLock()
        self.relieved_at: list[float] = []
        self.shown_at: list[float] = []
        self.watch = BatchWatch(self.talk, self._relieve, self._show, show_seconds=SHOW_SECONDS)
        self.is_refused = False

    def _relieve(self) -> bool:
        self.relieved_at.append(boottime())
        return not self.is_refused

    def _show(self) -> bool:
        self.shown_at.append(boottime())
        return True


def test_batch_is_relieved_once_at_the_end_of_its_window() -> None:
    watched = Watched()
    for number in range(1, 4):
        began = boottime()
        watched.watch.begin(is_alone=False)
        wait_for(lambda: len(watched.relieved_at) == number)  # noqa: B023
        assert watched.relieved_at[-1] >= began + WINDOW_SECONDS
        watched.watch.end()


def test_batch_that_ends_in_time_is_not_relieved() -> None:
    watched = Watched()
    for _ in range(1000):
        watched.watch.begin(is_alone=False)
        watched.watch.end()
    watched.watch.begin(is_alone=False)
    wait_for(lambda: watched.relieved_at)
    assert len(watched.relieved_at) == 1


def test_batch_that_ends_while_its_relief_waits_for_a_turn_is_left_alone() -> None:
    watched = Watched()
    with watched.talk:
        watched.watch.begin(is_alone=False)
        late = boottime() + 2 * WINDOW_SECONDS
        wait_for(lambda: boottime() > late)
        watched.watch.end()
    began = boottime()
    watched.watch.begin(is_alone=False)
    wait_for(lambda: watched.relieved_at)
    assert watched.relieved_at[0] >= began + WINDOW_SECONDS


def test_relief_that_was_refused_is_tried_again_until_the_batch_is_over() -> None:
    watched = Watched()
    watched.is_refused = True
    watched.watch.begin(is_alone=False)
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

    watch = BatchWatch(threading.RLock(), relieve, lambda: True)
    for number in (1, 2):
        watch.begin(is_alone=False)
        wait_for(lambda: len(relieved) == number)  # noqa: B023
        watch.end()


@pytest.mark.parametrize("is_alone", [False, True])
def test_what_goes_on_is_shown_again_and_again_after_its_first_second(is_alone: bool) -> None:
    watched = Watched()
    began = boottime()
    watched.watch.begin(is_alone=is_alone)
    wait_for(lambda: len(watched.shown_at) == 2)
    watched.watch.end()
    assert len(watched.relieved_at) == (0 if is_alone else 1)
    assert watched.shown_at[0] >= began + SHOW_SECONDS
    assert watched.shown_at[1] >= watched.shown_at[0] + SHOW_SECONDS


def test_batch_behind_a_single_run_is_relieved_at_the_end_of_its_own_window() -> None:
    watched = Watched()
    watched.watch.begin(is_alone=True)
    wait_for(lambda: watched.watch._wakes_at > boottime() + WINDOW_SECONDS, why="the thread sleeps for long")
    watched.watch.end()
    began = boottime()
    watched.watch.begin(is_alone=False)
    wait_for(lambda: watched.relieved_at)
    watched.watch.end()
    assert watched.relieved_at[0] < began + SHOW_SECONDS


class CountingCondition(threading.Condition):
    notified = 0

    def notify(self, n: int = 1) -> None:
        self.notified += 1
        super().notify(n)


def test_short_batches_wake_no_thread() -> None:
    watched = Watched()
    watched.watch._changed = condition = CountingCondition()
    watched.watch.begin(is_alone=True)
    wait_for(lambda: watched.watch._wakes_at > boottime(), why="the thread sleeps")
    for _ in range(100):
        watched.watch.end()
        watched.watch.begin(is_alone=True)
    assert condition.notified == 0
    watched.watch.end()
