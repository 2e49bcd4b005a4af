"""What the master decides from what its children say, without forking one."""

import errno
from uuid import uuid4

import pytest

from forgeflow.config import load_config
from forgeflow.domain.node import Node
from forgeflow.master import loop, nursery
from forgeflow.master.children import Child, End, Role
from forgeflow.master.loop import Master
from forgeflow.process.clock import boottime
from forgeflow.process.fork import open_descriptors
from forgeflow.process.link import Link


class Scene:
    """A master whose children are the other ends of links; nothing is killed, only noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        node = Node(uuid4(), "node", "host", "machine", 1, ("scheduler", "worker"), 4, "0")
        config = load_config(environ={})
        self.master = Master(config, node, lambda: config)
        self.killed: list[int] = []
        monkeypatch.setattr(loop, "kill_child", self.killed.append)
        self.courier = self.add(Role.COURIER, 1)

    def add(self, role: Role, number: int, **state: object) -> Link:
        ours, theirs = Link.pair()
        generation = self.master._nursery.generation
        child = Child(9_000_000 + number, number, role, generation, ours, boottime(), slot=number % 4, is_ready=True)
        child.page = self.master._nursery.page
        child.page.set_begun(child.slot, 1, 1, is_executing=bool(state.pop("is_executing", False)))
        for name, value in state.items():
            setattr(child, name, value)
        self.master._children.by_pid[child.pid] = child
        return theirs

    def hear(self, number: int, kind: str, **data: object) -> None:
        child = self.master._children.by_pid[9_000_000 + number]
        self.master._hear(child, {"kind": kind, **data})

    def child(self, number: int) -> Child:
        return self.master._children.by_pid[9_000_000 + number]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def kinds(link: Link) -> list[str]:
    return [message["kind"] for message in link.receive()]


def test_announcement_between_an_empty_claim_and_idle_is_not_lost(scene: Scene) -> None:
    worker = scene.add(Role.WORKER, 2)
    asked_at = boottime()
    scene.hear(1, "NOTIFIED")
    scene.hear(2, "IDLE", since=asked_at, budget=45.0)
    assert kinds(worker) == ["WAKE"]
    assert scene.child(2).idle_since is None


def test_worker_that_asked_after_the_announcement_sleeps(scene: Scene) -> None:
    worker = scene.add(Role.WORKER, 2)
    scene.hear(1, "NOTIFIED")
    scene.hear(2, "IDLE", since=boottime(), budget=45.0)
    assert kinds(worker) == []


def test_as_many_idle_workers_are_woken_as_there_are_due_runs(scene: Scene) -> None:
    workers = [scene.add(Role.WORKER, number, idle_since=float(number)) for number in (2, 3, 4)]
    scene.hear(1, "DUE", due=2, cancels=[])
    assert [kinds(worker) for worker in workers] == [[], ["WAKE"], ["WAKE"]]


def test_announcement_wakes_one_worker_at_once_and_asks_for_the_rest(scene: Scene) -> None:
    workers = [scene.add(Role.WORKER, number, idle_since=float(number)) for number in (2, 3)]
    scene.hear(1, "NOTIFIED")
    scene.hear(1, "NOTIFIED")
    assert sorted(kinds(worker) for worker in workers) == [["WAKE"], ["WAKE"]]
    assert kinds(scene.courier) == ["PEEK"]


def test_worker_whose_lease_was_not_renewed_is_killed_and_the_others_are_not(scene: Scene) -> None:
    for number in (2, 3):
        scene.add(Role.WORKER, number)
    sent_at = boottime()
    scene.hear(1, "BEATEN", asked=[2, 3], renewed=[3], sent_at=sent_at)
    assert scene.killed == [9_000_002]
    assert scene.child(2).end is End.DISPOSSESSED
    assert scene.child(3).lease_end == sent_at + 30.0
    assert scene.master._nursery.page.lease_end(3) == pytest.approx(sent_at + 30.0)


def test_job_that_may_continue_keeps_its_worker_until_it_ends(scene: Scene) -> None:
    scene.add(Role.WORKER, 2)
    scene.hear(2, "BATCH", batch=1, runs=[["q", 1, False], ["r", 1, True]], fresh=2, budget=300.0)
    scene.master._nursery.page.set_begun(2, 1, 2, is_executing=True)
    scene.hear(1, "BEATEN", asked=[2], renewed=[], sent_at=boottime())
    assert scene.killed == []
    scene.master._nursery.page.set_begun(2, 1, 2, is_executing=False)
    scene.hear(1, "BEATEN", asked=[2], renewed=[], sent_at=boottime())
    assert scene.killed == [9_000_002]


def test_child_is_not_judged_before_its_last_word_is_read(scene: Scene) -> None:
    """A master that slept and is woken by a signal has not read its links: a new budget waits there."""
    passed = boottime() - 60
    worker = scene.add(Role.WORKER, 2, lease_end=passed, budget_end=passed)
    worker.send("ENDED", budget=30.0)
    scene.master._keep_time()
    assert (scene.child(2).end, scene.killed) == (None, [])


def test_lease_is_not_judged_before_the_courier_is_heard(scene: Scene) -> None:
    scene.add(Role.WORKER, 2, is_executing=True, lease_end=boottime() - 60, budget_end=boottime() + 60)
    scene.courier.send("BEATEN", asked=[2], renewed=[2], sent_at=boottime())
    scene.master._keep_time()
    assert scene.killed == []


def test_cancel_reaches_the_worker_that_has_the_run(scene: Scene) -> None:
    worker, other = scene.add(Role.WORKER, 2), scene.add(Role.WORKER, 3)
    scene.hear(
        1, "DUE", due=0, cancels=[{"child": 2, "run": "r", "attempt": 4}, {"child": 77, "run": "s", "attempt": 1}]
    )
    assert worker.receive() == [{"kind": "CANCEL", "run": "r", "attempt": 4}]
    assert other.receive() == []


def test_dead_worker_is_not_told_to_the_database_before_its_tree_is_gone(scene: Scene) -> None:
    scene.add(Role.WORKER, 2, is_executing=True)
    child = scene.child(2)
    del scene.master._children.by_pid[child.pid]
    scene.master._note_death(child, -9)
    scene.master._timers.beat_at = boottime() + 60
    scene.master._order(has_strays=True)
    assert kinds(scene.courier) == []
    scene.master._order(has_strays=False)
    assert scene.courier.receive()[0]["kind"] == "RECOVER"
    scene.hear(1, "RECOVERED", child=2)
    assert scene.master._children.unrecovered == {}


@pytest.mark.parametrize(
    ("is_ready", "code", "age", "pauses"),
    [(False, 3, 0.0, True), (True, 75, 0.0, True), (True, 75, 60.0, False), (True, -9, 0.0, False)],
)
def test_child_that_would_die_again_at_once_is_not_forked_at_once(
    scene: Scene, is_ready: bool, code: int, age: float, pauses: bool
) -> None:
    scene.add(Role.WORKER, 2, is_ready=is_ready, forked_at=boottime() - age)
    scene.master._note_death(scene.child(2), code)
    assert (scene.master._nursery._backoff[Role.WORKER].not_before > boottime()) is pauses


def test_fork_that_fails_is_tried_again_later(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system has no process to give: no child in the table, no link left open, a pause, and again."""

    def refuse(*_: object, **__: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(nursery, "fork_child", refuse)
    before = open_descriptors()
    scene.master._nursery.fork(Role.WORKER, scene.master._nursery.generation)
    assert scene.master._children.of(Role.WORKER) == []
    assert scene.master._nursery._backoff[Role.WORKER].not_before > boottime()
    assert open_descriptors() == before


def test_farewell_of_one_courier_leaves_the_others_links_readable(scene: Scene) -> None:
    """Two answer in one turn, after a reload; the node left in the middle of it, and read a closed link."""
    other = scene.add(Role.COURIER, 2)
    scene.master._phase = loop.Phase.LEAVING
    scene.master._farewells = {1, 2}
    for link in (scene.courier, other):
        link.send("FORGOTTEN")
    for number in (1, 2):
        scene.master._read(scene.child(number))
    assert scene.master._phase is loop.Phase.LEAVING
    assert scene.master._is_forgotten


def test_link_that_speaks_after_the_last_farewell_is_no_trouble(scene: Scene) -> None:
    late = scene.add(Role.COURIER, 2)
    scene.master._phase = loop.Phase.LEAVING
    scene.master._farewells = {1}
    scene.courier.send("FORGOTTEN")
    late.send("READY")
    late_child = scene.child(2)
    scene.master._read(scene.child(1))
    scene.master._read(late_child)
