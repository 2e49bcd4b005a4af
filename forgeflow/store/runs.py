"""Statements about runs: claim, finish, recover, look."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import errors as pg
from psycopg.types.json import Jsonb

from forgeflow.domain.run import Ending, Failure, Verdict
from forgeflow.errors import StoreBusy, StoreUnavailable
from forgeflow.store.connection import Connection, transaction, translated
from forgeflow.store.listener import tell
from forgeflow.store.nodes import delete_worker
from forgeflow.store.statements import execute, fetch_all, fetch_one, send

_TURN_TRIES = 10


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run that this worker owns, with all that is needed to execute it."""

    id: UUID
    job_id: UUID
    job_name: str
    executor: str
    payload: dict[str, Any]
    timeout_seconds: float
    timezone: str
    on_lease_loss: str
    attempt: int
    failures: int
    max_attempts: int
    scheduled_for: datetime
    is_catch_up: bool
    priority: int
    run_after: datetime


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where in the queue a claim begins to look: after one place of each priority, 1 to 9, as literals of arrays."""

    at: str
    id: str


@dataclass(frozen=True, slots=True)
class FailedRun:
    """What became of a failed attempt, or of a claim that was not begun; `retry_in_seconds`: it is pending again."""

    id: UUID
    status: str
    retry_in_seconds: float | None
    begun: bool
    frees_held: bool = False


@dataclass(frozen=True, slots=True)
class CancelledRun:
    """What somebody cancelled; running still, it was asked to stop."""

    id: UUID
    status: str
    frees_held: bool


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that has succeeded; `frees_held`: another one of its job may have become due by that."""

    id: UUID
    frees_held: bool


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as the API shows it."""

    id: UUID
    job_id: UUID
    job_name: str
    status: str
    attempt: int
    failures: int
    max_attempts: int
    trigger: str
    is_catch_up: bool
    scheduled_for: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker_id: str | None
    lease_expires: datetime | None
    next_attempt_at: datetime | None
    outcome: str | None
    exit_code: int | None
    signal: int | None
    http_status: int | None
    progress: int | None
    progress_note: str | None
    error: str | None
    error_type: str | None
    retry_of: UUID | None
    cancel_requested_at: datetime | None
    is_held: bool
    missing_function: str | None
    payload: dict[str, Any] | None
    output_head: str
    output_tail: str
    output_bytes: int


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An ended attempt that was not its run's last."""

    attempt: int
    worker_id: str | None
    started_at: datetime
    ended_at: datetime
    charged: bool
    outcome: str
    exit_code: int | None
    signal: int | None
    http_status: int | None
    error: str
    error_type: str
    output_head: str
    output_tail: str
    output_bytes: int


@dataclass(frozen=True, slots=True)
class StatusCount:
    status: str
    count: int


@dataclass(frozen=True, slots=True)
class QueuePeek:
    """What is due, when the next run will be (None: nothing is waiting), and which of this node's runs shall stop."""

    due: int
    next_due_seconds: float | None
    cancels: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Owner:
    """A worker process, as the fence names it."""

    boot_id: UUID
    child: int


@dataclass(frozen=True, slots=True)
class LockedRuns:
    """What is unfinished of a job that is being decided on: how many runs, how many of them running or held.

    `first_id` is one that goes on or comes first, `due_at` when the soonest of what waits for a worker is due.
    """

    total: int
    running: int
    held: int
    first_id: UUID | None
    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class JobRuns(LockedRuns):
    """The same of one job among others; when `locked` is less than `total`, somebody is at work on one just now."""

    job_id: UUID
    locked: int


@dataclass(frozen=True, slots=True)
class UnfinishedRow:
    job_id: UUID
    run_id: UUID


@dataclass(frozen=True, slots=True)
class FinishedRow:
    """A finished run that is held; `job_overlap` is None when its job is not there any more."""

    id: UUID
    job_id: UUID
    status: str
    job_overlap: str | None


