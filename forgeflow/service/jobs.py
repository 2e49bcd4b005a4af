"""Jobs: submit, look, pause, resume, cancel, trigger."""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from forgeflow.domain.schedule import Schedule
from forgeflow.domain.transitions import JobEvent, JobStatus, next_job_status
from forgeflow.errors import Conflict, FieldProblem, IdempotencyConflict, InvalidInput, NotFound, StatusConflict
from forgeflow.service.requests import JobRequest
from forgeflow.store import jobs, runs
from forgeflow.store.connection import Connection, transaction
from forgeflow.store.jobs import JobRow, LockedJob
from forgeflow.store.runs import RunRow

_SUBMIT_TRIES = 3


@dataclass(frozen=True, slots=True)
class Submission:
    """The job, and whether this call made it (False: an earlier one with the same idempotency key did)."""

    job: JobRow
    is_new: bool


def submit_job(connection: Connection, request: JobRequest, *, source: str) -> Submission:
    """Store a job; one without a schedule gets its run in the same transaction, and workers are woken after it.

    With an idempotency key that is taken, the answer is the job it made. Waits for a simultaneous submission with
    the same key.  Raises InvalidInput, IdempotencyConflict, StoreError.
    """
    for _ in range(_SUBMIT_TRIES):
        job_id = _create(connection, request, source)
        if job_id:
            return Submission(get_job(connection, job_id), is_new=True)
        assert request.idempotency_key
        holder = jobs.find_key(connection, idempotency_key=request.idempotency_key)
        if holder is None:
            continue  # deleted between the two statements
        if holder.request_digest != _digest(request):
            raise IdempotencyConflict("this idempotency key was used before with a different body")
        return Submission(get_job(connection, holder.id), is_new=False)
    raise Conflict("the idempotency key is being made and deleted at this moment; try again")


def _create(connection: Connection, request: JobRequest, source: str) -> UUID | None:
    """One transaction; None when the idempotency key is taken."""
    is_due_now = request.cron_expr is None and request.run_at is None and not request.paused
    with transaction(connection):
        next_run_at = None if request.paused else _first_tick(connection, request)
        job_id = jobs.create_job(
            connection,
            name=request.name,
            description=request.description,
            tags=request.tags,
            executor=request.executor,
            payload=request.payload.model_dump(),
            cron_expr=request.cron_expr,
            run_at=request.run_at,
            timezone=request.timezone,
            priority=request.priority,
            max_attempts=request.max_attempts,
            timeout_seconds=request.timeout_seconds,
            catch_up=request.catch_up,
            catch_up_limit=request.catch_up_limit,
            on_lease_loss=request.on_lease_loss,
            idempotency_key=request.idempotency_key,
            request_digest=_digest(request) if request.idempotency_key else None,
            status=JobStatus.PAUSED if request.paused else JobStatus.ACTIVE,
            next_run_at=next_run_at,
            source=source,
        )
        if job_id and is_due_now:
            runs.enqueue_run(connection, job_id=job_id, trigger="once")
    if job_id and is_due_now:
        runs.announce_due(connection)
    return job_id


def _digest(request: JobRequest) -> bytes:
    """What makes two submissions the same: every field but the key.

    A default is the same as nothing, so that a field of a later version does not change the digest of today's bodies.
    """
    fields = request.model_dump(mode="json", exclude={"idempotency_key"}, exclude_defaults=True)
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).digest()


def _first_tick(connection: Connection, request: JobRequest) -> datetime | None:
    schedule = request.schedule()
    if schedule is None:
        return request.run_at
    tick = schedule.next_after(jobs.server_now(connection))
    if tick is None:
        raise InvalidInput(
            "the schedule has no tick left",
            [FieldProblem("#/cron_expr", "has no tick before the year 10000", "bad-schedule")],
        )
    return tick


def get_job(connection: Connection, job_id: UUID) -> JobRow:
    """Raises NotFound."""
    job = jobs.get_job(connection, job_id=job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id}")
    return job


def list_jobs(connection: Connection, *, before: UUID | None, max_rows: int) -> list[JobRow]:
    return jobs.list_jobs(connection, before=before, max_rows=max_rows)


def pause_job(connection: Connection, job_id: UUID) -> JobRow:
    """No ticks from now on; its pending runs are cancelled, running ones go on.  Raises NotFound, StatusConflict."""
    return _change_status(connection, job_id, JobEvent.PAUSE)


def resume_job(connection: Connection, job_id: UUID) -> JobRow:
    """Ticks from now on; nothing is owed for the pause.  Raises NotFound, StatusConflict."""
    return _change_status(connection, job_id, JobEvent.RESUME)


def cancel_job(connection: Connection, job_id: UUID) -> JobRow:
    """No ticks for good; pending runs are cancelled, running ones are stopped.  Raises NotFound."""
    return _change_status(connection, job_id, JobEvent.CANCEL)


def _change_status(connection: Connection, job_id: UUID, event: JobEvent) -> JobRow:
    is_stopping = False
    with transaction(connection):
        job = jobs.lock_job(connection, job_id=job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id}")
        status = next_job_status(JobStatus(job.status), event)
        if status is None:
            raise StatusConflict(f"the job is {job.status}, which is for good; submit it anew")
        if status != job.status:
            next_run_at = _resumed_tick(job) if status is JobStatus.ACTIVE else None
            jobs.set_status(connection, job_id=job_id, status=status, next_run_at=next_run_at)
            if status is not JobStatus.ACTIVE:
                runs.cancel_pending_runs(connection, job_id=job_id)
            if status is JobStatus.CANCELLED:
                is_stopping = bool(runs.request_cancel(connection, job_id=job_id))
    if is_stopping:
        runs.announce_cancel(connection)
    return get_job(connection, job_id)


def _resumed_tick(job: LockedJob) -> datetime | None:
    """The first tick after now; a `run_at` that passed during the pause is not made up for."""
    if job.cron_expr is not None:
        return Schedule.parse(job.cron_expr, job.timezone).next_after(job.now)
    return job.run_at if job.run_at and job.run_at > job.now else None


def trigger_job(connection: Connection, job_id: UUID) -> RunRow:
    """A run that is due now, also of a paused job.  Raises NotFound, StatusConflict for a cancelled one."""
    run_id = runs.enqueue_run(connection, job_id=job_id, trigger="manual")
    if run_id is None:
        get_job(connection, job_id)
        raise StatusConflict("the job is cancelled, which is for good; submit it anew")
    runs.announce_due(connection)
    run = runs.get_run(connection, run_id=run_id)
    assert run
    return run
