"""A worker's life: connect, register, then turns until it is told to drain."""

import random
import select
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

import structlog
from setproctitle import setproctitle

from forgeflow.config import Config
from forgeflow.domain.node import Node
from forgeflow.domain.run import Ending, Output
from forgeflow.errors import ConfigError, SchemaMismatch, StoreError, StoreUnavailable
from forgeflow.executors.base import Executor
from forgeflow.executors.shell import ShellExecutor
from forgeflow.process.clock import boottime
from forgeflow.process.fork import EXIT_BOOT_FAILED, EXIT_REFUSED, EXIT_RESULT_REFUSED, EXIT_TRY_AGAIN
from forgeflow.process.link import Link
from forgeflow.process.page import SharedPage
from forgeflow.process.tree import become_subreaper
from forgeflow.store.connection import Connection, connect
from forgeflow.store.nodes import register_worker
from forgeflow.store.runs import ClaimedRun, Owner, TurnResult, announce_due, take_turn
from forgeflow.store.session import open_session
from forgeflow.worker.attempt import execute_run
from forgeflow.worker.orders import WorkerOrders

log = structlog.get_logger()

_RECONNECT_SECONDS = (0.1, 2.0)
_SCARCITY_SECONDS = (0.5, 1.5)
_OUTPUT_REFUSED = "(the database refused what the job printed; the log of its node says why)"
_WHAT_BECAME = {"pending": "run put back", "dead": "run dead", "cancelled": "run cancelled"}


@dataclass(slots=True)
class Worker:
    """What one worker process holds; `endings` are executed but not yet known to the database."""

    config: Config
    owner: Owner
    link: Link
    orders: WorkerOrders
    connection: Connection
    executors: Mapping[str, Executor]
    title: str
    endings: list[Ending] = field(default_factory=list)
    names: dict[UUID, str] = field(default_factory=dict)  # of the jobs whose runs are in `endings`


def main(link: Link, config: Config, node: Node, child: int, page: SharedPage, slot: int, title: str) -> int:
    """The life of worker number `child` of a node.  Returns its exit code: 0 drained, 3 cannot boot, 75 again.

    75 after a connection broke in a claim: nobody can know then what this number owns, so another takes its place.
    79 after a result that the database does not take in any form; the run is charged for it.
    """
    become_subreaper()
    orders = WorkerOrders(link, page, slot, config.worker.fence())
    owner = Owner(node.boot_id, child)
    shell = ShellExecutor(config)
    if reason := shell.unfit():
        log.error("worker cannot boot", reason=reason)
        return EXIT_BOOT_FAILED
    executors = {"shell": shell}
    try:
        connection = _connect(link, config, orders, f"worker:{node.worker_id}:{child}")
        if connection is None:
            return 0
        worker = Worker(config, owner, link, orders, connection, executors, title)
        if not _register(worker, node.worker_id):
            return EXIT_TRY_AGAIN  # the master is frozen, the link full; it would never know of this worker
    except SchemaMismatch as error:
        log.error("worker cannot boot", reason=str(error))
        return EXIT_BOOT_FAILED
    except ConfigError as error:
        log.error("worker is refused", reason=str(error))
        return EXIT_REFUSED
    except StoreError as error:
        log.warning("worker starts again", reason=str(error))
        return EXIT_TRY_AGAIN
    return _serve(worker)


def _register(worker: Worker, worker_id: str) -> bool:
    """Get a row and a lease, and tell the master; False when it cannot be told."""
    asked_at = boottime()
    register_worker(
        worker.connection,
        boot_id=worker.owner.boot_id,
        child=worker.owner.child,
        worker_id=worker_id,
        lease_seconds=worker.config.worker.lease_duration,
    )
    worker.orders.begin_lease(asked_at)
    setproctitle(f"{worker.title} idle")
    return worker.link.send("READY", leased_at=asked_at)


def _serve(worker: Worker) -> int:
    """Passes until it is drained, or cannot go on.  Returns its exit code."""
    try:
        while run_pass(worker):
            pass
    except StoreUnavailable as error:
        log.warning("worker lost its connection", reason=str(error))
        try:
            _report_late(worker)
        except StoreError as refused:
            return _give_up(worker, refused)
        return EXIT_TRY_AGAIN
    except StoreError as error:
        return _give_up(worker, error)
    return 0


def _give_up(worker: Worker, error: StoreError) -> int:
    log.error("worker gives up", reason=str(error))
    # Executed again for nothing, a run whose result is refused would go on for ever.
    return EXIT_RESULT_REFUSED if worker.endings and not isinstance(error, SchemaMismatch) else EXIT_TRY_AGAIN


def run_pass(worker: Worker) -> bool:
    """One turn, and the execution of what it claimed, or the wait for more.  False when drained.

    Blocks for as long as the run takes.  Raises StoreUnavailable when the turn's outcome is unknown.
    """
    worker.orders.read()
    asked_at = boottime()
    if not worker.endings:
        worker.link.send("STATE", state="turn", budget=_turn_seconds(worker.config))
    may_claim = not worker.orders.is_draining and worker.orders.may_begin()
    try:
        result = _turn(worker, max_runs=int(may_claim))
    except (StoreUnavailable, SchemaMismatch):
        raise
    except StoreError as error:
        if not worker.endings:
            raise
        _report_refused(worker, error)
        return True
    if result.claimed:
        (run,) = result.claimed
        if not worker.orders.may_begin():
            # Its lease has run low on the way: the master hands it back unbegun, and another number begins anew.
            raise StoreUnavailable("the claim took too much of the lease")
        worker.names[run.id] = run.job_name
        worker.endings.append(_execute(worker, run))
        return True
    if worker.orders.is_draining:
        return False
    if not worker.orders.wait_until_woken(asked_at, worker.connection.fileno()):
        raise StoreUnavailable("the database ended the session")
    return True


