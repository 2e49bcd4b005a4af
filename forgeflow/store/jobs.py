"""Statements about jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from psycopg.types.json import Jsonb

from forgeflow.domain.run import RunStatus
from forgeflow.store.connection import Connection, translated
from forgeflow.store.runs import RunRow
from forgeflow.store.statements import execute, fetch_all, fetch_one, send, statement

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """What a job is, as its user says it; an edit replaces it whole."""

    name: str
    description: str
    tags: Sequence[str]
    executor: str
    payload: Mapping[str, Any]
    cron_expr: str | None
    run_at: datetime | None
    timezone: str
    start_at: datetime | None
    end_at: datetime | None
    jitter_seconds: float
    priority: int
    max_attempts: int
    timeout_seconds: float
    catch_up: str
    catch_up_limit: int
    overlap: str
    on_lease_loss: str
    retry_mode: str
    retry_base_seconds: float | None
    retry_cap_seconds: float | None


@dataclass(frozen=True, slots=True)
class JobRow(JobDefinition):
    """A job as the API shows it: what it is, and how it is doing."""

    id: UUID
    idempotency_key: str | None
    status: str
    paused_until: datetime | None
    pause_reason: str | None
    next_run_at: datetime | None
    version: int
    source: str
    created_at: datetime
    updated_at: datetime
    last_run_id: UUID | None
    last_run_status: str | None
    last_run_finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Timing:
    """When a job is due, or was at some time."""

    cron_expr: str | None
    run_at: datetime | None
    timezone: str
    start_at: datetime | None
    end_at: datetime | None


@dataclass(frozen=True, slots=True)
class PastTiming(Timing):
    """When a job was due between two edits of it; without `until` it still is."""

    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class LockedJob(Timing):
    """What a change of a job is decided on; `now` is the database's clock."""

    executor: str
    status: str
    next_run_at: datetime | None
    catch_up_limit: int
    overlap: str
    paused_until: datetime | None
    pause_reason: str | None
    version: int
    now: datetime


@dataclass(frozen=True, slots=True)
class SharedJob:
    """What runs of a job are made by; `now` is the database's clock."""

    executor: str
    function: str | None
    status: str
    overlap: str
    version: int
    priority: int
    max_attempts: int
    now: datetime


@dataclass(frozen=True, slots=True)
class JobRule:
    """Whether runs of a job may be made, and beside which others."""

    id: UUID
    status: str
    overlap: str


@dataclass(frozen=True, slots=True)
class JobName:
    id: UUID
    name: str


@dataclass(frozen=True, slots=True)
class KeyHolder:
    id: UUID
    request_digest: bytes


@dataclass(frozen=True, slots=True)
class NextTick:
    id: UUID
    name: str
    cron_expr: str | None
    timezone: str
    next_run_at: datetime


@dataclass(frozen=True, slots=True)
class JobCount:
    status: str
    count: int


@dataclass(frozen=True, slots=True)
class _MadeJob:
    id: UUID
    payload: dict[str, Any]
    version: int
    created_at: datetime
    updated_at: datetime
    run_id: UUID | None


@dataclass(frozen=True, slots=True)
class _MadeRun:
    job_name: str
    id: UUID
    max_attempts: int
    scheduled_for: datetime
    run_after: datetime
    payload: dict[str, Any] | None
    missing_function: str | None


@dataclass(frozen=True, slots=True)
class _Now:
    now: datetime


DEFINITION = tuple(field.name for field in fields(JobDefinition))


def _definition(definition: JobDefinition) -> dict[str, Any]:
    values = {name: getattr(definition, name) for name in DEFINITION}
    return {**values, "tags": list(definition.tags), "payload": Jsonb(definition.payload)}


def _fetch_announced(connection: Connection, name: str, row: type[_T], parameters: Mapping[str, Any]) -> _T | None:
    """The first row of a statement that makes runs, and behind its commit, in the same round trip, announce_due.

    The statement is a transaction of its own, unless the caller has begun one.
    """
    with translated(), connection.pipeline() as pipeline:
        made = send(connection, name, row, parameters)
        # The Sync commits; what pipeline.sync() does beside would wait. A cursor for an answer without rows would cost
        # the caller as much again as the statement that counts.
        announce = partial(pipeline.pgconn.send_query_params, statement("runs/announce_due").encode(), None)
        for command in (pipeline.pgconn.pipeline_sync, announce):
            pipeline.command_queue.append(command)
            pipeline.result_queue.append(None)
    return made.fetchone()


def create_job(
    connection: Connection,
    *,
    definition: JobDefinition,
    idempotency_key: str | None,
    request_digest: bytes | None,
    status: str,
    next_run_at: datetime | None,
    source: str,
    is_due: bool = False,
) -> JobRow | None:
    """The new job; None when the idempotency key is taken, after waiting for whoever was taking it.

    One that `is_due` has its run, and workers are woken, all in one round trip: outside of a transaction, for nothing
    is announced inside of one.
    """
    values = _definition(definition)
    parameters = {
        **values,
        "idempotency_key": idempotency_key,
        "request_digest": request_digest,
        "status": status,
        "next_run_at": next_run_at,
        "source": source,
        "is_due": is_due,
    }
    made = (_fetch_announced if is_due else fetch_one)(connection, "jobs/create_job", _MadeJob, parameters)
    if made is None:
        return None
    return JobRow(
        **{**values, "tags": definition.tags, "payload": made.payload},
        id=made.id,
        idempotency_key=idempotency_key,
        status=status,
        paused_until=None,
        pause_reason=None,
        next_run_at=next_run_at,
        version=made.version,
        source=source,
        created_at=made.created_at,
        updated_at=made.updated_at,
        last_run_id=made.run_id,
        last_run_status=RunStatus.PENDING if made.run_id else None,
        last_run_finished_at=None,
    )


