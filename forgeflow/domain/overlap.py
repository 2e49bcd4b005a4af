"""What becomes of a run that is due while others of its job are unfinished: pending, running or waiting for a retry."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

Overlap = Literal["allow", "skip", "queue", "replace"]

# What a run shows that had to give way.
REPLACED = "replaced by a newer run of its job"


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    """`is_held`: it waits for another run of its job, not for a worker."""

    id: UUID
    is_running: bool
    is_held: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """To make a run, at once or held, maybe in place of the others; or none, because of `blocked_by`."""

    is_held: bool = False
    is_replacing: bool = False
    blocked_by: UUID | None = None


def decide_overlap(overlap: Overlap, unfinished: Sequence[UnfinishedRun], *, limit: int) -> Decision:
    """What becomes of a run beside those.

    `allow` makes it, `skip` does not, `queue` holds it until the others have ended, but not more than `limit` of them,
    `replace` ends the others and holds it until none is running.  Source: README "Jobs".
    """
    if not unfinished or overlap == "allow":
        return Decision()
    first = min(unfinished, key=lambda run: (run.is_held, not run.is_running, run.id))
    if overlap == "replace":
        return Decision(is_held=first.is_running, is_replacing=True)
    is_full = sum(run.is_held for run in unfinished) >= limit
    return Decision(blocked_by=first.id) if overlap == "skip" or is_full else Decision(is_held=True)
