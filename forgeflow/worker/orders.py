"""What a worker has been told by its master, read only where it is safe to act on it."""

import select

from forgeflow.process.link import Link
from forgeflow.store.runs import ClaimedRun


class WorkerOrders:
    """The worker's side of the link: remembers orders until they are asked for."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._cancels: set[tuple[str, int]] = set()
        self._woken = False
        self.is_draining = False
        self.is_stopping = False

    def fileno(self) -> int:
        return self._link.fileno()

    def read(self) -> None:
        """Take in what has come; never blocks.  A master that is gone means drain (its death kills us anyway)."""
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
        if self._link.is_closed:
            self.is_draining = self.is_stopping = True

    def stop_reason(self, run: ClaimedRun) -> str | None:
        self.read()
        if (str(run.id), run.attempt) in self._cancels:
            return "cancelled"
        return "interrupted" if self.is_stopping else None

    def wait_until_woken(self, connection_fd: int) -> bool:
        """Block until WAKE, DRAIN or STOP; False when the connection to the database broke meanwhile."""
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        poll.register(connection_fd, select.POLLIN)
        self.read()
        while not (self._woken or self.is_draining):
            ready = dict(poll.poll())
            # Nothing is ever sent to an idle session but its end.
            if connection_fd in ready:
                return False
            self.read()
        self._woken = False
        return True
