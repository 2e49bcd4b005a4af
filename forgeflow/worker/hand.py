"""What one worker has in hand: runs that it has claimed and not begun, and endings that the database does not know.

Two threads of a worker touch it, the one that executes and the one that watches over long runs; each call is whole.
"""

import threading
from collections import deque
from collections.abc import Collection, Sequence

from forgeflow.domain.run import Ending, Failure
from forgeflow.store.runs import ClaimedRun

_HANDED_BACK = Failure("interrupted", "handed back before it began", charged=False)


class Hand:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[ClaimedRun] = deque()
        self._endings: list[Ending] = []

    def take(self, claimed: Sequence[ClaimedRun]) -> None:
        """In the order in which they are to be begun."""
        with self._lock:
            self._waiting.extend(claimed)

    def waiting(self) -> list[ClaimedRun]:
        with self._lock:
            return list(self._waiting)

    def begin(self) -> ClaimedRun | None:
        """The next run, which is the caller's to execute from now on; None when there is none."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def end(self, ending: Ending) -> None:
        with self._lock:
            self._endings.append(ending)

    def hand_back(self, *, keep: int = 0) -> None:
        """No more of the waiting runs than the first `keep` will be begun: the others are to be reported unbegun."""
        with self._lock:
            while len(self._waiting) > keep:
                run = self._waiting.pop()
                self._endings.append(Ending(run.id, run.attempt, _HANDED_BACK, is_begun=False))

    def endings(self) -> list[Ending]:
        """What is to be reported; it stays until `forget`."""
        with self._lock:
            return list(self._endings)

    def forget(self, reported: Collection[Ending]) -> None:
        """The database knows these."""
        known = {ending.run_id for ending in reported}
        with self._lock:
            self._endings = [ending for ending in self._endings if ending.run_id not in known]
