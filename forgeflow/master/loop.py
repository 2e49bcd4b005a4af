"""The master's loop: deaths, orders from outside, time, population, orders to the courier, then wait."""

import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import structlog
from setproctitle import setproctitle

from forgeflow.config import Config
from forgeflow.domain.node import Node
from forgeflow.master.children import (
    Child,
    End,
    Generation,
    Role,
    Step,
    bury,
    describe_exit,
    ladder_step,
)
from forgeflow.master.nursery import Nursery, retire
from forgeflow.process.clock import boottime
from forgeflow.process.fork import EXIT_BOOT_FAILED, EXIT_REFUSED, freeze_heap
from forgeflow.process.link import Message
from forgeflow.process.privacy import become_private
from forgeflow.process.service_manager import ServiceManager
from forgeflow.process.tree import Strays, become_subreaper, kill_child, signal_child

log = structlog.get_logger()

# USR1 means nothing here, but what rotates logs sends it, and by default it kills.
_STOPPING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_HANDLED = (*_STOPPING_SIGNALS, signal.SIGCHLD)
_RECOVER_AGAIN_SECONDS = 1.0
_SECOND_INT_SECONDS = 1.0
_FAREWELL_SECONDS = 5.0
_POLL_SECONDS = 1.0
_DYING_SECONDS = 0.05
_LOCKED_SECONDS = 0.2
# What is said for every batch, and asks for nothing.
_NOTED = {"BATCH", "ENDED", "STATE"}
_WEAR_SECONDS = 1.0


class Phase(IntEnum):
    """Only ever forward."""

    RUNNING = 0
    DRAINING = 1  # nothing new; wait for what runs
    STOPPING = 2  # stop what runs and hand it back
    LEAVING = 3  # no worker left; tell the database
    STOPPED = 4


@dataclass(slots=True)
class _Timers:
    """CLOCK_BOOTTIME; the next beat, the next repetition of a recovery, and the ends of phases."""

    beat_at: float = 0.0
    recover_at: float = 0.0
    wear_at: float = 0.0
    drain_until: float = float("inf")
    kill_at: float = float("inf")
    leave_until: float = float("inf")
    interrupted_at: float = float("inf")


@dataclass(slots=True)
class _Wakes:
    """When work was last heard of, whether the courier is already looking how much, and since when it is back."""

    heard_at: float = float("-inf")
    is_peeking: bool = False
    was_due: bool = False  # by the last word of it
    back_at: float = float("inf")