@dataclass(frozen=True, slots=True)
class RetriesOf:
    """Which runs have retried a finished one; `fits`: its own payload is one that its job takes."""

    id: UUID
    unfinished_id: UUID | None
    ended_id: UUID | None
    fits: bool


@dataclass(frozen=True, slots=True)
class MadeRetry:
    id: UUID
    retry_of: UUID


@dataclass(frozen=True, slots=True)
class RunIsAt:
    id: UUID
    status: str


@dataclass(frozen=True, slots=True)
class RowId:
    id: UUID


@dataclass(frozen=True, slots=True)
class TurnResult:
    """One turn's outcome: the claimed runs, what became of the failed ones, and the reports that nobody wanted.

    `frees_held`: runs that waited for others of their jobs may have become due, and nobody was told.
    """

    claimed: list[ClaimedRun]
    failed: list[FailedRun]
    lost: list[UUID]
    frees_held: bool = False


WHOLE_QUEUE = Bounds(f"{{{','.join(['-infinity'] * 9)}}}", f"{{{','.join([str(UUID(int=0))] * 9)}}}")


def _report(ending: Ending) -> dict[str, Any]:
    """What every ending says; a code that it has not is left out, for most have one of the three."""
    codes = {"exit_code": ending.exit_code, "signal": ending.signal, "http_status": ending.http_status}
    return {
        "id": str(ending.run_id),
        "attempt": ending.attempt,
        **{name: code for name, code in codes.items() if code is not None},
        "output_head": ending.output.head,
        "output_tail": ending.output.tail,
        "output_bytes": ending.output.total_bytes,
    }


def _finish_reports(reports: Sequence[Ending]) -> Jsonb:
    return Jsonb([_report(report) for report in reports])


def _postponement(failure: Failure) -> dict[str, Any]:
    if not failure.is_later:
        return {}
    return {"is_later": True, "retry_after": failure.retry_after_seconds}


def _fail_reports(reports: Sequence[Ending]) -> Jsonb:
    rows = []
    for report in reports:
        failure = report.failure or Failure("failed", "failed", charged=True)
        rows.append(
            {
                **_report(report),
                "begun": report.is_begun,
                "charged": failure.charged,
                "error": failure.error,
                "error_type": failure.error_type,
                **_postponement(failure),
            }
        )
    return Jsonb(rows)


def claim_runs(
    connection: Connection,
    *,
    boot_id: UUID,
    child: int,
    max_runs: int,
    marks_at: str = WHOLE_QUEUE.at,
    marks_id: str = WHOLE_QUEUE.id,
    now: datetime | None = None,
) -> list[ClaimedRun]:
    """Up to `max_runs` (1 to 1000) due runs, now owned by this worker; [] when nothing is due or its lease is gone.

    Waits for nobody. A caller whose connection breaks in here cannot know what it owns.
    """
    parameters = {
        "boot_id": boot_id,
        "child": child,
        "max_runs": max_runs,
        "marks_at": marks_at,
        "marks_id": marks_id,
        "now": now,
    }
    return fetch_all(connection, "runs/claim_runs", ClaimedRun, parameters, prepare=True)


def finish_runs(connection: Connection, *, boot_id: UUID, child: int, reports: Sequence[Ending]) -> list[FinishedRun]:
    """End succeeded runs.  Returns those that were still this worker's; may be repeated when its answer was lost."""
    parameters = {"boot_id": boot_id, "child": child, "reports": _finish_reports(reports)}
    return fetch_all(connection, "runs/finish_runs", FinishedRun, parameters, prepare=True)


def fail_runs(
    connection: Connection,
    *,
    boot_id: UUID,
    child: int,
    reports: Sequence[Ending],
    retry_base: float,
    retry_cap: float,
) -> list[FailedRun]:
    """End attempts that did not succeed: retry, dead or cancelled.  Returns those that were still this worker's."""
    parameters = {
        "boot_id": boot_id,
        "child": child,
        "reports": _fail_reports(reports),
        "retry_base": retry_base,
        "retry_cap": retry_cap,
    }
    return fetch_all(connection, "runs/fail_runs", FailedRun, parameters)


