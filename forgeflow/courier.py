"""The courier: a node's own database work, on the master's orders, over one listening connection.

Orders: BEAT (children), PEEK, PEEK_IN (seconds), RECOVER (child, run, attempt, charged, error, error_type), FORGET,
STOP.
Answers: READY, BEATEN (children whose lease was renewed), DUE (due, cancels), NOTIFIED, RECOVERED (child),
FORGOTTEN. An order whose answer was lost in a broken connection is not answered; the master orders it again.
By itself it only listens, keeps the timer of the next due run and takes back the runs of other nodes' dead workers.
"""

import os
import random
import select
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from uuid import UUID

import structlog
from psycopg import Notify

from forgeflow.config import Config
from forgeflow.domain.clock import ClockWatch
from forgeflow.domain.node import Node
from forgeflow.domain.run import Verdict
from forgeflow.errors import ConfigError, SchemaMismatch, StoreBusy, StoreError, StoreUnavailable
from forgeflow.process.clock import boottime
from forgeflow.process.fork import EXIT_BOOT_FAILED, EXIT_REFUSED, EXIT_TRY_AGAIN
from forgeflow.process.link import Link, Message
from forgeflow.store import nodes, runs
from forgeflow.store.connection import Connection
from forgeflow.store.listener import listen, prove_listening, take_notifications
from forgeflow.store.nodes import AheadNode
from forgeflow.store.runs import Owner
from forgeflow.store.session import open_session

log = structlog.get_logger()

_ECHO_SECONDS = 30.0
_RECONNECT_SECONDS = (0.1, 2.0)
_MAX_EXPIRED = 50
# Of one message: some 70 bytes each, and a link takes 64 KiB. What gets lost is said again after the next beat.
_MAX_CANCELS = 200
# A node without workers that is gone keeps its row for so many looks at the leases.
_STALE_LOOKS = 6
_LEASE_PASSED = Verdict(
    "lost", "the lease of its worker passed: the node died or lost the database", charged=True, all_begun=True
)
_STARTED_AGAIN = Verdict(
    "lost", "its node died; it was started again under the same name", charged=True, all_begun=True
)
# A share of the heartbeat interval that a busy machine may add to a budget, or be late with a beat.
_SLACK = 0.5


@dataclass(slots=True)
class _Timers:
    """When to do what next, on CLOCK_BOOTTIME; None: not at all."""

    recover_at: float
    echo_at: float
    stale_at: float = 0.0
    peek_at: float | None = None
    echo_heard_at: float | None = None


