"""Jobs of the bench, their runs loaded at once, and what became of them."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from bench.lab import Database
from forgeflow.service.jobs import submit_job
from forgeflow.service.requests import read_job_request
from forgeflow.store.connection import Connection

NOOP: dict[str, Any] = {"executor": "python", "payload": {"function": "noop", "args": {}}}
TRUE: dict[str, Any] = {"executor": "shell", "payload": {"command": "true"}}


def node_settings(work: dict[str, Any]) -> dict[str, str]:
    """What a node needs to execute it, as `section__key`."""
    return {"python__modules": "bench.noop"} if work["executor"] == "python" else {}


def make_job(connection: Connection, work: dict[str, Any]) -> UUID:
    """A job without a schedule; paused, so that it begins without a run."""
    body = {"name": "bench", "paused": True, **work}
    return submit_job(connection, read_job_request(body), source="cli").job.id


def load_runs(
    connection: Connection, job_id: UUID, count: int, *, priority: int = 5, delay_seconds: float = 0.0
) -> None:
    """That many runs, due after the delay, in the caller's transaction."""
    connection.execute(
        """INSERT INTO queue (job_id, job_version, priority, scheduled_for, run_after, trigger, max_attempts)
           SELECT %s, 1, %s, now(), clock_timestamp() + make_interval(secs => %s), 'manual', 3
             FROM generate_series(1, %s)""",
        [job_id, priority, delay_seconds, count],
    )


def load_counted(connection: Connection, job_id: UUID, count: int) -> None:
    """That many due runs, all at once, in a queue whose statistics know of them, as autovacuum would see to."""
    with connection.transaction():
        load_runs(connection, job_id, count)
        connection.execute("ANALYZE queue")


def load_history(connection: Connection, job_id: UUID, count: int) -> None:
    """That many finished runs, as a year of them leaves behind."""
    connection.execute(
        """INSERT INTO finished_runs
                  (id, job_id, job_version, priority, scheduled_for, trigger, is_catch_up, max_attempts, attempt,
                   failures, interruptions, worker_id, started_at, status, finished_at, exit_code)
           SELECT uuid_v7(), %s, 1, 5, at, 'manual', false, 3, 1, 0, 0, 'bench', at, 'succeeded', at, 0
             FROM generate_series(1, %s) AS n
            CROSS JOIN LATERAL (SELECT now() - make_interval(secs => 30.0 * n)) AS t(at)""",
        [job_id, count],
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job's runs.

    `handed_back` counts claims of runs that were not begun then; `steadiness` is the rate of the last tenth over that
    of the first.
    """

    finished: int
    run_twice: int
    handed_back: int
    seconds: float
    steadiness: float


def is_drained(database: Database, job_id: UUID) -> bool:
    row = database.connection.execute("SELECT EXISTS (SELECT FROM queue WHERE job_id = %s)", [job_id]).fetchone()
    assert row
    return not row[0]


def outcome_of(database: Database, job_id: UUID) -> Outcome:
    """From the first claim to the last end, by the database's clock."""
    row = database.connection.execute(
        """WITH ended AS (
               SELECT started_at, finished_at, attempt, status,
                      row_number() OVER (ORDER BY finished_at) AS n, count(*) OVER () AS total
                 FROM finished_runs WHERE job_id = %(job_id)s),
           edge AS (
               SELECT min(started_at) AS begun, max(finished_at) AS done,
                      max(finished_at) FILTER (WHERE n <= total / 10) AS tenth,
                      max(finished_at) FILTER (WHERE n <= total - total / 10) AS nine_tenths
                 FROM ended)
           SELECT (SELECT count(*) FILTER (WHERE status = 'succeeded') FROM ended),
                  (SELECT count(*) FROM attempts AS a JOIN runs AS r ON r.id = a.run_id WHERE r.job_id = %(job_id)s),
                  (SELECT coalesce(sum(attempt - 1), 0)::int FROM ended),
                  coalesce(extract(epoch FROM done - begun), 0)::float8,
                  coalesce(extract(epoch FROM tenth - begun)
                           / nullif(extract(epoch FROM done - nine_tenths), 0), 1)::float8
             FROM edge""",
        {"job_id": job_id},
    ).fetchone()
    assert row
    return Outcome(*row)