def recover_runs(
    connection: Connection,
    *,
    boot_id: UUID,
    child: int,
    worker_id: str | None,
    begun_run: UUID | None,
    begun_attempt: int | None,
    all_begun: bool,
    error: str,
    error_type: str,
    charged: bool,
    retry_base: float,
    retry_cap: float,
) -> list[FailedRun]:
    """Hand back what a dead worker owned; `recover_worker` is the whole transaction."""
    parameters = {
        "boot_id": boot_id,
        "child": child,
        "worker_id": worker_id,
        "begun_run": begun_run,
        "begun_attempt": begun_attempt,
        "all_begun": all_begun,
        "error": error,
        "error_type": error_type,
        "charged": charged,
        "retry_base": retry_base,
        "retry_cap": retry_cap,
    }
    return fetch_all(connection, "runs/recover_runs", FailedRun, parameters)


def enqueue_run(
    connection: Connection,
    *,
    job_id: UUID,
    trigger: str,
    payload: Mapping[str, Any] | None = None,
    is_held: bool = False,
) -> UUID | None:
    """A run that is due now, or held; None when the job is missing or cancelled.  Waits for a change of the job."""
    parameters = {
        "job_id": job_id,
        "trigger": trigger,
        "payload": None if payload is None else Jsonb(payload),
        "is_held": is_held,
    }
    row = fetch_one(connection, "runs/enqueue_run", RowId, parameters)
    return row.id if row else None


def lock_unfinished(connection: Connection, *, job_ids: Sequence[UUID]) -> list[JobRuns]:
    """What is unfinished of these jobs, held until the end of the transaction; waits for nobody."""
    return fetch_all(connection, "runs/lock_unfinished", JobRuns, {"job_ids": list(job_ids)})


def lock_runs(connection: Connection, *, job_id: UUID) -> LockedRuns:
    """What is unfinished of the job, held until the end of the transaction; waits for whoever is at work on it."""
    row = fetch_one(connection, "runs/lock_runs", LockedRuns, {"job_id": job_id})
    assert row
    return row


def find_unfinished(connection: Connection, *, job_ids: Sequence[UUID]) -> list[UnfinishedRow]:
    """One run of each of these jobs that has any unfinished."""
    return fetch_all(connection, "runs/find_unfinished", UnfinishedRow, {"job_ids": list(job_ids)})


def release_held_runs(connection: Connection, *, job_id: UUID) -> list[RowId]:
    return fetch_all(connection, "runs/release_held_runs", RowId, {"job_id": job_id})


def release_stuck_runs(connection: Connection) -> list[RowId]:
    """Runs that waited for others of their jobs, of which there are none."""
    return fetch_all(connection, "runs/release_stuck_runs", RowId)


def unmark_pending(connection: Connection, *, job_id: UUID) -> None:
    execute(connection, "runs/unmark_pending", {"job_id": job_id})


def end_pending_runs(connection: Connection, *, job_id: UUID, reason: str, but: UUID | None = None) -> None:
    """unmark_pending, then cancel_pending_runs; the job's runs are locked before."""
    unmark_pending(connection, job_id=job_id)
    cancel_pending_runs(connection, job_id=job_id, reason=reason, but=but)


def mark_followed(connection: Connection, *, job_id: UUID) -> None:
    """Whatever of the job leaves the queue from now on looks for a held run to release."""
    execute(connection, "runs/mark_followed", {"job_id": job_id})


def cancel_pending_runs(connection: Connection, *, job_id: UUID, reason: str, but: UUID | None = None) -> list[RowId]:
    """End what waits, for a worker, a retry or another run; of all runs of the job `but` is left alone."""
    parameters = {"job_id": job_id, "reason": reason, "but": but}
    return fetch_all(connection, "runs/cancel_pending_runs", RowId, parameters)


def request_cancel(connection: Connection, *, job_id: UUID, reason: str) -> list[RowId]:
    """Ask for the running runs of a job to be stopped; their workers hear it from their masters."""
    return fetch_all(connection, "runs/request_cancel", RowId, {"job_id": job_id, "reason": reason})


