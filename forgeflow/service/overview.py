"""The whole at a glance: counts, next ticks, the fleet, readiness."""

from dataclasses import dataclass

from forgeflow.domain.run import RunStatus
from forgeflow.domain.transitions import JobStatus
from forgeflow.store import jobs, nodes, runs, schema
from forgeflow.store.connection import Connection
from forgeflow.store.jobs import NextTick
from forgeflow.store.nodes import NodeRow
from forgeflow.store.runs import RunRow

# What a job is shown as that is active, has no tick to come and no run in the queue.
COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class Counts:
    """Runs and jobs by status; every status has an entry."""

    runs: dict[str, int]
    jobs: dict[str, int]


@dataclass(frozen=True, slots=True)
class Overview:
    counts: Counts
    nodes: list[NodeRow]
    running: list[RunRow]
    dead: list[RunRow]
    last_runs: list[RunRow]
    next_ticks: list[NextTick]


def count_everything(connection: Connection) -> Counts:
    return Counts(
        runs={status.value: 0 for status in RunStatus} | {row.status: row.count for row in runs.count_runs(connection)},
        jobs=dict.fromkeys((*JobStatus, COMPLETED), 0) | {row.status: row.count for row in jobs.count_jobs(connection)},
    )


def list_nodes(connection: Connection) -> list[NodeRow]:
    return nodes.list_nodes(connection)


def look_over(connection: Connection, *, max_rows: int) -> Overview:
    return Overview(
        count_everything(connection),
        nodes.list_nodes(connection),
        runs.list_runs(connection, job_id=None, status=RunStatus.RUNNING, before=None, max_rows=max_rows),
        runs.list_runs(connection, job_id=None, status=RunStatus.DEAD, before=None, max_rows=max_rows),
        runs.list_runs(connection, job_id=None, status=None, before=None, max_rows=max_rows),
        jobs.next_ticks(connection, max_rows=max_rows),
    )


def check_ready(connection: Connection) -> None:
    """Raises SchemaMismatch or StoreUnavailable, which say why this process cannot serve."""
    schema.require_current(connection)
