"""What a worker has been told by its master, read only where it is safe to act on it."""

import select
from collections.abc import Sequence
from uuid import UUID

from forgeflow.domain.lease import Fence
from forgeflow.process.clock import boottime
from forgeflow.process.link import Link
from forgeflow.process.page import SharedPage
from forgeflow.store.runs import ClaimedRun

_SIGN_OF_LIFE_SECONDS = 30.0
_UNHEARD_SECONDS = 0.2
# Within that an idle worker speaks.
IDLE_SECONDS = 45.0


class WorkerOrders:
    """The worker's side of the link: remembers orders until they are asked for."""

    def __init__(self, link: Link, page: SharedPage, slot: int, fence: Fence) -> None:
        self._link = link
        self._page = page
        self._slot = slot
        self._fence = fence
        self._cancels: set[tuple[str, int]] = set()
        self._batch = 0
        self._places: dict[UUID, int] = {}
        self.begun: ClaimedRun | None = None
        self._woken = False
        self._is_orphaned = False
        self.is_draining = False
        self.is_stopping = False

    def fileno(self) -> int:
        return self._link.fileno()

    @property
    def is_closed(self) -> bool:
        return self._link.is_closed

    def read(self) -> None:
        """Take in what has come; never blocks.  A master that is gone means the end (its death kills us anyway)."""
        for message in self._link.receive():
            match message["kind"]:
                case "WAKE":
                    self._woken = True
                case "DRAIN":
                    self.is_draining = True
                case "STOP":
                    self.is_draining = self.is_stopping = True
                case "CANCEL":
                    self._cancels.add((message["run"], message["attempt"]))
        if self._link.is_closed and not self.is_stopping:
            self.is_draining = self.is_stopping = self._is_orphaned = True

    def begin_batch(self, runs: Sequence[ClaimedRun], budget: float) -> bool:
        """Tell the master what may be begun from now on, without asking it again; False when it cannot be told."""
        self._batch += 1
        fresh = sum(run.id not in self._places for run in runs)
        self._places = {run.id: place for place, run in enumerate(runs, 1)}
        self.begun = None
        told = [[run.id, run.attempt, run.on_lease_loss == "continue"] for run in runs]
        while not self._link.send("BATCH", state="executing", batch=self._batch, runs=told, fresh=fresh, budget=budget):
            # The link is full: a master that stands still for a moment costs nothing before the lease does.
            self.read()
            if self._link.is_closed or not self.may_begin():
                return False
            room = select.poll()
            room.register(self.fileno(), select.POLLOUT)
            room.poll(_UNHEARD_SECONDS * 1000)
        self._page.set_begun(self._slot, self._batch, 0, is_executing=False)
        return True

    def begin(self, run: ClaimedRun) -> None:
        """Say by the shared page, before anything of it happens, that this run of the batch is begun.

        It stands there until the next batch: when this worker dies before that, the run is charged for it.
        """
        self.begun = run
        self._page.set_begun(self._slot, self._batch, self._places[run.id], is_executing=True)

    def charge(self, run: ClaimedRun) -> None:
        """Say that this run of the batch is to blame, should we die now; nothing of it is alive."""
        self._page.set_begun(self._slot, self._batch, self._places[run.id], is_executing=False)

    def end(self) -> None:
        """Say that nothing of the begun run is alive any more."""
        if self.begun:
            self._page.set_begun(self._slot, self._batch, self._places[self.begun.id], is_executing=False)

    def stop_reason(self, run: ClaimedRun) -> str | None:
        self.read()
        if boottime() >= self.fence_at(run):
            return "fenced"
        if (str(run.id), run.attempt) in self._cancels:
            return "cancelled"
        if self._is_orphaned:
            return "lost"
        return "interrupted" if self.is_stopping else None

    def fence_at(self, run: ClaimedRun) -> float:
        """By the shared page, so that a master that is frozen, and renews nothing, is noticed as well."""
        if run.on_lease_loss == "continue":
            return float("inf")
        return self._fence.fence_at(self._page.lease_end(self._slot))

    def begin_lease(self, asked_at: float) -> None:
        """Write the first lease into the page, before the master can have heard of it; from then on it is his."""
        self._page.set_lease_end(self._slot, self._fence.lease_end(asked_at))

    def has_lease(self) -> bool:
        return boottime() < self._page.lease_end(self._slot)

    def may_begin(self) -> bool:
        """Whether enough of the lease is left to begin a run."""
        return self._fence.may_begin(self._page.lease_end(self._slot), boottime())

    def wait_until_woken(self, idle_since: float, connection_fd: int) -> bool:
        """Say that we are idle, and since when, until WAKE, DRAIN or STOP comes; False when the session ended.

        It is said again and again, for a message may be dropped, and an idle worker that its master takes for a busy
        one is never woken.
        """
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        poll.register(connection_fd, select.POLLIN)
        self.read()
        while not (self._woken or self.is_draining):
            heard = self._link.send("IDLE", since=idle_since, budget=IDLE_SECONDS)
            ready = dict(poll.poll((_SIGN_OF_LIFE_SECONDS if heard else _UNHEARD_SECONDS) * 1000))
            # Nothing is ever sent to an idle session but its end.
            if connection_fd in ready:
                return False
            self.read()
        self._woken = False
        return True
