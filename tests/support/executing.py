"""An attempt in the tests' own process, with the orders that a worker has."""

from collections.abc import Iterator
from contextlib import contextmanager

from forgeflow.domain.lease import Fence
from forgeflow.process.clock import boottime
from forgeflow.process.link import Link
from forgeflow.process.page import SharedPage
from forgeflow.worker.orders import WorkerOrders


@contextmanager
def orders_of(*, fenced_in: float = 60.0) -> Iterator[tuple[WorkerOrders, Link]]:
    """What a worker hears by, and the master's end of it; the lease lets a run go on for so many seconds."""
    fence = Fence(30.0, 5.0, 3.0)
    page = SharedPage(1)
    page.set_lease_end(0, boottime() + fence.margin + fenced_in)
    master, ours = Link.pair()
    try:
        yield WorkerOrders(ours, page, 0, fence), master
    finally:
        master.close()
        ours.close()