class Courier:
    """One connection and what is to be done over it."""

    def __init__(self, link: Link, config: Config, node: Node) -> None:
        self._link = link
        self._config = config
        self._node = node
        self._connection: Connection | None = None
        now = boottime()
        self._timers = _Timers(recover_at=now, echo_at=now)
        self._clock = _watch_clock(config)
        self._may_be_ahead = True
        self._silent_since: dict[AheadNode, float] = {}
        self._is_cut_off = False
        self._is_name_settled = False
        self._rival_beats: dict[UUID, datetime] = {}
        self._refused: set[Owner] = set()
        self._orders: list[Message] = []
        self._expired: list[Owner] = []
        self.is_stopped = False

    def run_pass(self) -> None:
        """Connect when necessary, wait for an order, a notification or a timer, and deal with it.

        Blocks until one of them comes.  Raises SchemaMismatch; every other trouble with the database is logged once
        and ends the connection.
        """
        if self._connection is None and not self._reconnect():
            return
        assert self._connection is not None
        try:
            self._link.send("STATE", state="wait", budget=self._wait_seconds() + self._order_seconds())
            self._wait(self._connection)
            # One order a pass, and one worker of others, so that a beat never waits for more than one slow lock.
            self._orders = _most_urgent_first([*self._orders, *self._link.receive()])
            if self._orders:
                self._link.send("STATE", state="order", budget=self._order_seconds())
                self._try(partial(self._obey, message=self._orders.pop(0)))
            self._link.send("STATE", state="order", budget=self._order_seconds())
            self._try(self._keep_time)
            # Last, for a notification that comes with a statement's answer leaves nothing on the socket to wake us.
            for notification in take_notifications(self._connection):
                self._hear(notification)
        except StoreUnavailable as error:
            log.warning("courier has no database", reason=str(error))
            self._is_cut_off = True
            self._connection.close()
            self._connection = None
        if self._link.is_closed:
            self.is_stopped = True

    def _try(self, work: Callable[[Connection], object]) -> None:
        """One piece of work; a lock that is held for long must not keep the next one, a beat perhaps, waiting."""
        assert self._connection is not None
        try:
            work(self._connection)
        except StoreBusy as error:
            log.debug("order put off", reason=str(error))  # it is ordered again, or comes with its timer

    def _wait_seconds(self) -> float:
        """It wakes for a beat at least that often; a frozen courier must be replaced while leases still live."""
        return self._config.worker.heartbeat_interval

    def _order_seconds(self) -> float:
        """A pass is a few statements, each with its deadline; the first that misses it ends the pass."""
        return self._config.worker.statement_deadline + _SLACK * self._config.worker.heartbeat_interval

    def _reconnect(self) -> bool:
        self._link.send("STATE", state="connect", budget=4 * self._config.database.connect_timeout + 10.0)
        try:
            connection = open_session(self._config, f"courier:{self._node.worker_id}")
            self._settle_name(connection)
            listen(connection, f"{self._config.database.schema_name}_due")
        except StoreUnavailable as error:
            if not self._is_cut_off:
                log.warning("courier has no database", reason=str(error))
            self._is_cut_off = True
            self._pause(random.uniform(*_RECONNECT_SECONDS))
            return False
        if self._is_cut_off:
            log.info("courier has the database again")
        self._is_cut_off = False
        self._connection = connection
        now = boottime()
        # What was asked for before is asked for again after READY.
        self._orders, self._expired = [], []
        # The first look at the leases only reads the clock, and holds off recovery.
        self._timers = _Timers(recover_at=now, echo_at=now, peek_at=now)
        self._clock = _watch_clock(self._config)
        self._may_be_ahead = True
        self._link.send("READY")
        return True

    def _settle_name(self, connection: Connection) -> None:
        """Be the only node of our name before the first beat; the master starts nothing else before that.

        One that died on this machine is taken over at once, with its runs. Another one is waited for until its lease
        has passed; one that goes on beating keeps the name.  Raises ConfigError, StoreUnavailable to wait.
        """
        if self._is_name_settled:
            return
        for rival in nodes.rival_nodes(connection, worker_id=self._node.worker_id, boot_id=self._node.boot_id):
            is_near = rival.machine == self._node.machine
            if is_near and (rival.pid == self._node.pid or not _is_master(rival.pid)):
                self._take_over(connection, rival.boot_id)
            elif rival.is_alive:
                beat_before = self._rival_beats.setdefault(rival.boot_id, rival.heartbeat_at)
                if beat_before != rival.heartbeat_at:
                    raise ConfigError(
                        f"another living node is called {self._node.worker_id} (host {rival.hostname}, pid "
                        f"{rival.pid}): give each node a worker.id of its own (FORGEFLOW_WORKER_ID)"
                    )
                connection.close()
                raise StoreUnavailable(
                    f"a node called {self._node.worker_id} (host {rival.hostname}, pid {rival.pid}) has a lease: "
                    "waiting until it beats again or the lease has passed"
                )
        self._is_name_settled = True

    def _take_over(self, connection: Connection, boot_id: UUID) -> None:
        for worker in nodes.node_workers(connection, boot_id=boot_id):
            self._recover(connection, Owner(boot_id, worker.child), _STARTED_AGAIN)
        nodes.delete_node(connection, boot_id=boot_id)
        log.warning("old node of this name taken over", boot_id=str(boot_id))

    def _pause(self, seconds: float) -> None:
        """Wait without a connection: orders are read and dropped, but STOP."""
        deadline = boottime() + seconds
        poll = select.poll()
        poll.register(self._link.fileno(), select.POLLIN)
        while not self.is_stopped and (left := deadline - boottime()) > 0:
            poll.poll(left * 1000)
            self.is_stopped = any(message["kind"] == "STOP" for message in self._link.receive()) or self._link.is_closed

    def _wait(self, connection: Connection) -> None:
        if self._orders or self._expired:
            return
        timers = self._timers
        deadlines = [timers.recover_at, timers.echo_at, *([timers.peek_at] if timers.peek_at is not None else [])]
        poll = select.poll()
        poll.register(self._link.fileno(), select.POLLIN)
        poll.register(connection.fileno(), select.POLLIN)
        poll.poll(max(0.0, (min(deadlines) - boottime()) * 1000 + 1))

    def _hear(self, notification: Notify) -> None:
        if notification.payload == "":
            self._link.send("NOTIFIED")
        elif notification.payload == "cancel":
            self._timers.peek_at = boottime()
        elif notification.payload == str(self._node.boot_id):
            self._timers.echo_heard_at = boottime()

    def _obey(self, connection: Connection, message: Message) -> None:
        match message["kind"]:
            case "BEAT":
                self._beat(connection, message["children"], message["sent_at"])
                self._peek(connection)
            case "PEEK":
                self._peek(connection)
            case "PEEK_IN":
                at = boottime() + message["seconds"]
                self._timers.peek_at = min(at, self._timers.peek_at or at)
            case "RECOVER":
                self._recover_own(connection, message)
            case "FORGET":
                nodes.delete_node(connection, boot_id=self._node.boot_id)
                # What this node has handed back, the others shall not find by chance.
                runs.announce_due(connection)
                self._link.send("FORGOTTEN")
            case "STOP":
                self.is_stopped = True

    def _beat(self, connection: Connection, children: list[int], sent_at: float) -> None:
        node = self._node
        beat = nodes.beat_node(
            connection,
            boot_id=node.boot_id,
            worker_id=node.worker_id,
            hostname=node.hostname,
            machine=node.machine,
            pid=node.pid,
            roles=node.roles,
            concurrency=node.concurrency,
            version=node.version,
            children=children,
            lease_seconds=self._config.worker.lease_duration,
        )
        self._link.send("BEATEN", asked=children, renewed=beat.children, sent_at=sent_at)

    def _peek(self, connection: Connection) -> None:
        peek = runs.peek_queue(connection, boot_id=self._node.boot_id, max_due=self._node.concurrency)
        self._link.send("DUE", due=peek.due, cancels=peek.cancels[:_MAX_CANCELS])
        for first in range(_MAX_CANCELS, len(peek.cancels), _MAX_CANCELS):
            self._link.send("DUE", due=0, cancels=peek.cancels[first : first + _MAX_CANCELS])
        self._timers.peek_at = None if peek.next_due_seconds is None else boottime() + peek.next_due_seconds

    def _recover_own(self, connection: Connection, message: Message) -> None:
        """Hand back what a dead worker of this node owned; the master has seen its whole tree end."""
        verdict = Verdict(
            message["error_type"],
            message["error"],
            charged=message["charged"],
            begun_run=UUID(message["run"]) if message["run"] else None,
            begun_attempt=message["attempt"],
        )
        if self._recover(connection, Owner(self._node.boot_id, message["child"]), verdict):
            self._link.send("RECOVERED", child=message["child"])

    def _recover(self, connection: Connection, owner: Owner, verdict: Verdict, *, only_expired: bool = False) -> bool:
        """Whether it was done; a worker whose recovery the database refuses must not keep the node from its beats."""
        retry = self._config.retry
        try:
            recovered = runs.recover_worker(
                connection, owner, verdict, only_expired=only_expired, retry_base=retry.base, retry_cap=retry.cap
            )
        except (StoreUnavailable, SchemaMismatch):
            raise
        except StoreError as error:
            if owner not in self._refused:
                self._refused.add(owner)
                log.error("recovery refused; it is tried again", child=owner.child, reason=str(error))
            return False
        for run in recovered:
            if run.begun:
                log.warning(
                    "run recovered", run_id=str(run.id), status=run.status, child=owner.child, reason=verdict.error
                )
        if untouched := sum(not run.begun for run in recovered):
            log.warning("runs recovered before they began", count=untouched, child=owner.child, reason=verdict.error)
        if recovered:
            runs.announce_due(connection)
        return True

    def _keep_time(self, connection: Connection) -> None:
        now, timers = boottime(), self._timers
        if now >= timers.echo_at:
            timers.echo_at = now + _ECHO_SECONDS
            if not prove_listening(connection, f"{self._config.database.schema_name}_due", str(self._node.boot_id)):
                log.warning("notifications are refused, their queue is full; polling instead")
                timers.echo_heard_at = None
        if self._expired:
            self._try(partial(self._recover, owner=self._expired.pop(0), verdict=_LEASE_PASSED, only_expired=True))
        elif now >= timers.recover_at:
            timers.recover_at = now + self._config.worker.recovery_interval
            self._find_expired(connection)
        if timers.peek_at is not None and now >= timers.peek_at:
            self._peek(connection)
        if timers.echo_heard_at is None or now - timers.echo_heard_at > 2 * _ECHO_SECONDS:
            at = now + self._config.worker.poll_interval
            timers.peek_at = min(at, timers.peek_at or at)

    def _find_expired(self, connection: Connection) -> None:
        """Whose runs are to be taken back: workers whose lease has passed, for their nodes are gone or cut off.

        After an outage, or a step of the database's clock, every lease may have passed: the living renew theirs
        before anybody's runs are taken.
        """
        asked_at = boottime()
        look = nodes.expired_workers(connection, max_rows=_MAX_EXPIRED)
        step = self._clock.read(look.clock_seconds, asked_at=asked_at, heard_at=boottime())
        if step != 0.0:
            self._timers.recover_at = boottime() + (1 + _SLACK) * self._config.worker.heartbeat_interval
            self._may_be_ahead = True
            if step is not None:
                log.warning(
                    "the database's clock was set; recovery waits for the next beats", step_seconds=round(step, 3)
                )
            return
        self._expired = [Owner(worker.boot_id, worker.child) for worker in look.owners()]
        self._expire_silent(connection)
        if self._expired:
            self._timers.stale_at = 0.0  # when these are recovered, nothing may be left of their nodes
        elif boottime() >= self._timers.stale_at:
            self._timers.stale_at = boottime() + _STALE_LOOKS * self._config.worker.recovery_interval
            for worker_id in nodes.delete_stale_nodes(connection):
                log.warning("node gone", worker_id=worker_id)

    def _expire_silent(self, connection: Connection) -> None:
        """End the leases that the clock, set back, would keep alive for as long as it was set back.

        Whoever lives beats again and is ahead no more. Who does not for a whole lease, by our own clock, is dead, or
        has fenced its jobs.
        """
        if not self._may_be_ahead:
            return
        now = boottime()
        self._silent_since = {node: self._silent_since.get(node, now) for node in nodes.ahead_nodes(connection)}
        self._may_be_ahead = bool(self._silent_since)
        for node, since in self._silent_since.items():
            if now - since >= node.lease_seconds:
                worker_id = nodes.expire_node(connection, boot_id=node.boot_id, heartbeat_at=node.heartbeat_at)
                if worker_id is not None:
                    log.warning("node silent since the clock was set back; its lease is ended", worker_id=worker_id)


