"""A worker's life: connect, register, then turns until it is told to drain."""

import random
import select
from collections.abc import Collection, Mapping, Sequence

import structlog
from setproctitle import setproctitle

from forgeflow.config import Config
from forgeflow.domain.node import Node
from forgeflow.domain.pace import BATCH_SECONDS, WINDOW_SECONDS
from forgeflow.domain.run import Ending
from forgeflow.errors import ConfigError, SchemaMismatch, StoreError, StoreUnavailable
from forgeflow.executors.base import Executor
from forgeflow.executors.http import HttpExecutor
from forgeflow.executors.output import OutputKeeper
from forgeflow.executors.python import PythonExecutor
from forgeflow.executors.shell import ShellExecutor
from forgeflow.functions.catalogue import catalogue_id
from forgeflow.functions.registry import load_functions
from forgeflow.process.capabilities import keep_to_ourselves
from forgeflow.process.clock import boottime
from forgeflow.process.fork import EXIT_BOOT_FAILED, EXIT_REFUSED, EXIT_RESULT_REFUSED, EXIT_TRY_AGAIN
from forgeflow.process.link import Link
from forgeflow.process.page import SharedPage
from forgeflow.process.tree import become_subreaper
from forgeflow.store.connection import Connection
from forgeflow.store.nodes import register_worker
from forgeflow.store.runs import ClaimedRun, Owner
from forgeflow.store.session import open_session
from forgeflow.worker.attempt import execute_run, named
from forgeflow.worker.live import show, show_rest
from forgeflow.worker.orders import WorkerOrders
from forgeflow.worker.turn import (
    Worker,
    claim,
    connect_seconds,
    report,
    report_late,
    report_refused,
    turn_seconds,
)
from forgeflow.worker.watch import BatchWatch

log = structlog.get_logger()

_RECONNECT_SECONDS = (0.1, 2.0)
_SCARCITY_SECONDS = (0.5, 1.5)


def main(link: Link, config: Config, node: Node, child: int, page: SharedPage, slot: int, title: str) -> int:
    """The life of worker number `child` of a node.  Returns its exit code: 0 drained, 3 cannot boot, 75 again.

    75 after a connection broke in a claim: nobody can know then what this number owns, so another takes its place.
    79 after a result that the database does not take in any form; the run is charged for it.
    """
    become_subreaper()
    keep_to_ourselves()
    orders = WorkerOrders(link, page, slot, config.worker.fence())
    owner = Owner(node.boot_id, child)
    shell = ShellExecutor(config)
    if reason := shell.unfit():
        log.error("worker cannot boot", reason=reason)
        return EXIT_BOOT_FAILED
    try:
        functions, problems = load_functions(config.python.modules)
    except ConfigError as error:
        log.error("worker cannot boot", reason=str(error))
        return EXIT_BOOT_FAILED
    for problem in problems:
        log.error("function left out", reason=problem)
    executors: Mapping[str, Executor] = {
        "shell": shell,
        "http": HttpExecutor(config),
        "python": PythonExecutor(functions, config),
    }
    try:
        role = f"worker:{node.worker_id}:{child}"
        connection = _connect(link, config, orders, role)
        if connection is None:
            return 0
        worker = Worker(config, owner, link, orders, connection, executors, title, role)
        if not _register(worker, node.worker_id, functions):
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


def _register(worker: Worker, worker_id: str, functions: Collection[str]) -> bool:
    """Get a row and a lease, say what functions are here, and tell the master; False when it cannot be told."""
    asked_at = boottime()
    names = sorted(functions)
    register_worker(
        worker.connection,
        boot_id=worker.owner.boot_id,
        child=worker.owner.child,
        worker_id=worker_id,
        lease_seconds=worker.config.worker.lease_duration,
        catalogue=catalogue_id(names),
        functions=names,
    )
    worker.orders.begin_lease(asked_at)
    setproctitle(f"{worker.title} idle")
    return worker.link.send("READY", leased_at=asked_at)


def _serve(worker: Worker) -> int:
    """Passes until it is drained, or cannot go on.  Returns its exit code."""
    watch = BatchWatch(worker.talk, lambda: _relieve(worker), lambda: show(worker))
    try:
        while run_pass(worker, watch):
            pass
    except StoreUnavailable as error:
        log.warning("worker lost its connection", reason=str(error))
        try:
            report_late(worker, _pause)
        except StoreError as refused:
            return _give_up(worker, refused)
        return EXIT_TRY_AGAIN
    except StoreError as error:
        return _give_up(worker, error)
    return 0


def _give_up(worker: Worker, error: StoreError) -> int:
    log.error("worker gives up", reason=str(error))
    # Executed again for nothing, a run whose result is refused would go on for ever.
    is_refused = worker.hand.endings() and not isinstance(error, SchemaMismatch)
    return EXIT_RESULT_REFUSED if is_refused else EXIT_TRY_AGAIN


