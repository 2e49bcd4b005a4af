"""Small worlds for the store tests: jobs, runs, workers, made with the store's own functions."""

import dataclasses
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from forgeflow.domain.run import Ending, Failure, Output, Verdict
from forgeflow.functions.catalogue import catalogue_id
from forgeflow.store import jobs, nodes, runs
from forgeflow.store.connection import Connection
from forgeflow.store.runs import WHOLE_QUEUE, Bounds, ClaimedRun, FailedRun, Owner, RunRow
from forgeflow.store.statements import statement

RETRY: dict[str, Any] = {"retry_base": 0.001, "retry_cap": 0.001}


def database_now(connection: Connection) -> datetime:
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row
    return datetime.fromisoformat(row[0].isoformat())


def make_job(connection: Connection, **fields: Any) -> UUID:
    """A shell job; keywords are the columns that matter."""
    defaults: dict[str, Any] = {
        "name": "job",
        "description": "",
        "tags": [],
        "executor": "shell",
        "payload": {"command": "true"},
        "cron_expr": None,
        "run_at": None,
        "timezone": "UTC",
        "start_at": None,
        "end_at": None,
        "jitter_seconds": 0.0,
        "priority": 5,
        "max_attempts": 3,
        "timeout_seconds": 60,
        "catch_up": "skip",
        "catch_up_limit": 10,
        "overlap": "allow",
        "on_lease_loss": "kill",
        "retry_mode": "jitter",
        "retry_base_seconds": None,
        "retry_cap_seconds": None,
        "idempotency_key": None,
        "request_digest": None,
        "status": "active",
        "next_run_at": None,
        "source": "api",
    }
    values = {**defaults, **fields}
    definition = jobs.JobDefinition(
        **{one.name: values.pop(one.name) for one in dataclasses.fields(jobs.JobDefinition)}
    )
    job = jobs.create_job(connection, definition=definition, **values)
    assert job
    return job.id


def make_runs(connection: Connection, job_id: UUID, count: int = 1) -> list[UUID]:
    made = [runs.enqueue_run(connection, job_id=job_id, trigger="manual") for _ in range(count)]
    return [run_id for run_id in made if run_id]


def make_worker(
    connection: Connection,
    *,
    boot_id: UUID | None = None,
    child: int = 1,
    lease: float = 60.0,
    functions: Sequence[str] = (),
) -> Owner:
    owner = Owner(boot_id or uuid.uuid4(), child)
    nodes.register_worker(
        connection,
        boot_id=owner.boot_id,
        child=child,
        worker_id=f"node-{child}",
        lease_seconds=lease,
        catalogue=catalogue_id(functions),
        functions=functions,
    )
    return owner


def claimed_run(executor: str = "shell", payload: dict[str, Any] | None = None, priority: int = 5) -> ClaimedRun:
    """As a claim gives it; there is no such row."""
    now = datetime.now(UTC)
    return ClaimedRun(
        id=uuid.uuid4(),
        job_id=uuid.uuid4(),
        job_name="job",
        executor=executor,
        payload={"command": "true"} if payload is None else payload,
        timeout_seconds=60.0,
        timezone="UTC",
        on_lease_loss="kill",
        attempt=1,
        failures=0,
        max_attempts=3,
        scheduled_for=now,
        is_catch_up=False,
        priority=priority,
        run_after=now,
    )


def claim(connection: Connection, owner: Owner, count: int = 1, now: datetime | None = None) -> list[ClaimedRun]:
    return runs.claim_runs(connection, boot_id=owner.boot_id, child=owner.child, max_runs=count, now=now)


def success(run: ClaimedRun, text: str = "") -> Ending:
    return Ending(run.id, run.attempt, None, 0, Output(text, "", len(text)))


def failure(run: ClaimedRun, kind: str = "failed", *, charged: bool = True) -> Ending:
    return Ending(run.id, run.attempt, Failure(kind, f"it {kind}", charged=charged), 1)


def postponement(run: ClaimedRun, retry_after: float | None = None) -> Ending:
    late = Failure("failed", "asked for later", charged=True, is_later=True, retry_after_seconds=retry_after)
    return Ending(run.id, run.attempt, late, 75)


def finish(connection: Connection, owner: Owner, *endings: Ending) -> list[UUID]:
    rows = runs.finish_runs(connection, boot_id=owner.boot_id, child=owner.child, reports=endings)
    return [row.id for row in rows]


def fail(connection: Connection, owner: Owner, *endings: Ending) -> list[FailedRun]:
    return runs.fail_runs(connection, boot_id=owner.boot_id, child=owner.child, reports=endings, **RETRY)


def recover(connection: Connection, owner: Owner, *, only_expired: bool = False, **choices: Any) -> list[FailedRun]:
    """Keywords are those of Verdict."""
    verdict = Verdict(**{"error_type": "crashed", "error": "its worker died", "charged": True, **choices})
    return runs.recover_worker(connection, owner, verdict, only_expired=only_expired, **RETRY)


def look(connection: Connection, run_id: UUID) -> RunRow:
    run = runs.get_run(connection, run_id=run_id)
    assert run
    return run


def bulk_runs(connection: Connection, job_id: UUID, count: int, *, priority: int = 5, due: str = "0 seconds") -> None:
    """In parts, for a statement of the tests has half a second."""
    for first in range(0, count, 1000):
        connection.execute(
            "INSERT INTO queue (job_id, job_version, priority, scheduled_for, run_after, trigger, max_attempts)"
            " SELECT %s, 1, %s, now(), now() + %s::interval, 'manual', 3 FROM generate_series(1, %s)",
            [job_id, priority, due, min(1000, count - first)],
        )


def plan_of_claim(connection: Connection, owner: Owner, count: int, bounds: Bounds = WHOLE_QUEUE) -> str:
    """How the claim is run, prepared and generic, as a worker's connection has it after a while."""
    text = str(statement("runs/claim_runs"))
    names = ("boot_id", "child", "max_runs", "marks_at", "marks_id", "now")
    for number, name in enumerate(names, 1):
        text = text.replace(f"%({name})s", f"${number}")
    connection.execute("SET plan_cache_mode = force_generic_plan")
    connection.execute(f"PREPARE claiming (uuid, int, int, timestamptz[], uuid[], timestamptz) AS {text}")
    rows = connection.execute(
        f"EXPLAIN (ANALYZE, BUFFERS) EXECUTE claiming ('{owner.boot_id}', {owner.child}, {count}, "
        f"'{bounds.at}', '{bounds.id}', NULL)"
    ).fetchall()
    connection.execute("DEALLOCATE claiming")
    return "\n".join(row[0] for row in rows)
