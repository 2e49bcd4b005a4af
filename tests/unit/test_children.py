"""The master's bookkeeping, without forking."""

from uuid import uuid4

import pytest

from forgeflow.config import load_config
from forgeflow.domain.node import Node
from forgeflow.master.children import Backoff, Child, Children, End, Generation, Role, Step, bury, ladder_step
from forgeflow.process.link import Link
from forgeflow.process.page import SharedPage


def generation(number: int, url: str = "") -> Generation:
    config = load_config(environ={}, overrides={"database.url": url})
    return Generation(number, config, Node(uuid4(), "node", "host", "machine", 1, ("scheduler", "worker"), 4, "0"))


def worker(number: int, **state: object) -> Child:
    child = Child(100 + number, number, Role.WORKER, generation(1), Link.pair()[0], 0.0)
    for name, value in state.items():
        setattr(child, name, value)
    return child


def test_backoff_doubles_with_jitter_until_its_limit() -> None:
    backoff = Backoff()
    pauses = []
    for number in range(12):
        now = 1000.0 + 100 * number
        backoff.note_death(now, was_fit=False, jitter=1.0)
        pauses.append(backoff.not_before - now)
    assert pauses[:4] == [0.25, 0.5, 1.0, 2.0]
    assert pauses[-1] == 30.0
    backoff = Backoff()
    backoff.note_death(1000.0, was_fit=False, jitter=0.0)
    assert backoff.not_before == 1000.125


def test_pause_may_have_a_limit_of_its_own() -> None:
    """Lost connections: a database that comes and goes must be found soon when it is back to stay."""
    backoff = Backoff()
    for number in range(12):
        backoff.note_death(1000.0 + 100 * number, was_fit=False, jitter=1.0, longest=5.0)
    assert backoff.not_before == 2100.0 + 5.0


def test_death_of_a_fit_child_costs_no_pause() -> None:
    backoff = Backoff()
    backoff.note_death(1000.0, was_fit=False, jitter=1.0)
    backoff.note_death(2000.0, was_fit=True, jitter=1.0)
    assert backoff.not_before < 2000.0


def test_children_that_died_together_count_as_one_death() -> None:
    """Eight workers whose sessions were ended at once must not wait as after eight failures in a row."""
    backoff = Backoff()
    for _ in range(8):
        backoff.note_death(1000.0, was_fit=False, jitter=1.0)
    assert (backoff.deaths, backoff.not_before) == (1, 1000.25)


def test_crash_loop_forks_at_most_a_dozen_times_in_its_first_minute() -> None:
    backoff, now, forks = Backoff(), 0.0, 0
    while now < 60.0:
        forks += 1
        backoff.note_death(now, was_fit=False, jitter=0.0)
        now = max(now, backoff.not_before)
    assert forks <= 12


def test_most_recently_idle_worker_is_woken_first() -> None:
    children = Children()
    for number, idle_since in ((1, 5.0), (2, None), (3, 9.0)):
        child = worker(number, idle_since=idle_since)
        children.by_pid[child.pid] = child
    assert [child.number for child in children.idle_workers()] == [3, 1]


def test_leases_are_renewed_by_a_courier_of_the_same_database() -> None:
    """By that of its own generation, if there is one; never by one of another database, where those leases are not."""
    children = Children()
    first, second, third = generation(1), generation(2), generation(3, url="postgresql:///other")
    workers = [
        worker(1, is_ready=True, generation=first),
        worker(2, is_ready=False, generation=first),
        worker(3, is_ready=True, generation=second),
        worker(4, is_ready=True, generation=third),
    ]
    old = worker(11, is_ready=True, generation=first, role=Role.COURIER)
    new = worker(12, is_ready=True, generation=second, role=Role.COURIER)
    for child in (*workers, old, new):
        children.by_pid[child.pid] = child
    assert (children.of_courier(old), children.of_courier(new)) == ([1], [3])
    del children.by_pid[old.pid]
    assert children.of_courier(new) == [1, 3]
    assert [each.number for each in children.generations()] == [1, 2, 3]


@pytest.mark.parametrize(
    ("end", "code", "is_executing", "charged", "error_type"),
    [
        (None, -9, True, True, "crashed"),
        (None, 1, True, True, "crashed"),
        (End.WEDGED, -9, True, True, "wedged"),
        (End.WEDGED, -9, False, False, "interrupted"),
        (End.STOPPING, -9, True, False, "interrupted"),
        (End.FENCED, -9, True, False, "interrupted"),
        (End.DISPOSSESSED, -9, True, False, "interrupted"),
        (None, 75, False, False, "interrupted"),
        (None, 75, True, True, "crashed"),
    ],
)
def test_only_a_crash_or_a_wedge_is_charged_to_the_run(
    end: End | None, code: int, is_executing: bool, charged: bool, error_type: str
) -> None:
    child = worker(7, end=end, batch=3, runs_in_hand=[["other", 2, False], ["run", 1, False]])
    child.page = SharedPage(1)
    child.page.set_begun(0, 3, 2, is_executing=is_executing)
    dead = bury(child, code)
    assert (dead.number, dead.run, dead.attempt, dead.charged, dead.error_type) == (7, "run", 1, charged, error_type)


@pytest.mark.parametrize(("batch", "place"), [(0, 0), (3, 0), (2, 1), (3, 2)])
def test_worker_that_has_begun_nothing_of_its_batch_is_charged_for_nothing(batch: int, place: int) -> None:
    child = worker(7, batch=3, runs_in_hand=[["run", 1, False]])
    child.page = SharedPage(1)
    child.page.set_begun(0, batch, place, is_executing=True)
    assert bury(child, -9).run is None


def test_overrun_child_is_aborted_then_killed_whoever_missed_a_turn() -> None:
    assert [ladder_step(seconds) for seconds in (0.0, 1.9, 2.0, 500.0)] == [
        Step.ABORT,
        Step.ABORT,
        Step.KILL,
        Step.KILL,
    ]


def test_new_worker_takes_the_lowest_free_slot() -> None:
    children = Children()
    for number, slot in ((1, 0), (2, 1), (3, 2)):
        child = worker(number, slot=slot)
        children.by_pid[child.pid] = child
    assert children.free_slot() == 3
    del children.by_pid[102]
    assert children.free_slot() == 1