def _watch_clock(config: Config) -> ClockWatch:
    """A node stops its jobs `fence_margin` before its lease ends, by its own clock: a smaller step does no harm."""
    return ClockWatch(tolerance=(config.worker.fence_margin - config.worker.fence_grace) / 2)


def _most_urgent_first(messages: list[Message]) -> list[Message]:
    """Beats before all else, for leases hang on them, and only the latest; what was ordered again only once."""
    beats = [message for message in messages if message["kind"] == "BEAT"]
    kept: list[Message] = []
    for message in messages:
        if message["kind"] == "PEEK_IN" or (message["kind"] != "BEAT" and message not in kept):
            kept.append(message)
    return beats[-1:] + kept


def _is_master(pid: int) -> bool:
    """Whether that process of this machine may be a node's master; its number may have gone to another program.

    One that we cannot look at, because /proc hides what is not ours, lives and is taken for one.
    """
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"forgeflow: master")
    except OSError:
        return _lives(pid)


def _lives(pid: int) -> bool:
    """Also of a process that is not ours to signal."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main(link: Link, config: Config, node: Node) -> int:
    """The courier's life.  Returns its exit code: 0 told to stop, 3 the schema does not fit, 75 to be tried again."""
    courier = Courier(link, config, node)
    try:
        while not courier.is_stopped:
            courier.run_pass()
    except SchemaMismatch as error:
        log.error("courier cannot boot", reason=str(error))
        return EXIT_BOOT_FAILED
    except ConfigError as error:
        log.error("courier is refused", reason=str(error))
        return EXIT_REFUSED
    except StoreError as error:
        log.error("courier starts again", reason=str(error))
        return EXIT_TRY_AGAIN
    return 0