def _execute(worker: Worker, run: ClaimedRun) -> Ending:
    """From START on a job may be alive, and the master sees to the fence too; ENDED says that none is."""
    budget = run.timeout_seconds + worker.config.worker.kill_grace + _slack_seconds(worker.config)
    if not worker.link.send("START", run=run.id, attempt=run.attempt, on_lease_loss=run.on_lease_loss, budget=budget):
        # A master that is frozen so long that the link is full would not know what this worker does, nor charge it.
        raise StoreUnavailable("the master does not listen; the run is handed back unbegun")
    setproctitle(f"{worker.title} run {run.id}")
    ending = execute_run(run, worker.executors, worker.orders)
    setproctitle(f"{worker.title} idle")
    worker.link.send("ENDED", budget=_turn_seconds(worker.config))
    if ending.failure and ending.failure.error_type == "not_started" and not ending.failure.charged:
        # The machine has nothing to give at the moment; the next run would fare no better.
        _pause(worker.orders, random.uniform(*_SCARCITY_SECONDS))
    return ending


def _turn_seconds(config: Config) -> float:
    """How long a turn may take, with its repetitions; its own deadlines are shorter, so only a wedge overruns it."""
    return 4 * config.worker.statement_deadline + _slack_seconds(config)


def _slack_seconds(config: Config) -> float:
    """What a busy machine may add to any budget."""
    return 2 * config.worker.statement_deadline


def _turn(worker: Worker, *, max_runs: int) -> TurnResult:
    """Report the endings and claim; the endings are forgotten only when the database has them."""
    if not worker.endings and not max_runs:
        return TurnResult([], [], [])
    retry = worker.config.retry
    result = take_turn(
        worker.connection,
        worker.owner,
        worker.endings,
        max_runs=max_runs,
        retry_base=retry.base,
        retry_cap=retry.cap,
    )
    for run_id in result.lost:
        log.warning("stale result dropped", run_id=str(run_id))
    errors = {ending.run_id: ending.failure.error for ending in worker.endings if ending.failure}
    for failed in result.failed:
        tell = log.warning if failed.status == "dead" else log.info
        tell(
            _WHAT_BECAME[failed.status],
            run_id=str(failed.id),
            job_name=worker.names.get(failed.id),
            reason=errors.get(failed.id),
            retry_in_seconds=failed.retry_in_seconds,
        )
        if failed.retry_in_seconds is not None:
            worker.link.send("RETRY_IN", seconds=failed.retry_in_seconds)
    worker.endings.clear()
    worker.names.clear()
    if result.frees_held:
        announce_due(worker.connection)  # our own claim may have been for another run, or none
    return result


def _report_refused(worker: Worker, error: StoreError) -> None:
    """A turn was refused for what was in it: report without a claim, then without what the jobs printed."""
    log.error("turn refused", reason=str(error))
    try:
        _turn(worker, max_runs=0)
    except StoreUnavailable:
        raise
    except StoreError:
        worker.endings = [
            replace(ending, output=Output(_OUTPUT_REFUSED, "", ending.output.total_bytes)) for ending in worker.endings
        ]
        _turn(worker, max_runs=0)


def _report_late(worker: Worker) -> None:
    """Give the endings to the database over a new connection, for as long as our lease lives, and one lease more.

    May repeat what has already been committed, or come when the run is another's: the fence then answers that it is
    not ours any more.  Raises StoreError when it is refused.
    """
    deadline = boottime() + worker.config.worker.lease_duration
    while worker.endings and (worker.orders.has_lease() or boottime() < deadline):
        worker.link.send("STATE", state="report", budget=_connect_seconds(worker.config))
        try:
            worker.connection.close()
            worker.connection = connect(worker.config, "worker:late")
            try:
                _turn(worker, max_runs=0)
            except (StoreUnavailable, SchemaMismatch):
                raise
            except StoreError as error:
                _report_refused(worker, error)
        except StoreUnavailable:
            if not _pause(worker.orders, random.uniform(*_RECONNECT_SECONDS)):
                return


def _pause(orders: WorkerOrders, seconds: float) -> bool:
    """Wait, but hear the master; False when we shall stop."""
    poll = select.poll()
    poll.register(orders.fileno(), select.POLLIN)
    deadline = boottime() + seconds
    while not orders.is_stopping and (left := deadline - boottime()) > 0:
        poll.poll(left * 1000)
        orders.read()
    return not orders.is_stopping


def _connect_seconds(config: Config) -> float:
    """A connection is tried for each address of the URL; after that it is paused, and said again."""
    return 4 * (config.database.connect_timeout + config.worker.statement_deadline)


def _connect(link: Link, config: Config, orders: WorkerOrders, role: str) -> Connection | None:
    """A connection, however long the database is away; None when we shall drain before there is one."""
    reported = False
    while not orders.is_draining:
        link.send("STATE", state="connect", budget=_connect_seconds(config))
        try:
            return open_session(config, role)
        except StoreUnavailable as error:
            if not reported:
                log.warning("worker waits for the database", reason=str(error))
                reported = True
            _pause(orders, random.uniform(*_RECONNECT_SECONDS))
            orders.read()
    return None
