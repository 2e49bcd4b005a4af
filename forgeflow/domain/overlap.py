"""What becomes of a run that is due while others of its job are unfinished: pending, running or waiting for a retry."""

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

Overlap = Literal["allow", "skip", "queue", "replace"]

# What a run shows that had to give way.
REPLACED = "replaced by a newer run of its job"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A job's unfinished runs: one of them, and how many are running, or held, that is, wait for another one."""

    first_id: UUID | None = None
    running: int = 0
    held: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """To make a run, at once or held, maybe in place of the others; or none, because of `blocked_by`."""

    is_held: bool = False
    is_replacing: bool = False
    blocked_by: UUID | None = None


def decide_overlap(overlap: Overlap, unfinished: Unfinished, *, limit: int) -> Decision:
    """What becomes of a run beside those.

    `allow` makes it, `skip` does not, `queue` holds it until the others have ended, but not more than `limit` of them,
    `replace` ends the others and holds it until none is running.  Source: README "Jobs".
    """
    if unfinished.first_id is None or overlap == "allow":
        return Decision()
    if overlap == "replace":
        return Decision(is_held=unfinished.running > 0, is_replacing=True)
    is_full = unfinished.held >= limit
    return Decision(blocked_by=unfinished.first_id) if overlap == "skip" or is_full else Decision(is_held=True)


def add_run(unfinished: Unfinished, run_id: UUID, decision: Decision) -> Unfinished:
    """What is unfinished when that run has been made, as decided."""
    held = (0 if decision.is_replacing else unfinished.held) + decision.is_held
    first_id = run_id if unfinished.first_id is None or not decision.is_held else unfinished.first_id
    return Unfinished(first_id, unfinished.running, held)