def trigger_job(
    connection: Connection, *, job_id: UUID, payload: Mapping[str, Any] | None, executor: str | None
) -> RunRow | None:
    """A run that is due now, in one round trip, workers woken; `executor`: what the payload is for.

    None when the job is missing, cancelled, of another executor, when its overlap is not `allow`, or when its pause
    has ended: then it must be looked at first. Outside of a transaction, as create_job. Waits for a change of the job.
    """
    parameters = {"job_id": job_id, "payload": None if payload is None else Jsonb(payload), "executor": executor}
    made = _fetch_announced(connection, "jobs/trigger_job", _MadeRun, parameters)
    if made is None:
        return None
    return RunRow(
        id=made.id,
        job_id=job_id,
        job_name=made.job_name,
        status=RunStatus.PENDING,
        attempt=0,
        failures=0,
        max_attempts=made.max_attempts,
        trigger="manual",
        is_catch_up=False,
        scheduled_for=made.scheduled_for,
        started_at=None,
        finished_at=None,
        worker_id=None,
        lease_expires=None,
        next_attempt_at=made.run_after,
        outcome=None,
        exit_code=None,
        signal=None,
        http_status=None,
        progress=None,
        progress_note=None,
        error=None,
        error_type=None,
        retry_of=None,
        cancel_requested_at=None,
        is_held=False,
        missing_function=made.missing_function,
        payload=made.payload,
        output_head="",
        output_tail="",
        output_bytes=0,
    )


def edit_job(
    connection: Connection,
    *,
    job_id: UUID,
    definition: JobDefinition,
    next_run_at: datetime | None,
    now: datetime,
) -> None:
    """Replace what the job is; what it was until `now`, for which the clock was computed, is remembered."""
    parameters = {**_definition(definition), "job_id": job_id, "next_run_at": next_run_at, "now": now}
    execute(connection, "jobs/edit_job", parameters)


def get_job(connection: Connection, *, job_id: UUID) -> JobRow | None:
    return fetch_one(connection, "jobs/get_job", JobRow, {"job_id": job_id})


def list_jobs(connection: Connection, *, before: UUID | None, max_rows: int) -> list[JobRow]:
    """A page, newest first; `before` is the last id of the page before it."""
    parameters = {"before": before, "max_rows": max_rows}
    return fetch_all(connection, "jobs/list_jobs", JobRow, parameters, prepare=False)


def find_key(connection: Connection, *, idempotency_key: str) -> KeyHolder | None:
    return fetch_one(connection, "jobs/find_key", KeyHolder, {"idempotency_key": idempotency_key})


def lock_job(connection: Connection, *, job_id: UUID) -> LockedJob | None:
    """Holds the job until the end of the transaction."""
    return fetch_one(connection, "jobs/lock_job", LockedJob, {"job_id": job_id})


def share_job(connection: Connection, *, job_id: UUID) -> SharedJob | None:
    """Keeps the job from being changed until the end of the transaction."""
    return fetch_one(connection, "jobs/share_job", SharedJob, {"job_id": job_id})


def share_jobs(connection: Connection, *, job_ids: Sequence[UUID]) -> list[JobRule]:
    """Keeps the jobs from being changed until the end of the transaction."""
    return fetch_all(connection, "jobs/share_jobs", JobRule, {"job_ids": list(job_ids)})


def set_status(
    connection: Connection,
    *,
    job_id: UUID,
    status: str,
    next_run_at: datetime | None,
    paused_until: datetime | None = None,
    pause_reason: str | None = None,
) -> None:
    parameters = {
        "job_id": job_id,
        "status": status,
        "next_run_at": next_run_at,
        "paused_until": paused_until,
        "pause_reason": pause_reason,
    }
    execute(connection, "jobs/set_status", parameters)


def set_clock(connection: Connection, *, job_id: UUID, next_run_at: datetime | None) -> None:
    execute(connection, "jobs/set_clock", {"job_id": job_id, "next_run_at": next_run_at})


def timing_at(connection: Connection, *, job_id: UUID, instant: datetime) -> PastTiming | None:
    """What the job went by at that instant, before later edits; of a time before it existed, what it was first."""
    return fetch_one(connection, "jobs/timing_at", PastTiming, {"job_id": job_id, "instant": instant})


def find_jobs(connection: Connection, *, name: str, first: UUID | None, last: UUID | None) -> list[JobName]:
    """Jobs of that name, or with an id from `first` to `last`; ten at most."""
    return fetch_all(connection, "jobs/find_jobs", JobName, {"name": name, "first": first, "last": last})


def count_jobs(connection: Connection) -> list[JobCount]:
    return fetch_all(connection, "jobs/count_jobs", JobCount)


def next_ticks(connection: Connection, *, max_rows: int) -> list[NextTick]:
    return fetch_all(connection, "jobs/next_ticks", NextTick, {"max_rows": max_rows})


def server_now(connection: Connection) -> datetime:
    row = fetch_one(connection, "jobs/server_now", _Now)
    assert row
    return row.now
