"""The table of a node's children, and what is decided from it; no forking, no signals, no clock."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from forgeflow.process.link import Link


class Role(StrEnum):
    COURIER = "courier"
    SCHEDULER = "scheduler"
    WORKER = "worker"


@dataclass(slots=True)
class Child:
    """What the master knows of one child; times are CLOCK_BOOTTIME."""

    pid: int
    number: int  # never used twice in the life of a master, unlike a pid
    role: Role
    link: Link
    forked_at: float
    is_booted: bool = False
    is_ready: bool = False
    idle_since: float | None = None  # a worker's: the time before the claim that found nothing
    run: str | None = None  # the run that it has begun
    attempt: int = 0
    kill_reason: str | None = None


@dataclass(frozen=True, slots=True)
class DeadWorker:
    """A worker whose end is still to be told to the database: ordered again until the courier confirms."""

    number: int
    run: str | None
    charged: bool
    error: str
    error_type: str


@dataclass(slots=True)
class Backoff:
    """The pause before a role is forked again: doubled by each death before it was ready, forgotten after."""

    shortest: float = 0.25
    longest: float = 30.0
    deaths: int = 0
    not_before: float = 0.0

    def note_death(self, now: float, *, was_ready: bool, jitter: float) -> None:
        """`jitter`, 0 to 1, keeps the nodes of a fleet from coming back in step."""
        self.deaths = 0 if was_ready else self.deaths + 1
        if self.deaths:
            pause = min(self.longest, self.shortest * 2.0 ** min(self.deaths - 1, 20))
            self.not_before = now + pause * (0.5 + jitter / 2)


@dataclass(slots=True)
class Children:
    """The living children, by pid, and the dead workers that are not yet recovered, by number."""

    by_pid: dict[int, Child] = field(default_factory=dict)
    unrecovered: dict[int, DeadWorker] = field(default_factory=dict)
    last_number: int = 0

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self.by_pid.values()))

    def of(self, role: Role) -> list[Child]:
        return [child for child in self.by_pid.values() if child.role is role]

    def the(self, role: Role) -> Child | None:
        """The ready child of a role that has one child only."""
        return next((child for child in self.of(role) if child.is_ready), None)

    def next_number(self) -> int:
        self.last_number += 1
        return self.last_number

    def idle_workers(self) -> list[Child]:
        """Most recently idle first: their caches are warm."""
        idle = [child for child in self.of(Role.WORKER) if child.idle_since is not None]
        return sorted(idle, key=lambda child: child.idle_since or 0.0, reverse=True)

    def living_workers(self) -> list[int]:
        """Numbers of the workers whose leases are to be renewed."""
        return sorted(child.number for child in self.of(Role.WORKER) if child.is_ready)


def describe_exit(code: int) -> str:
    """An exit code as waitstatus_to_exitcode gives it, in words."""
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def bury(child: Child, code: int) -> DeadWorker:
    """What the database must be told of a worker that is gone, tree and all.

    Only the run that it had begun is charged, and not when we killed the worker for a reason of our own.
    """
    if child.kill_reason:
        return DeadWorker(child.number, child.run, False, f"its worker was stopped: {child.kill_reason}", "interrupted")
    return DeadWorker(child.number, child.run, True, f"its worker died: {describe_exit(code)}", "crashed")
