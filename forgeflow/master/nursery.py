"""Forking and retiring children: population, recycling, and the reload from one generation to the next."""

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import structlog
from setproctitle import setproctitle

from forgeflow import courier
from forgeflow.config import Config, changed_keys
from forgeflow.errors import ConfigError
from forgeflow.log import set_up_logging
from forgeflow.master.children import Backoff, Child, Children, Generation, Role, describe_exit
from forgeflow.master.population import SURGE, is_missing, surplus
from forgeflow.master.wear import WEAR_FACTORS, worn_out
from forgeflow.process.clock import boottime
from forgeflow.process.fork import EXIT_TRY_AGAIN, fork_child
from forgeflow.process.link import Link
from forgeflow.process.oom import CHILD_SCORE, raise_oom_score
from forgeflow.process.page import SharedPage
from forgeflow.process.service_manager import ServiceManager
from forgeflow.scheduler import loop as scheduler
from forgeflow.worker import loop as worker

log = structlog.get_logger()

_PROVEN_SECONDS = 10.0
_WEATHER_SECONDS = 5.0
# Lines of the shared page: the most workers that a configuration can ask for, and those that a reload adds.
_SLOTS = 512 + SURGE


@dataclass(slots=True)
class _Reload:
    """A reload from HUP to its end: asked for, then candidates of the next generation that must become ready."""

    is_wanted: bool = False
    pending: Generation | None = None  # read, and to be proved as soon as there is room
    has_told: bool = False  # that it waits for room
    candidates: list[Child] = field(default_factory=list)
    roles_left: list[Role] = field(default_factory=list)  # to be proved when those are
    ready_until: float = float("inf")
    failure: str = ""  # of the last one