def cancel_runs(
    connection: Connection, *, run_ids: Collection[UUID], statuses: Collection[str], reason: str
) -> list[CancelledRun]:
    """End what waits, ask what is running to stop; of all these runs those that have one of the statuses."""
    parameters = {"run_ids": list(run_ids), "statuses": list(statuses), "reason": reason}
    return fetch_all(connection, "runs/cancel_runs", CancelledRun, parameters)


def lock_finished(connection: Connection, *, run_ids: Sequence[UUID]) -> list[FinishedRow]:
    """Those of the runs that have finished, held until the end of the transaction; waits for whoever retries one."""
    return fetch_all(connection, "runs/lock_finished", FinishedRow, {"run_ids": list(run_ids)})


def find_retries(connection: Connection, *, run_ids: Sequence[UUID]) -> list[RetriesOf]:
    return fetch_all(connection, "runs/find_retries", RetriesOf, {"run_ids": list(run_ids)})


def retry_runs(connection: Connection, *, run_ids: Sequence[UUID], is_held: bool) -> list[MadeRetry]:
    """Runs that do again what those finished ones were to do; they and their jobs are locked before."""
    return fetch_all(connection, "runs/retry_runs", MadeRetry, {"run_ids": list(run_ids), "is_held": is_held})


def select_finished(
    connection: Connection,
    *,
    job_id: UUID | None,
    status: str,
    since: datetime | None,
    until: datetime | None,
    max_rows: int,
) -> list[RowId]:
    """Finished runs that nobody has retried, by what they were scheduled for, oldest first."""
    parameters = {"job_id": job_id, "status": status, "since": since, "until": until, "max_rows": max_rows}
    return fetch_all(connection, "runs/select_finished", RowId, parameters, prepare=False)


def select_unfinished(
    connection: Connection,
    *,
    job_id: UUID | None,
    status: str | None,
    since: datetime | None,
    until: datetime | None,
    max_rows: int,
) -> list[RowId]:
    """Unfinished runs by what they are scheduled for, oldest first."""
    parameters = {"job_id": job_id, "status": status, "since": since, "until": until, "max_rows": max_rows}
    return fetch_all(connection, "runs/select_unfinished", RowId, parameters, prepare=False)


def get_run(connection: Connection, *, run_id: UUID) -> RunRow | None:
    return fetch_one(connection, "runs/get_run", RunRow, {"run_id": run_id})


def run_statuses(connection: Connection, *, run_ids: Collection[UUID]) -> list[RunIsAt]:
    return fetch_all(connection, "runs/run_statuses", RunIsAt, {"run_ids": list(run_ids)})


def list_runs(
    connection: Connection,
    *,
    job_id: UUID | None,
    status: str | None,
    before: UUID | None,
    max_rows: int,
) -> list[RunRow]:
    """A page, newest first; `before` is the last id of the page before it."""
    parameters = {"job_id": job_id, "status": status, "before": before, "max_rows": max_rows}
    return fetch_all(connection, "runs/list_runs", RunRow, parameters, prepare=False)


def list_attempts(connection: Connection, *, run_id: UUID) -> list[AttemptRow]:
    return fetch_all(connection, "runs/list_attempts", AttemptRow, {"run_id": run_id})


def count_runs(connection: Connection) -> list[StatusCount]:
    return fetch_all(connection, "runs/count_runs", StatusCount)


def peek_queue(connection: Connection, *, boot_id: UUID, max_due: int) -> QueuePeek:
    peek = fetch_one(connection, "runs/peek_queue", QueuePeek, {"boot_id": boot_id, "max_due": max_due})
    assert peek
    return peek


def announce_due(connection: Connection) -> bool:
    """Call it after the commit.  False as `tell`."""
    return tell(lambda: execute(connection, "runs/announce_due"))


def announce_cancel(connection: Connection) -> bool:
    """Call it after the commit.  False as `tell`."""
    return tell(lambda: execute(connection, "runs/announce_cancel"))


