"""The table of a node's children, and what is decided from it; no forking, no signals, no clock."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from forgeflow.config import Config
from forgeflow.domain.node import Node
from forgeflow.process.fork import EXIT_RESULT_REFUSED, EXIT_TRY_AGAIN
from forgeflow.process.link import Link
from forgeflow.process.page import SharedPage


class Role(StrEnum):
    COURIER = "courier"
    SCHEDULER = "scheduler"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Generation:
    """What all children that were forked under one configuration share; a reload makes the next one."""

    number: int
    config: Config
    node: Node

    @property
    def database(self) -> tuple[str, str]:
        """Where its leases are: children of two generations with one database may do each other's work there."""
        return self.config.database.url, self.config.database.schema_name

    def wanted(self) -> dict[Role, int]:
        """How many children of each role serve, when all is well."""
        roles = self.node.roles
        return {
            Role.COURIER: 1,
            Role.SCHEDULER: int("scheduler" in roles),
            Role.WORKER: self.node.concurrency if "worker" in roles else 0,
        }


class End(StrEnum):
    """Why we ended a child; only a wedged worker's run is charged for it."""

    WEDGED = "it overran its budget"
    FENCED = "its lease could not be renewed"
    DISPOSSESSED = "its lease was taken back"
    STOPPING = "its node is stopping"
    REJECTED = "its configuration was not taken on"


@dataclass(slots=True)
class Child:
    """What the master knows of one child; times are CLOCK_BOOTTIME."""

    pid: int
    number: int  # never used twice in the life of a master, unlike a pid
    role: Role
    generation: Generation
    link: Link
    forked_at: float
    # What the limits of age, runs and memory are multiplied by, so that few reach them at once.
    wear_factor: float = 1.0
    is_ready: bool = False
    is_worn: bool = False  # it has reached such a limit: to be retired as soon as another one is ready
    is_retiring: bool = False  # it was told to end when it has ended what it does
    runs: int = 0  # how many it was given to execute
    idle_since: float | None = None  # a worker's: the time before the claim that found nothing
    slot: int = 0  # a worker's line in the shared page
    page: SharedPage | None = None
    batch: int = 0  # the number of what it said last that it has in hand
    runs_in_hand: Sequence[tuple[str, int, bool]] = ()  # run, attempt, whether its job may outlive the lease
    lease_end: float = 0.0
    state: str = "boot"
    budget_end: float = float("inf")  # it must have spoken again by then
    end: End | None = None
    is_killed: bool = False

    @property
    def begun(self) -> tuple[str | None, int, bool]:
        """The run that it has begun last, its attempt, whether its job may outlive the lease; None for no run.

        By the shared page, where the worker writes before it begins; read at its death it says whom to charge.
        """
        batch, place, _ = self._at()
        if batch == self.batch and 0 < place <= len(self.runs_in_hand):
            return self.runs_in_hand[place - 1]
        return None, 0, False

    @property
    def is_executing(self) -> bool:
        """Whether a job of its may be alive."""
        return self._at()[2]

    def _at(self) -> tuple[int, int, bool]:
        return self.page.begun(self.slot) if self.page and self.role is Role.WORKER else (0, 0, False)

    @property
    def run(self) -> str | None:
        return self.begun[0]

    def describe(self) -> dict[str, object]:
        """For the log."""
        return {
            "role": self.role.value,
            "number": self.number,
            "pid": self.pid,
            "generation": self.generation.number,
            "state": self.state,
            "run_id": self.run,
        }


@dataclass(frozen=True, slots=True)
class DeadWorker:
    """A worker whose end is still to be told to the database: ordered again until the courier confirms."""

    number: int
    generation: Generation
    run: str | None
    attempt: int
    charged: bool
    error: str
    error_type: str