class Master:
    """One node. `run` is its whole life; `run_pass` one turn of the loop.

    `load` reads the configuration anew for a reload; it raises ConfigError.
    """

    def __init__(
        self, config: Config, node: Node, load: Callable[[], Config], manager: ServiceManager | None = None
    ) -> None:
        self._manager = manager or ServiceManager()
        self._nursery = Nursery(Generation(1, config, node), load, self._manager)
        self._children = self._nursery.children
        self._strays = Strays()
        self._timers = _Timers()
        self._wakes = _Wakes()
        self._signals: set[int] = set()
        self._phase = Phase.RUNNING
        self._was_ready = False
        self._has_name = False
        self._exit_code = 0
        self._is_forgotten = False
        self._farewells: set[int] = set()  # couriers that are to tell their database that we are gone
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)

    @property
    def _config(self) -> Config:
        return self._nursery.generation.config

    @property
    def _node(self) -> Node:
        return self._nursery.generation.node

    @property
    def _serves(self) -> bool:
        """Nothing claims or leads before the courier has settled that this node may have its name."""
        return self._phase is Phase.RUNNING and self._has_name

    def run(self) -> int:
        """Serve until told to stop.  Returns 0, or 3 when no worker could boot."""
        become_private()
        become_subreaper()
        for number in _HANDLED:
            signal.signal(number, lambda number, _frame: self._signals.add(number))
        signal.set_wakeup_fd(self._wake_sender.fileno(), warn_on_full_buffer=False)
        setproctitle(f"forgeflow: master {self._node.worker_id}")
        freeze_heap()
        log.info(
            "node started", worker_id=self._node.worker_id, boot_id=str(self._node.boot_id), roles=self._node.roles
        )
        while self._phase is not Phase.STOPPED:
            self.run_pass()
        signal.set_wakeup_fd(-1)
        for number in _STOPPING_SIGNALS:
            # Nothing is left to stop; one more Ctrl-C must not turn a clean end into a death by signal.
            signal.signal(number, signal.SIG_IGN)
        log.info("node stopped", worker_id=self._node.worker_id, exit_code=self._exit_code)
        return self._exit_code

    def run_pass(self) -> None:
        """One turn. Nothing in it blocks but the wait at its end, a second at most."""
        assert threading.active_count() == 1
        strays = self._reap()
        self._take_signals()
        self._keep_time()
        self._grow()
        self._order(has_strays=bool(strays))
        self._advance(has_strays=bool(strays))
        self._tell_manager()
        if self._phase is not Phase.STOPPED:
            self._wait(has_strays=bool(strays))

    # 1 deaths

    def _reap(self) -> int:
        """Collect every dead child and kill what dead workers left behind; returns how many strays there were."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if child := self._children.by_pid.get(pid):
                self._read(child)  # what it said before it died
                del self._children.by_pid[pid]
                self._note_death(child, os.waitstatus_to_exitcode(status))
        immune_before = set(self._strays.immune)
        strays = self._strays.kill(self._children.by_pid)
        if immune := self._strays.immune - immune_before:
            log.error("strays run under another user and cannot be killed", pids=sorted(immune))
        return strays

    def _note_death(self, child: Child, code: int) -> None:
        child.link.close()
        now = boottime()
        if child.role is Role.WORKER and child.is_ready:
            # One that was not ready has claimed nothing; should it have registered, its lease passes.
            self._children.unrecovered[child.number] = bury(child, code)
            self._timers.recover_at = now
        expected = (self._phase >= Phase.DRAINING or child.is_retiring) and code == 0
        deaths = self._nursery.note_death(child, code, is_expected=expected)
        if not expected and deaths & (deaths - 1) == 0:
            # A crash loop is told at its 1st, 2nd, 4th, 8th … death.
            log.warning(
                "child died",
                role=child.role,
                number=child.number,
                pid=child.pid,
                how=describe_exit(code),
                run_id=child.run,
                reason=child.end,
                deaths=deaths,
            )
        boots_never = code == EXIT_BOOT_FAILED and not self._was_ready and deaths >= 3
        if boots_never or (_is_refused(child, code) and child.generation is self._nursery.generation):
            log.error("node cannot go on", role=child.role)
            self._exit_code = code
            self._enter(Phase.STOPPING)

    # 2 orders from outside

    def _take_signals(self) -> None:
        taken, self._signals = self._signals, set()
        for number in sorted(taken):
            match number:
                case signal.SIGTERM:
                    self._enter(Phase.DRAINING)
                case signal.SIGINT:
                    # Two at once are one: a terminal and a service manager may both have sent it.
                    if boottime() - self._timers.interrupted_at >= _SECOND_INT_SECONDS:
                        self._enter(Phase.STOPPING)
                    self._timers.interrupted_at = min(self._timers.interrupted_at, boottime())
                    self._enter(Phase.DRAINING)
                case signal.SIGQUIT:
                    self._enter(Phase.STOPPING)
                case signal.SIGUSR2:
                    self._dump()
                case signal.SIGHUP:
                    self._nursery.want_reload()

    def _enter(self, phase: Phase) -> None:
        if phase <= self._phase:
            return
        self._phase = phase
        now = boottime()
        busy = sum(child.is_executing for child in self._children)
        log.info("phase entered", phase=phase.name.lower(), running_jobs=busy)
        if phase is Phase.DRAINING:
            self._timers.drain_until = now + self._config.worker.drain_timeout
            self._tell(Role.WORKER, "DRAIN")
            self._tell(Role.SCHEDULER, "STOP")
        elif phase is Phase.STOPPING:
            # The job gets kill_grace between TERM and KILL, its worker then a little to report.
            self._timers.kill_at = now + self._config.worker.kill_grace + 2 * self._config.worker.statement_deadline
            self._tell(Role.WORKER, "STOP")
            self._tell(Role.SCHEDULER, "STOP")
        elif phase is Phase.LEAVING:
            couriers = [child for child in self._children.of(Role.COURIER) if child.is_ready]
            self._farewells = {child.number for child in couriers if child.link.send("FORGET")}
            wait = _FAREWELL_SECONDS if self._farewells else 0.0
            self._timers.leave_until = min(self._timers.leave_until, now + wait)

    def _dump(self) -> None:
        for child in self._children:
            now = boottime()
            log.info(
                "child",
                **child.describe(),
                ready=child.is_ready,
                age_seconds=round(now - child.forked_at, 1),
                budget_seconds=round(child.budget_end - now, 1),
                lease_seconds=round(child.lease_end - now, 1) if child.lease_end else None,
            )

    # 3 time

    def _keep_time(self) -> None:
        now = boottime()
        if any(now >= child.budget_end or _must_be_fenced(child, now) for child in self._children):
            # It may be us who slept: a wait that a signal ends after its time has read nothing of what they said.
            for child in self._children:
                self._read(child)
        for child in self._children:
            if now >= child.budget_end:
                self._climb_ladder(child, now)
            if _must_be_fenced(child, now):
                self._kill(child, End.FENCED)
        if now >= self._timers.wear_at and self._phase is Phase.RUNNING:
            self._timers.wear_at = now + _WEAR_SECONDS
            self._nursery.wear_out(now)
        if now >= self._timers.drain_until:
            self._timers.drain_until = float("inf")
            log.warning("drain timed out; what still runs is stopped")
            self._enter(Phase.STOPPING)
        if now >= self._timers.kill_at:
            for child in (*self._children.of(Role.WORKER), *self._children.of(Role.SCHEDULER)):
                self._kill(child, End.STOPPING)

    def _climb_ladder(self, child: Child, now: float) -> None:
        """ABRT, once, to a child that overran its budget, so that it dies with a traceback; then KILL."""
        if ladder_step(now - child.budget_end) is Step.KILL:
            self._kill(child, End.WEDGED)
        elif child.end is None:
            child.end = End.WEDGED
            log.error("child overran its budget", **child.describe())
            signal_child(child.pid, signal.SIGABRT)

    def _kill(self, child: Child, end: End) -> None:
        if not child.is_killed:
            child.is_killed = True
            child.end = child.end or end
            log.warning("child killed", **child.describe(), reason=end)
        kill_child(child.pid)

    # 4 population

    def _grow(self) -> None:
        self._nursery.keep_reloading(serves=self._serves, is_leaving=self._phase is not Phase.RUNNING)
        if self._phase is Phase.RUNNING:
            for child in self._nursery.rejected():
                self._kill(child, End.REJECTED)
        self._nursery.populate(serves=self._serves)

    # 5 orders to the courier, wakes to the workers

    def _order(self, *, has_strays: bool) -> None:
        now = boottime()
        if now >= self._timers.beat_at and self._phase < Phase.LEAVING:
            for child in self._children.of(Role.COURIER):
                if child.is_ready:
                    child.link.send("BEAT", children=self._children.of_courier(child), sent_at=now)
            # The old generation's leases may be shorter than ours.
            generations = [self._nursery.generation, *(child.generation for child in self._children)]
            self._timers.beat_at = now + min(each.config.worker.heartbeat_interval for each in generations)
        if self._children.unrecovered and not has_strays and now >= self._timers.recover_at:
            # Never before the dead worker's tree is empty, or the run would be executed twice.
            for dead in self._children.unrecovered.values():
                its = self._children.courier_of(dead.generation)
                if its is None:
                    continue
                its.link.send(
                    "RECOVER",
                    child=dead.number,
                    run=dead.run,
                    attempt=dead.attempt,
                    charged=dead.charged,
                    error=dead.error,
                    error_type=dead.error_type,
                )
            self._timers.recover_at = now + _RECOVER_AGAIN_SECONDS

    def _send_courier(self, kind: str, **data: Any) -> bool:
        child = self._children.courier_of(self._nursery.generation)
        return child is not None and child.link.send(kind, **data)

    def _tell(self, role: Role, kind: str) -> None:
        for child in self._children.of(role):
            child.link.send(kind)

    def _wake(self, count: int) -> None:
        for child in self._children.idle_workers()[:count]:
            if child.link.send("WAKE"):
                child.idle_since = None

    def _hear_of_work(self) -> None:
        """At least one run is due: wake one worker at once, and look how many more there is work for."""
        self._wakes.heard_at = boottime()
        self._wakes.was_due = True
        self._wake(1)
        if self._children.idle_workers() and not self._wakes.is_peeking:
            self._wakes.is_peeking = self._send_courier("PEEK")

    # 6 leave

    def _advance(self, *, has_strays: bool) -> None:
        """Go on to the next phase when this one is done."""
        others = self._children.of(Role.WORKER) + self._children.of(Role.SCHEDULER)
        if self._phase in (Phase.DRAINING, Phase.STOPPING) and not others and not has_strays:
            if not self._children.unrecovered or self._timers.leave_until < boottime():
                self._enter(Phase.LEAVING)
            elif self._timers.leave_until == float("inf"):
                self._timers.leave_until = boottime() + _FAREWELL_SECONDS
        if self._phase is Phase.LEAVING and self._is_forgotten:
            self._leave()
        elif self._phase is Phase.LEAVING and boottime() >= self._timers.leave_until:
            log.warning("left without a word to the database", unrecovered=len(self._children.unrecovered))
            self._leave()

    def _leave(self) -> None:
        """End the courier; whatever is left of it is killed with it."""
        for child in self._children:
            kill_child(child.pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
            child.link.close()
        self._children.by_pid.clear()
        self._phase = Phase.STOPPED

    def _tell_manager(self) -> None:
        workers = self._children.of(Role.WORKER)
        busy = sum(child.is_executing for child in workers)
        status = f"{self._phase.name.lower()}: {len(workers)} workers, {busy} busy"
        if not self._was_ready and self._phase is Phase.RUNNING:
            status = "starting: no child is ready yet; the log says why"
        elif old := sum(child.generation.number != self._nursery.generation.number for child in self._children):
            status += f", {old} processes of the configuration before"
        if self._nursery.trouble:
            status += f"; {self._nursery.trouble}"
        self._manager.tell(status, is_ready=self._was_ready, is_stopping=self._phase is not Phase.RUNNING)

    # 7 wait, and read what the children say

    def _wait(self, *, has_strays: bool) -> None:
        """Until there is something for a turn to do; what workers say of their batches is only written down."""
        poll = select.poll()
        poll.register(self._wake_receiver, select.POLLIN)
        links = {child.link.fileno(): child for child in self._children if not child.link.is_closed}
        for descriptor in links:
            poll.register(descriptor, select.POLLIN)
        latest = boottime() + _POLL_SECONDS
        has_work = False
        while not has_work:
            seconds = min(self._seconds_to_wait(has_strays=has_strays), latest - boottime())
            ready = poll.poll(max(0.0, seconds) * 1000)
            has_work = not ready or seconds <= 0
            for descriptor, _ in ready:
                has_work |= self._read(links[descriptor]) if descriptor in links else True
        with contextlib.suppress(BlockingIOError):
            while self._wake_receiver.recv(4096):
                pass

    def _seconds_to_wait(self, *, has_strays: bool) -> float:
        if has_strays:
            return 0.005
        now = boottime()
        deadlines = [self._timers.drain_until, self._timers.leave_until]
        if self._phase < Phase.LEAVING:
            deadlines.append(self._timers.beat_at)
        if self._children.unrecovered:
            deadlines.append(self._timers.recover_at)
        deadlines += [*self._nursery.deadlines(serves=self._serves), self._manager.tell_at]
        # A child that has come to its end dies when it does: no turn after turn until then.
        limits = [self._timers.kill_at, *(child.budget_end for child in self._children)]
        limits += [_last_call(child) for child in self._children if child.runs_in_hand]
        deadlines += [max(limit, now + _DYING_SECONDS) for limit in limits]
        return min(_POLL_SECONDS, max(0.0, min(deadlines) - now))

    def _read(self, child: Child) -> bool:
        """Hear what it has said; whether a turn is to follow from it, or from the end of its link."""
        messages = child.link.receive()
        for message in messages:
            self._hear(child, message)
        return child.link.is_closed or any(message["kind"] not in _NOTED for message in messages)

    def _hear(self, child: Child, message: Message) -> None:
        if "budget" in message:
            child.budget_end = boottime() + message["budget"]
            child.state = message.get("state", message["kind"].lower())
            child.end = child.end if child.is_killed else None
        match message["kind"]:
            case "READY":
                self._hear_ready(child, message)
            case "BATCH":
                child.batch, child.runs_in_hand = message["batch"], message["runs"]
                child.runs += message["fresh"]
                child.idle_since = None
            case "IDLE":
                child.runs_in_hand = ()
                child.idle_since = message["since"]
                if self._wakes.heard_at >= message["since"]:
                    self._wake_child(child)
                elif self._wakes.was_due:
                    # It was there and not to be had: somebody's lock, which nobody will announce the end of.
                    self._wakes.was_due = False
                    self._send_courier("PEEK_IN", seconds=_LOCKED_SECONDS)
            case "RETRY_IN":
                self._send_courier("PEEK_IN", seconds=message["seconds"])
            case "NOTIFIED":
                self._hear_of_work()
            case "DUE":
                self._hear_due(message)
            case "BEATEN":
                self._hear_beaten(child, message)
            case "RECOVERED":
                self._children.unrecovered.pop(message["child"], None)
            case "FORGOTTEN":
                # The next turn leaves: now other links may still have to be read.
                self._farewells.discard(child.number)
                self._is_forgotten = self._phase is Phase.LEAVING and not self._farewells

    def _wake_child(self, child: Child) -> None:
        if child.link.send("WAKE"):
            child.idle_since = None

    def _hear_ready(self, child: Child, message: Message) -> None:
        child.is_ready = True
        if child.role is Role.COURIER:
            self._has_name = True
            # It may be a new one: what the one before was asked is asked again.
            self._timers.beat_at = self._timers.recover_at = 0.0
            self._wakes.is_peeking = False
            self._wakes.back_at = boottime()
        elif child.role is Role.WORKER:
            child.lease_end = child.generation.config.worker.fence().lease_end(message["leased_at"])
        if child.is_retiring:
            retire(child)
        if child.role in self._node.roles[-1:] and not self._was_ready:
            self._was_ready = True
            log.info("node ready", worker_id=self._node.worker_id)
        if self._phase is not Phase.RUNNING and child.role is Role.WORKER:
            child.link.send("DRAIN" if self._phase is Phase.DRAINING else "STOP")

    def _hear_due(self, message: Message) -> None:
        self._wakes.is_peeking = False
        self._wakes.was_due = bool(message["due"])
        if message["due"]:
            self._wakes.heard_at = boottime()
            self._wake(message["due"])
        by_number = {child.number: child for child in self._children.of(Role.WORKER)}
        for cancel in message["cancels"]:
            if child := by_number.get(cancel["child"]):
                child.link.send("CANCEL", run=cancel["run"], attempt=cancel["attempt"])

    def _hear_beaten(self, courier: Child, message: Message) -> None:
        """A worker whose lease was not renewed has lost its row, and with it its runs, to another node."""
        renewed, asked = set(message["renewed"]), set(message["asked"])
        for child in self._children.of(Role.WORKER):
            if child.number in renewed:
                child.lease_end = courier.generation.config.worker.fence().lease_end(message["sent_at"])
                self._nursery.page.set_lease_end(child.slot, child.lease_end)
            elif child.number in asked and not (child.is_executing and child.begun[2]):
                self._kill(child, End.DISPOSSESSED)
        if message["sent_at"] >= self._wakes.back_at:
            # After an outage idle sessions may hang on a server that is gone: a turn finds out before there is work.
            # Not before a beat of now, for without a lease a worker's turn asks the database nothing.
            self._wakes.back_at = float("inf")
            self._wake(len(self._children.idle_workers()))


def _is_refused(child: Child, code: int) -> bool:
    """Whether the configuration is to blame; a worker that was ready may have been ended so by somebody's function."""
    return code == EXIT_REFUSED and not (child.role is Role.WORKER and child.is_ready)


def _last_call(child: Child) -> float:
    """From here on we kill the worker with its job, if it has not done so itself."""
    return child.generation.config.worker.fence().last_call(child.lease_end)


def _must_be_fenced(child: Child, now: float) -> bool:
    return child.is_executing and now >= _last_call(child) and not child.begun[2]