def orphaned_owners(connection: Connection) -> list[Owner]:
    return fetch_all(connection, "runs/orphaned_owners", Owner)


def take_turn(
    connection: Connection,
    owner: Owner,
    endings: Sequence[Ending],
    *,
    max_runs: int,
    bounds: Bounds = WHOLE_QUEUE,
    retry_base: float,
    retry_cap: float,
) -> TurnResult:
    """finish_runs, fail_runs, claim_runs in one pipeline, so one transaction and one round trip.

    Finish goes before claim: SKIP LOCKED keeps locks on rows that it did not take, and the other order deadlocked.
    The whole turn is repeated on a deadlock. Raises StoreUnavailable when its outcome is unknown, or a lock was not to
    be had in time.
    """
    succeeded = [ending for ending in endings if ending.failure is None]
    failed = [ending for ending in endings if ending.failure is not None]
    for _ in range(_TURN_TRIES):
        try:
            return _try_turn(
                connection,
                owner,
                succeeded,
                failed,
                max_runs,
                bounds,
                retry_base=retry_base,
                retry_cap=retry_cap,
            )
        except StoreBusy as error:
            if isinstance(error.__cause__, pg.LockNotAvailable):
                raise  # somebody holds a lock for long: that is an outage, and the caller's to sit out
    raise StoreUnavailable(f"the turn met a deadlock {_TURN_TRIES} times; try again")


def _try_turn(
    connection: Connection,
    owner: Owner,
    succeeded: Sequence[Ending],
    failed: Sequence[Ending],
    max_runs: int,
    bounds: Bounds,
    *,
    retry_base: float,
    retry_cap: float,
) -> TurnResult:
    fence: dict[str, Any] = {"boot_id": owner.boot_id, "child": owner.child}
    # Rows are taken after the pipeline has ended: asked for inside, they cost a round trip before the commit.
    with translated(), connection.pipeline():
        finishing = succeeded and send(
            connection,
            "runs/finish_runs",
            FinishedRun,
            {**fence, "reports": _finish_reports(succeeded)},
            prepare=True,
        )
        failing = failed and send(
            connection,
            "runs/fail_runs",
            FailedRun,
            {
                **fence,
                "reports": _fail_reports(failed),
                "retry_base": retry_base,
                "retry_cap": retry_cap,
            },
        )
        claiming = max_runs and send(
            connection,
            "runs/claim_runs",
            ClaimedRun,
            {**fence, "max_runs": max_runs, "marks_at": bounds.at, "marks_id": bounds.id, "now": None},
            prepare=True,
        )
    ended = finishing.fetchall() if finishing else []
    retried = failing.fetchall() if failing else []
    claimed = claiming.fetchall() if claiming else []
    known = {row.id for row in ended} | {row.id for row in retried}
    lost = [e.run_id for e in (*succeeded, *failed) if e.run_id not in known]
    frees_held = any(row.frees_held for row in ended) or any(row.frees_held for row in retried)
    return TurnResult(claimed, retried, lost, frees_held)


def recover_worker(
    connection: Connection,
    owner: Owner,
    verdict: Verdict,
    *,
    only_expired: bool,
    retry_base: float,
    retry_cap: float,
) -> list[FailedRun]:
    """delete_worker, then recover_runs, in one transaction.  Returns what became of the runs.

    With `only_expired` a worker whose lease was renewed meanwhile keeps everything. May be repeated.
    """
    with transaction(connection):
        worker_id = delete_worker(connection, boot_id=owner.boot_id, child=owner.child, only_expired=only_expired)
        if only_expired and worker_id is None:
            return []
        return recover_runs(
            connection,
            boot_id=owner.boot_id,
            child=owner.child,
            worker_id=worker_id,
            begun_run=verdict.begun_run,
            begun_attempt=verdict.begun_attempt,
            all_begun=verdict.all_begun,
            error=verdict.error,
            error_type=verdict.error_type,
            charged=verdict.charged,
            retry_base=retry_base,
            retry_cap=retry_cap,
        )
