"""When a lease may still be trusted, and what must have happened before it ends.

All instants are CLOCK_BOOTTIME of one machine. A lease is counted from before its statement was sent, so its end
here is never later than the database's. Before that end the job's whole tree must be dead: the worker stops it at
`fence_at` and kills it `fence_grace` later; a master whose worker does not kills both at `last_call`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fence:
    """The distances, in seconds: duration > margin > grace > 0."""

    duration: float
    margin: float
    grace: float

    def lease_end(self, sent_at: float) -> float:
        """The end of a lease that was asked for by a statement sent not before `sent_at`."""
        return sent_at + self.duration

    def fence_at(self, lease_end: float) -> float:
        """From here on the job gets TERM."""
        return lease_end - self.margin

    def last_call(self, lease_end: float) -> float:
        """From here on the master kills the worker with its job: half of what is left after the worker's own KILL."""
        return lease_end - (self.margin - self.grace) / 2

    def may_begin(self, lease_end: float, now: float) -> bool:
        """Whether a run may still be begun: its claim must not have taken a third of the lease."""
        return now < self.fence_at(lease_end)