class Nursery:
    """The children, and what decides how many there are and of which generation.

    `load` reads the configuration anew; it raises ConfigError. `serves` in what follows: the node takes on work, so
    it is not on its way out, and the courier has settled that it may have its name.
    """

    def __init__(self, first: Generation, load: Callable[[], Config], manager: ServiceManager) -> None:
        self.generation = first
        self.children = Children()
        self.page = SharedPage(_SLOTS)
        self._load = load
        self._manager = manager
        self._backoff = {role: Backoff() for role in Role}
        self._reload = _Reload()

    @property
    def trouble(self) -> str:
        """What a person should know of the last reload; empty when all is well."""
        if self._reload.has_told:
            return "a reload waits until a worker ends"
        return f"reload failed: {self._reload.failure}" if self._reload.failure else ""

    # what the wait in the loop must not miss

    def deadlines(self, *, serves: bool) -> list[float]:
        return [self._reload.ready_until, *(self._backoff[role].not_before for role in self._missing(serves=serves))]

    # population

    def populate(self, *, serves: bool) -> None:
        """Fork at most one missing child, so that a turn stays short, and let those go that are too many."""
        if serves:
            for role, wanted in self.generation.wanted().items():
                while child := surplus(self._dispensable(role), wanted, self.generation.number):
                    if role is Role.COURIER and child.generation.database != self.generation.database:
                        child.link.send("FORGET")  # nobody else tells that database that we have left it
                    retire(child)
        for role in self._missing(serves=serves):
            if boottime() >= self._backoff[role].not_before:
                self.fork(role, self.generation)
                return
        self._serve_bereft()

    def _serve_bereft(self) -> None:
        """Fork a courier for old workers whose database has none: theirs died, and the new one is elsewhere."""
        databases = {child.generation.database for child in self.children.of(Role.COURIER)}
        for generation in self.children.generations():
            if generation.database not in databases and boottime() >= self._backoff[Role.COURIER].not_before:
                self.fork(Role.COURIER, generation)
                return

    def _missing(self, *, serves: bool) -> list[Role]:
        """The roles of which one more is to be forked."""
        return [
            role
            for role, wanted in self.generation.wanted().items()
            if (serves or role is Role.COURIER)
            and is_missing(
                self.children.of(role),
                wanted,
                self.generation.number,
                # The workers of every generation that still lives have a courier of their own.
                surge=float("inf") if role is Role.COURIER else SURGE,
            )
        ]

    def _dispensable(self, role: Role) -> list[Child]:
        """All of a role, but couriers that old workers, or their recovery, still need."""
        if role is not Role.COURIER:
            return self.children.of(role)
        old = [each for each in self.children.generations() if each.number < self.generation.number]
        needed = [self.children.courier_of(each) for each in old]
        elsewhere = {each.database for each in old} - {self.generation.database}
        return [
            child
            for child in self.children.of(role)
            if child not in needed and (child.is_ready or child.generation.database not in elsewhere)
        ]

    def fork(self, role: Role, generation: Generation) -> Child | None:
        """One more child; None when the system has no process or descriptor to give, which is tried again later."""
        number = self.children.next_number()
        slot = self.children.free_slot() if role is Role.WORKER else 0
        if role is Role.WORKER:
            self.page.clear(slot)
        try:
            ours, theirs = Link.pair()
        except OSError as error:
            self._note_failed_fork(role, error)
            return None
        try:
            pid = fork_child(
                lambda: self._become(role, generation, theirs, number, slot),
                keep=[theirs.fileno()],
                # A worker has a job to end before itself, and its link tells it to; a stopped one must wake for it.
                death_signal=signal.SIGCONT if role is Role.WORKER else signal.SIGKILL,
            )
        except OSError as error:
            self._note_failed_fork(role, error)
            ours.close()
            return None
        finally:
            theirs.close()
        now = boottime()
        child = Child(pid, number, role, generation, ours, now, slot=slot, page=self.page)
        child.wear_factor = random.uniform(*WEAR_FACTORS)
        child.budget_end = now + generation.config.worker.spawn_timeout
        self.children.by_pid[pid] = child
        return child

    def _note_failed_fork(self, role: Role, error: OSError) -> None:
        log.error("fork failed", role=role, reason=str(error))
        self._backoff[role].note_death(boottime(), was_fit=False, jitter=random.random())

    def _become(self, role: Role, generation: Generation, link: Link, number: int, slot: int) -> int:
        """In the child: its whole life."""
        structlog.contextvars.bind_contextvars(role=role.value, child=number)
        raise_oom_score(CHILD_SCORE)
        config, node = generation.config, generation.node
        set_up_logging(config.log)
        title = f"forgeflow: {role} {number} of {node.worker_id} generation {generation.number}"
        setproctitle(title)
        match role:
            case Role.COURIER:
                return courier.main(link, config, node)
            case Role.SCHEDULER:
                return scheduler.main(link, config, node)
            case Role.WORKER:
                return worker.main(link, config, node, number, self.page, slot, f"{title} slot {slot}")

    # deaths

    def note_death(self, child: Child, code: int, *, is_expected: bool) -> int:
        """Let the pause before the next fork follow from a death; returns how many in a row mean trouble."""
        if child in self._reload.candidates:
            self._fail_reload(f"its first {child.role} died: {describe_exit(code)}; its log says why")
            return 0
        backoff = self._backoff[child.role]
        if not (is_expected and child.is_retiring):
            now = boottime()
            # A database that comes and goes must be found soon when it is back to stay.
            longest = _WEATHER_SECONDS if code == EXIT_TRY_AGAIN else None
            backoff.note_death(now, was_fit=_was_fit(child, code, now), jitter=random.random(), longest=longest)
        return backoff.deaths

    # recycling

    def wear_out(self, now: float) -> None:
        """Mark one worker that has reached a limit of its age, runs or memory; the next one when it is gone."""
        workers = self.children.of(Role.WORKER)
        if self._reload.candidates or any(child.is_worn for child in workers):
            return
        for child in workers:
            if child.is_ready and not child.is_retiring and (why := worn_out(child, now)):
                child.is_worn = True
                log.info("worker is to be replaced", **child.describe(), reason=why)
                return

    # reload

    def want_reload(self) -> None:
        """As HUP asks for it; several together are one, and during a reload one more."""
        self._reload.is_wanted = True

    def keep_reloading(self, *, serves: bool, is_leaving: bool) -> None:
        """Take the next generation on when its candidates are ready; until then everything stays as it is."""
        reload = self._reload
        if is_leaving:
            self._reload = _Reload()
        elif reload.candidates:
            self._judge_candidates()
        else:
            if reload.is_wanted:
                self._read_next()
            if reload.pending and (not serves or self._has_room()):
                self._begin_reload(reload.pending, serves=serves)

    def _judge_candidates(self) -> None:
        reload = self._reload
        if all(child.is_ready for child in reload.candidates):
            generation = reload.candidates[0].generation
            if reload.roles_left:
                self._try_out(reload.roles_left.pop(0), generation)
            else:
                self._adopt(generation)
        elif boottime() >= reload.ready_until:
            late = next(child.role for child in reload.candidates if not child.is_ready)
            self._fail_reload(f"its first {late} was not ready in time (worker.spawn_timeout)")

    def rejected(self) -> list[Child]:
        """Children of a generation that was not taken on: to be killed."""
        return [
            child
            for child in self.children
            if child.generation.number > self.generation.number and child not in self._reload.candidates
        ]

    def _read_next(self) -> None:
        self._reload.is_wanted = False
        self._manager.begin_reload()
        try:
            self._reload.pending = self._next_generation()
        except ConfigError as error:
            self._fail_reload(str(error))
        except Exception as error:
            log.exception("configuration cannot be read")
            self._fail_reload(f"{type(error).__name__}; the log has the traceback")

    def _begin_reload(self, generation: Generation, *, serves: bool) -> None:
        self._manager.begin_reload()
        self._reload.pending, self._reload.has_told = None, False
        self._reload.ready_until = boottime() + generation.config.worker.spawn_timeout
        first, *self._reload.roles_left = self._proving_roles(generation, serves=serves)
        self._try_out(first, generation)

    def _try_out(self, role: Role, generation: Generation) -> None:
        if candidate := self.fork(role, generation):
            self._reload.candidates.append(candidate)
        else:
            self._fail_reload("no process was to be had; try again")

    def _proving_roles(self, generation: Generation, *, serves: bool) -> list[Role]:
        """Who needs what may be wrong, in the order in which they are tried.

        A worker; before it, for another database or where nothing serves yet, the courier, for it may be refused our
        name there, and a worker that is ready claims.
        """
        if not serves:
            return [Role.COURIER]
        last = Role.WORKER if generation.wanted()[Role.WORKER] else Role.SCHEDULER
        is_elsewhere = generation.database != self.generation.database
        return [Role.COURIER, last] if is_elsewhere else [last]

    def _has_room(self) -> bool:
        """Whether one more worker may live; else an idle one is let go, and when all are busy, the reload waits."""
        workers = self.children.of(Role.WORKER)
        if len(workers) < self.generation.wanted()[Role.WORKER] + SURGE:
            return True
        idle = [child for child in workers if child.idle_since is not None]
        if idle and not any(child.is_retiring for child in idle):
            retire(idle[-1])
        elif not idle and not self._reload.has_told:
            self._reload.has_told = True
            log.warning("reload waits until a worker ends, for no more may live")
            self._manager.end_reload()
        return False

    def _next_generation(self) -> Generation:
        """Raises ConfigError."""
        config, before = self._load(), self.generation
        if config.worker.id != before.config.worker.id:
            raise ConfigError("worker.id cannot change while the node lives: restart it")
        self._manager.check(config.worker)
        node = replace(before.node, roles=config.server.roles, concurrency=config.worker.concurrency)
        return Generation(before.number + 1, config, node)

    def _adopt(self, generation: Generation) -> None:
        """From here on the other generations' children are old, and go one by one as their work ends."""
        changed = changed_keys(self.generation.config, generation.config)
        self.generation = generation
        self._reload = _Reload(is_wanted=self._reload.is_wanted)
        self._backoff = {role: Backoff() for role in Role}
        set_up_logging(generation.config.log)
        log.info("configuration reloaded", generation=generation.number, changed=changed)
        self._manager.end_reload()

    def _fail_reload(self, reason: str) -> None:
        self._reload = _Reload(is_wanted=self._reload.is_wanted, failure=reason)
        log.error("reload failed; everything stays as it was", reason=reason)
        self._manager.end_reload()


def retire(child: Child) -> None:
    """Tell it to end when it has ended what it does; told again when it says that it is ready."""
    child.is_retiring = True
    child.link.send("DRAIN" if child.role is Role.WORKER else "STOP")


def _was_fit(child: Child, code: int, now: float) -> bool:
    """Whether this death says nothing against the next child of its role.

    One that was ready and was ended by a signal is no reason to wait; one that gives up by itself soon after it was
    ready would do so again, as fast as one can fork.
    """
    return child.is_ready and (code < 0 or now - child.forked_at > _PROVEN_SECONDS)
