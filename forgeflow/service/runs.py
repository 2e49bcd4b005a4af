"""Runs: look at one, or at many; cancel them."""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from forgeflow.domain.run import RunStatus
from forgeflow.errors import Conflict, ForgeError, NotFound, RunFinished
from forgeflow.store import runs
from forgeflow.store.connection import Connection, repeated
from forgeflow.store.runs import AttemptRow, CancelledRun, RunRow

# What runs show that somebody cancelled, alone or among others.
BY_HAND = "somebody asked for it"
UNFINISHED = (RunStatus.PENDING, RunStatus.RUNNING)


@dataclass(frozen=True, slots=True)
class RunDetail:
    """A run, and its ended attempts but the last, oldest first."""

    run: RunRow
    attempts: list[AttemptRow]


def get_run(connection: Connection, run_id: UUID) -> RunDetail:
    """Raises NotFound."""
    run = runs.get_run(connection, run_id=run_id)
    if run is None:
        raise no_run(run_id)
    return RunDetail(run, runs.list_attempts(connection, run_id=run_id))


def list_runs(
    connection: Connection, *, job_id: UUID | None, status: str | None, before: UUID | None, max_rows: int
) -> list[RunRow]:
    """A page, newest first, without output."""
    return runs.list_runs(connection, job_id=job_id, status=status, before=before, max_rows=max_rows)


@dataclass(frozen=True, slots=True)
class Cancel:
    """A run that was cancelled; `is_asked`: it was running, and is stopped by its worker."""

    run: RunRow
    is_asked: bool


def cancel_run(connection: Connection, run_id: UUID) -> Cancel:
    """End a run that waits, have one that is running stopped; a second time nothing changes for the latter.

    Raises NotFound, RunFinished.
    """
    cancelled = cancel_runs(connection, [run_id], UNFINISHED)
    if not cancelled:
        raise why_not_cancelled(connection, [run_id])[run_id]
    return Cancel(get_run(connection, run_id).run, is_asked=cancelled[0].status == RunStatus.RUNNING)


@repeated
def cancel_runs(connection: Connection, run_ids: Collection[UUID], statuses: Collection[str]) -> list[CancelledRun]:
    """Those of the runs that have one of these statuses.

    One transaction, unless the caller has begun one; then nodes are told.
    """
    cancelled = runs.cancel_runs(connection, run_ids=run_ids, statuses=statuses, reason=BY_HAND)
    if any(run.status == RunStatus.RUNNING for run in cancelled):
        runs.announce_cancel(connection)
    if any(run.frees_held for run in cancelled):
        runs.announce_due(connection)
    return cancelled


def why_not_cancelled(connection: Connection, run_ids: Collection[UUID]) -> dict[UUID, ForgeError]:
    """Of runs that were not."""
    return {run_id: _not_cancelled(run_id, status) for run_id, status in statuses_of(connection, run_ids).items()}


def _not_cancelled(run_id: UUID, status: str | None) -> ForgeError:
    if status is None:
        return no_run(run_id)
    if status in UNFINISHED:
        return Conflict(f"the run has another status by now: {status}")
    return RunFinished(f"the run has ended, and stays what it is: {status}")


def statuses_of(connection: Connection, run_ids: Collection[UUID]) -> dict[UUID, str | None]:
    """None for a run that is none."""
    found = {run.id: run.status for run in runs.run_statuses(connection, run_ids=run_ids)} if run_ids else {}
    return {run_id: found.get(run_id) for run_id in run_ids}


def no_run(run_id: UUID) -> NotFound:
    return NotFound(f"there is no run {run_id}")
