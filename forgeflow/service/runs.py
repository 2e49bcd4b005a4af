"""Runs: look at one, or at many."""

from dataclasses import dataclass
from uuid import UUID

from forgeflow.errors import NotFound
from forgeflow.store import runs
from forgeflow.store.connection import Connection
from forgeflow.store.runs import AttemptRow, RunRow


@dataclass(frozen=True, slots=True)
class RunDetail:
    """A run, and its ended attempts but the last, oldest first."""

    run: RunRow
    attempts: list[AttemptRow]


def get_run(connection: Connection, run_id: UUID) -> RunDetail:
    """Raises NotFound."""
    run = runs.get_run(connection, run_id=run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id}")
    return RunDetail(run, runs.list_attempts(connection, run_id=run_id))


def list_runs(
    connection: Connection, *, job_id: UUID | None, status: str | None, before: UUID | None, max_rows: int
) -> list[RunRow]:
    """A page, newest first, without output."""
    return runs.list_runs(connection, job_id=job_id, status=status, before=before, max_rows=max_rows)