@dataclass(slots=True)
class Backoff:
    """The pause before a role is forked again: doubled by each death that would come again, forgotten after another."""

    shortest: float = 0.25
    longest: float = 30.0
    deaths: int = 0
    not_before: float = 0.0

    def note_death(self, now: float, *, was_fit: bool, jitter: float, longest: float | None = None) -> None:
        """`jitter`, 0 to 1, keeps the nodes of a fleet from coming back in step; `longest` is this pause's own limit.

        A death during the pause is no new one: children that died together had one reason.
        """
        if now < self.not_before:
            return
        self.deaths = 0 if was_fit else self.deaths + 1
        if self.deaths:
            pause = min(longest or self.longest, self.shortest * 2.0 ** min(self.deaths - 1, 20))
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

    def courier_of(self, generation: Generation) -> Child | None:
        """The ready courier for what belongs to that generation: its own, else another one of the same database."""
        couriers = [
            child
            for child in self.of(Role.COURIER)
            if child.is_ready and child.generation.database == generation.database
        ]
        return max(couriers, key=lambda child: (child.generation is generation, child.generation.number), default=None)

    def of_courier(self, courier: Child) -> list[int]:
        """Numbers of the workers whose leases that courier renews."""
        return sorted(
            child.number
            for child in self.of(Role.WORKER)
            if child.is_ready and self.courier_of(child.generation) is courier
        )

    def generations(self) -> list[Generation]:
        """Those of the workers that live, or are not yet recovered, oldest first."""
        found = [child.generation for child in self.of(Role.WORKER)]
        found += [dead.generation for dead in self.unrecovered.values()]
        return sorted({each.number: each for each in found}.values(), key=lambda each: each.number)

    def free_slot(self) -> int:
        """The lowest line of the shared page that no living worker has."""
        taken = {child.slot for child in self.of(Role.WORKER)}
        return next(slot for slot in range(len(taken) + 1) if slot not in taken)

    def next_number(self) -> int:
        self.last_number += 1
        return self.last_number

    def idle_workers(self) -> list[Child]:
        """Most recently idle first: their caches are warm."""
        idle = [child for child in self.of(Role.WORKER) if child.idle_since is not None]
        return sorted(idle, key=lambda child: child.idle_since or 0.0, reverse=True)


def describe_exit(code: int) -> str:
    """An exit code as waitstatus_to_exitcode gives it, in words."""
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def bury(child: Child, code: int) -> DeadWorker:
    """What the database must be told of a worker that is gone, tree and all.

    Only the run that it had begun is charged, and not when we killed the worker for a reason of our own.
    """
    charged, error, error_type = _judge(child, code)
    run, attempt, _ = child.begun
    return DeadWorker(child.number, child.generation, run, attempt, charged, error, error_type)


def _judge(child: Child, code: int) -> tuple[bool, str, str]:
    """Whether its run is charged, the error in words, and its type."""
    if code == EXIT_TRY_AGAIN and not child.is_executing:
        return False, "its worker lost the database", "interrupted"
    if code == EXIT_RESULT_REFUSED:
        return True, "the database refused its result; the log of its node says why", "refused"
    if child.end is End.WEDGED and child.is_executing:
        return True, "its worker was killed: the run overran its timeout and could not be stopped", "wedged"
    if child.end:
        return False, f"its worker was killed: {child.end}", "interrupted"
    return True, f"its worker died: {describe_exit(code)}", "crashed"


class Step(StrEnum):
    """What is done to a child that overran its budget, one after the other."""

    ABORT = "abort"
    KILL = "kill"


_ABORT_SECONDS = 2.0


def ladder_step(overrun_seconds: float) -> Step:
    """The step that a child has come to that overran its budget so long ago.

    ABORT: it dies with a traceback in the log. KILL: what also a stopped process obeys. There are no timers: whoever
    misses a turn does the next step. A job is not asked to stop first: its own timeout did that, and whoever overran
    the budget after that does not read its link.
    """
    return Step.ABORT if overrun_seconds < _ABORT_SECONDS else Step.KILL