def run_pass(worker: Worker, watch: BatchWatch) -> bool:
    """One turn, and the execution of what is in hand, or the wait for more.  False when drained.

    Blocks for as long as the runs take.  Raises StoreUnavailable when the turn's outcome is unknown.
    """
    orders, hand = worker.orders, worker.hand
    orders.read()
    asked_at = boottime()
    goes_on = not orders.is_draining and not worker.is_scarce
    size = worker.pace.size(worker.config.worker.claim_batch) if goes_on else 0
    # What is left of a batch whose runs turned out long would wait here while others may be idle.
    hand.hand_back(keep=size)
    waiting = hand.waiting()
    may_claim = goes_on and orders.may_begin()
    wanted = size - len(waiting) if may_claim else 0
    if not waiting and not hand.endings():
        worker.link.send("STATE", state="turn", budget=turn_seconds(worker.config))
    try:
        if wanted > 0:
            waiting += claim(worker, wanted)
        else:
            report(worker)
    except (StoreUnavailable, SchemaMismatch):
        raise
    except StoreError as error:
        if not hand.endings():
            raise
        report_refused(worker, error)
        return True
    if waiting:
        _execute(worker, watch, waiting)
        return True
    if orders.is_draining:
        return False
    if worker.is_scarce:
        # The machine has nothing to give at the moment; the next run would fare no better.
        worker.is_scarce = False
        _pause(orders, random.uniform(*_SCARCITY_SECONDS))
        return True
    if may_claim and not worker.watermark.is_whole:
        return True
    worker.tally.tell()
    if not orders.wait_until_woken(asked_at, worker.connection.fileno()):
        raise StoreUnavailable("the database ended the session")
    return True


def _execute(worker: Worker, watch: BatchWatch, batch: Sequence[ClaimedRun]) -> None:
    """The batch in hand, until its time is over: what is left then is looked at in the next pass.

    The master sees to the fence too, of what the shared page shows as begun.
    """
    seconds = turn_seconds(worker.config)
    budget = WINDOW_SECONDS + _run_seconds(worker.config, max(run.timeout_seconds for run in batch))
    if not worker.orders.may_begin():
        # Its lease has run low on the way: the master hands it back unbegun, and another number begins anew.
        raise StoreUnavailable("the claim took too much of the lease")
    if not worker.orders.begin_batch(batch, budget):
        # A master that is frozen so long that the link is full would not know what this worker does, nor charge it.
        raise StoreUnavailable("the master does not listen; the runs are handed back unbegun")
    worker.batch, worker.is_relieved = list(batch), False
    worker.is_seen, worker.is_unseen_told, worker.seen_progress = False, False, None
    # What is short is over before anybody reads of it; should it not be, the watch tells of it.
    is_shown = not worker.pace.is_quick
    if is_shown:
        others = f" and {len(batch) - 1} more" if len(batch) > 1 else ""
        setproctitle(f"{worker.title} run {batch[0].id}{others}")
    watch.begin(is_alone=is_shown and len(batch) == 1)
    began = boottime()
    done = _execute_each(worker, began)
    worker.orders.end()
    passed = boottime() - began
    is_late = passed >= WINDOW_SECONDS
    if is_late:
        worker.link.send("ENDED", budget=2 * seconds)
    watch.end()
    show_rest(worker)
    if is_shown or is_late:
        setproctitle(f"{worker.title} idle")
    worker.pace.note(passed, done)


def _run_seconds(config: Config, timeout_seconds: float) -> float:
    """How long a run may take, and, for the end of a short batch is not told, a turn."""
    seconds = turn_seconds(config)
    return max(seconds, timeout_seconds + config.worker.kill_grace + seconds / 3)


def _execute_each(worker: Worker, began: float) -> int:
    """One run after the other, until the time of a batch is over; how many."""
    orders, hand = worker.orders, worker.hand
    done = 0
    while (run := hand.begin()) is not None:
        orders.begin(run)
        keeper = worker.keeper = OutputKeeper(worker.config.executor_shell.output_limit)
        ending = execute_run(
            run,
            worker.executors,
            orders,
            keeper,
            worker.tally,
            secrets_folder=worker.config.executor_secrets.folder,
        )
        hand.end(ending)
        done += 1
        worker.is_scarce = _is_scarce(ending)
        if boottime() - began >= BATCH_SECONDS or orders.is_stopping or worker.is_scarce:
            break
    return done


def _is_scarce(ending: Ending) -> bool:
    failure = ending.failure
    return failure is not None and failure.error_type == "not_started" and not failure.charged


def _relieve(worker: Worker) -> bool:
    """In the watching thread, when a window is over: report what has ended, hand back what has not begun.

    False when the database refuses: everything stays in hand, and is said again. A connection that was lost is made
    anew, for nothing was being claimed over it.
    """
    worker.hand.hand_back()
    run = worker.orders.begun
    if run and not worker.is_relieved:
        worker.is_relieved = True
        # No more than this one is begun: its time alone counts from here on.
        worker.link.send("STATE", state="executing", budget=_run_seconds(worker.config, run.timeout_seconds))
        setproctitle(f"{worker.title} run {run.id}")
        if not worker.tally.is_told:
            worker.tally.is_told = True
            log.info("run goes on", **named(run), job_name=run.job_name)
    try:
        if worker.connection.closed:
            worker.connection = open_session(worker.config, worker.role)
        report(worker)
    except (StoreError, ConfigError) as error:
        log.info("batch could not be reported meanwhile", reason=str(error))
        return False
    return True


def _pause(orders: WorkerOrders, seconds: float) -> bool:
    """Wait, but hear the master; False when we shall stop."""
    poll = select.poll()
    poll.register(orders.fileno(), select.POLLIN)
    deadline = boottime() + seconds
    while not orders.is_stopping and (left := deadline - boottime()) > 0:
        poll.poll(left * 1000)
        orders.read()
    return not orders.is_stopping


def _connect(link: Link, config: Config, orders: WorkerOrders, role: str) -> Connection | None:
    """A connection, however long the database is away; None when we shall drain before there is one."""
    reported = False
    while not orders.is_draining:
        link.send("STATE", state="connect", budget=connect_seconds(config))
        try:
            return open_session(config, role)
        except StoreUnavailable as error:
            if not reported:
                log.warning("worker waits for the database", reason=str(error))
                reported = True
            _pause(orders, random.uniform(*_RECONNECT_SECONDS))
            orders.read()
    return None
