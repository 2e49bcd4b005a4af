"""Where a worker's next claim begins to look.

While some transaction is old, what has left the queue is still in its index, and a claim that begins at the head walks
over all of it. So it begins after what this worker claimed last, of each priority. What lies before that place, a
retry or a run that was handed back, is seen by a claim of the whole queue.
"""

from collections.abc import Sequence

from forgeflow.store.runs import WHOLE_QUEUE, Bounds, ClaimedRun

_WHOLE_QUEUE_SECONDS = 0.5
_PRIORITIES = 9


class Watermark:
    """The last claimed place of each priority.  Times are CLOCK_BOOTTIME, given by the caller."""

    def __init__(self) -> None:
        self.is_whole = False  # whether the last claim looked at the whole queue
        self._is_short = True
        self._looked_at = float("-inf")
        self._forget()

    def _forget(self) -> None:
        self._at = ["-infinity"] * _PRIORITIES
        self._id = ["00000000-0000-0000-0000-000000000000"] * _PRIORITIES

    def bounds(self, now: float) -> Bounds:
        """Of the claim that is made now: the whole queue after a claim that came back short, and each half second."""
        self.is_whole = self._is_short or now - self._looked_at >= _WHOLE_QUEUE_SECONDS
        if self.is_whole:
            self._looked_at = now
            self._forget()
            return WHOLE_QUEUE
        return Bounds(f"{{{','.join(self._at)}}}", f"{{{','.join(self._id)}}}")

    def note(self, claimed: Sequence[ClaimedRun], asked: int) -> None:
        """What the claim of these bounds brought; when it is less than was asked for, the next looks everywhere."""
        self._is_short = len(claimed) < asked
        for run in {run.priority: run for run in claimed}.values():  # best first, so the last of a priority stays
            self._at[run.priority - 1] = run.run_after.isoformat()
            self._id[run.priority - 1] = str(run.id)
