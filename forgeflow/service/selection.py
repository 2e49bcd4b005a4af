"""Many runs at once, by their ids or by what they have in common: retry them, or cancel them."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from forgeflow.domain.run import RunStatus
from forgeflow.errors import FieldProblem, SelectionChanged
from forgeflow.service.requests import BulkRequest, refusal
from forgeflow.service.retries import retry_runs
from forgeflow.service.runs import UNFINISHED, cancel_runs, why_not_cancelled
from forgeflow.store import runs
from forgeflow.store.connection import Connection

# One transaction holds no more, for it must end within the deadline of a statement.
MAX_RUNS = 10_000


@dataclass(frozen=True, slots=True)
class Skipped:
    """A selected run that was left as it is, and why."""

    run_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class BulkResult:
    """How many runs were selected, how many were changed, and the others."""

    selected: int
    done: int
    skipped: list[Skipped]


def select_runs(connection: Connection, request: BulkRequest) -> list[UUID]:
    """The runs that are meant, oldest first: a filter's are those that the action can change.

    Raises InvalidInput for more than MAX_RUNS, SelectionChanged for more than `expected_count`.
    """
    found = list(dict.fromkeys(request.ids)) if request.ids is not None else _filtered(connection, request)
    if len(found) > MAX_RUNS:
        detail = f"selects more than {MAX_RUNS} runs; expected a narrower one, by job_id, status, since or until"
        raise refusal([FieldProblem("#/filter", detail, "too-many")], "request")
    if request.expected_count is not None and len(found) > request.expected_count:
        raise SelectionChanged(f"{len(found)} runs would be changed, more than expected_count")
    return found


def _filtered(connection: Connection, request: BulkRequest) -> list[UUID]:
    asked = request.filter
    assert asked, "ids or filter"
    job_id, since, until = asked.job_id, asked.since, asked.until
    most = MAX_RUNS + 1
    if request.action == "retry":
        status = asked.status or RunStatus.DEAD
        rows = runs.select_finished(connection, job_id=job_id, status=status, since=since, until=until, max_rows=most)
    else:
        rows = runs.select_unfinished(
            connection, job_id=job_id, status=asked.status, since=since, until=until, max_rows=most
        )
    return [row.id for row in rows]


def change_runs(connection: Connection, request: BulkRequest) -> BulkResult:
    """Do it, in one transaction; runs that have changed meanwhile, or cannot be changed, are skipped with a reason.

    Of dead runs only those are retried that no other run has retried.  Raises as `select_runs`.
    """
    selected = select_runs(connection, request)
    if request.action == "retry":
        retries = retry_runs(connection, selected, only_unretried=True)
        refused = {run_id: str(error) for run_id, error in retries.refused.items()}
    else:
        status = request.filter and request.filter.status
        refused = _cancel(connection, selected, [status] if status else list(UNFINISHED))
    skipped = [Skipped(run_id, refused[run_id]) for run_id in selected if run_id in refused]
    return BulkResult(len(selected), len(selected) - len(skipped), skipped)


def _cancel(connection: Connection, run_ids: Sequence[UUID], statuses: Sequence[str]) -> dict[UUID, str]:
    """Why some were not cancelled."""
    cancelled = {run.id for run in cancel_runs(connection, run_ids, statuses)}
    left = [run_id for run_id in run_ids if run_id not in cancelled]
    return {run_id: str(error) for run_id, error in why_not_cancelled(connection, left).items()}
