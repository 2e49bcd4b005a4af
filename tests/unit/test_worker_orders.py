"""A worker's side of its link."""

import socket
import threading

import pytest

from forgeflow.domain.lease import Fence
from forgeflow.process.clock import boottime
from forgeflow.process.link import Link
from forgeflow.process.page import SharedPage
from forgeflow.worker.orders import WorkerOrders
from tests.support.scenario import claimed_run


def test_idle_is_said_again_until_it_is_heard() -> None:
    """With a master that was frozen the link is full; an IDLE that got lost made a worker useless for good."""
    master, ours = Link.pair()
    while ours.send("STATE", state="turn", budget=1.0):
        pass
    orders = WorkerOrders(ours, SharedPage(1), 0, Fence(30.0, 5.0, 3.0))
    session, _server = socket.socketpair()
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(orders.wait_until_woken(5.0, session.fileno())))
    thread.start()
    heard: list[str] = []
    while "IDLE" not in heard:
        heard += [message["kind"] for message in master.receive()]
    master.send("WAKE")
    thread.join(10)
    assert answers == [True]


def test_end_of_the_session_is_noticed_while_idle() -> None:
    _master, ours = Link.pair()
    orders = WorkerOrders(ours, SharedPage(1), 0, Fence(30.0, 5.0, 3.0))
    session, server = socket.socketpair()
    server.close()
    assert orders.wait_until_woken(5.0, session.fileno()) is False


@pytest.mark.parametrize(("said", "reason"), [([], "lost"), (["STOP"], "interrupted"), (["DRAIN"], "lost")])
def test_end_of_the_master_costs_a_try_unless_it_said_stop(said: list[str], reason: str) -> None:
    """A job that ends its master would else be tried for ever; what a stop has ended is not held against a job."""
    master, ours = Link.pair()
    page = SharedPage(1)
    page.set_lease_end(0, boottime() + 60)
    orders = WorkerOrders(ours, page, 0, Fence(30.0, 5.0, 3.0))
    for kind in said:
        master.send(kind)
    master.close()
    assert orders.stop_reason(claimed_run()) == reason


def test_full_link_is_waited_for_and_the_batch_is_told() -> None:
    """A master that stands still for a moment costs no worker its place."""
    master, ours = Link.pair()
    page = SharedPage(1)
    page.set_lease_end(0, boottime() + 60)
    while ours.send("STATE", state="turn", budget=1.0):
        pass
    orders = WorkerOrders(ours, page, 0, Fence(30.0, 5.0, 3.0))
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(orders.begin_batch([claimed_run()], 10.0)))
    thread.start()
    heard: list[str] = []
    while "BATCH" not in heard:
        heard += [message["kind"] for message in master.receive()]
    thread.join(10)
    assert answers == [True]


def test_batch_is_not_begun_when_nobody_is_there_to_be_told() -> None:
    master, ours = Link.pair()
    page = SharedPage(1)
    page.set_lease_end(0, boottime() + 60)
    orders = WorkerOrders(ours, page, 0, Fence(30.0, 5.0, 3.0))
    master.close()
    assert not orders.begin_batch([claimed_run()], 10.0)
    assert page.begun(0) == (0, 0, False)
