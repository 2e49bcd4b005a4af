"""A worker's turn with the database: report what has ended, claim what is next; and what to do when it is refused."""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import structlog

from forgeflow.config import Config
from forgeflow.domain.pace import Pace
from forgeflow.domain.run import Ending, Output
from forgeflow.errors import SchemaMismatch, StoreError, StoreUnavailable
from forgeflow.executors.base import Executor
from forgeflow.executors.output import OutputKeeper
from forgeflow.process.clock import boottime
from forgeflow.process.link import Link
from forgeflow.store.connection import Connection, connect
from forgeflow.store.runs import WHOLE_QUEUE, Bounds, ClaimedRun, FailedRun, Owner, announce_due, take_turn
from forgeflow.worker.hand import Hand
from forgeflow.worker.orders import WorkerOrders
from forgeflow.worker.tally import Tally
from forgeflow.worker.watermark import Watermark

log = structlog.get_logger()

_RECONNECT_SECONDS = (0.1, 2.0)
_OUTPUT_REFUSED = "(the database refused what the job printed; the log of its node says why)"
_ERROR_REFUSED = "(the database refused the error as it was; the log of the node says why)"
_WHAT_BECAME = {"pending": "run put back", "dead": "run dead", "cancelled": "run cancelled"}


@dataclass(slots=True)
class Worker:
    """What one worker process holds. `talk` is held by whoever uses the connection."""

    config: Config
    owner: Owner
    link: Link
    orders: WorkerOrders
    connection: Connection
    executors: Mapping[str, Executor]
    title: str
    role: str
    hand: Hand = field(default_factory=Hand)
    pace: Pace = field(default_factory=Pace)
    watermark: Watermark = field(default_factory=Watermark)
    tally: Tally = field(default_factory=Tally)
    talk: threading.RLock = field(default_factory=threading.RLock)
    is_relieved: bool = False  # the batch at hand has outlasted its window
    is_scarce: bool = False  # the machine could not start the last run
    names: dict[UUID, str] = field(default_factory=dict)  # of the jobs whose runs are in hand
    batch: list[ClaimedRun] = field(default_factory=list)  # what the master was told of last, endings included
    keeper: OutputKeeper | None = None  # of the run that was begun last
    is_seen: bool = False  # a piece of what the run that goes on has printed was written
    is_unseen_told: bool = False  # the log says that one was not
    seen_progress: tuple[int | None, str] | None = None


def claim(worker: Worker, max_runs: int) -> list[ClaimedRun]:
    """Report all endings and claim up to `max_runs`, in one round trip.

    Raises StoreUnavailable when the outcome is unknown, StoreError when it was refused: the endings are kept.
    """
    with worker.talk:
        bounds = worker.watermark.bounds(boottime())
        claimed = _turn(worker, worker.hand.endings(), max_runs=max_runs, bounds=bounds)
        worker.watermark.note(claimed, max_runs)
    worker.hand.take(claimed)
    worker.names.update((run.id, run.job_name) for run in claimed)
    return claimed


def report(worker: Worker) -> None:
    """Report all endings, the successes first: they wait for no lock of another job.  Raises as `claim`."""
    with worker.talk:
        endings = worker.hand.endings()
        for part in (
            [ending for ending in endings if ending.failure is None],
            [ending for ending in endings if ending.failure is not None],
        ):
            if part:
                _turn(worker, part)


def _turn(
    worker: Worker, endings: Sequence[Ending], *, max_runs: int = 0, bounds: Bounds = WHOLE_QUEUE
) -> list[ClaimedRun]:
    """The endings are forgotten only when the database has them."""
    retry = worker.config.retry
    result = take_turn(
        worker.connection,
        worker.owner,
        endings,
        max_runs=max_runs,
        bounds=bounds,
        retry_base=retry.base,
        retry_cap=retry.cap,
    )
    worker.hand.forget(endings)
    for run_id in result.lost:
        log.warning("stale result dropped", run_id=str(run_id))
    ended = {ending.run_id: ending for ending in endings}
    _tell_what_became(worker, ended, [run for run in result.failed if run.begun])
    handed_back = sum(not ending.is_begun for ending in endings)
    if handed_back:
        log.info("runs handed back before they began", count=handed_back)
    if result.frees_held or handed_back:
        announce_due(worker.connection)  # our own claim may have been for another run, or none
    for ending in endings:
        worker.names.pop(ending.run_id, None)
    return result.claimed


def _tell_what_became(worker: Worker, ended: Mapping[UUID, Ending], failed: Sequence[FailedRun]) -> None:
    for run in failed:
        failure = ended[run.id].failure
        tell = log.warning if run.status == "dead" else log.info
        tell(
            _WHAT_BECAME[run.status],
            run_id=str(run.id),
            job_name=worker.names.get(run.id),
            reason=failure and failure.error,
            retry_in_seconds=run.retry_in_seconds,
        )
        if run.retry_in_seconds is not None:
            worker.link.send("RETRY_IN", seconds=run.retry_in_seconds)


def report_refused(worker: Worker, error: StoreError) -> None:
    """A turn was refused for what was in it: report each ending alone, without its texts where that is refused.

    Raises StoreError for the one that is refused even so; the master is told which run it is, by the shared page.
    """
    log.error("turn refused", reason=str(error))
    with worker.talk:
        for ending in worker.hand.endings():
            run = next((run for run in worker.batch if run.id == ending.run_id), None)
            if run and ending.is_begun:
                worker.orders.charge(run)
            try:
                _turn(worker, [ending])
            except (StoreUnavailable, SchemaMismatch):
                raise
            except StoreError:
                _turn(worker, [_shortened(ending)])


def _shortened(ending: Ending) -> Ending:
    """Without anything in it that comes from a job."""
    output = Output(_OUTPUT_REFUSED, "", ending.output.total_bytes)
    return replace(ending, output=output, failure=ending.failure and replace(ending.failure, error=_ERROR_REFUSED))


def report_late(worker: Worker, pause: Callable[[WorkerOrders, float], bool]) -> None:
    """Give the endings to the database over a new connection, for as long as our lease lives, and one lease more.

    May repeat what has already been committed, or come when the run is another's: the fence then answers that it is
    not ours any more.  Raises StoreError when it is refused.
    """
    deadline = boottime() + worker.config.worker.lease_duration
    while worker.hand.endings() and (worker.orders.has_lease() or boottime() < deadline):
        worker.link.send("STATE", state="report", budget=connect_seconds(worker.config))
        try:
            worker.connection.close()
            worker.connection = connect(worker.config, "worker:late")
            try:
                report(worker)
            except (StoreUnavailable, SchemaMismatch):
                raise
            except StoreError as error:
                report_refused(worker, error)
        except StoreUnavailable:
            if not pause(worker.orders, random.uniform(*_RECONNECT_SECONDS)):
                return


def turn_seconds(config: Config) -> float:
    """How long a turn may take, with its repetitions and what a busy machine adds; only a wedge overruns it."""
    return 6 * config.worker.statement_deadline


def connect_seconds(config: Config) -> float:
    """A connection is tried for each address of the URL; after that it is paused, and said again."""
    return 4 * (config.database.connect_timeout + config.worker.statement_deadline)
