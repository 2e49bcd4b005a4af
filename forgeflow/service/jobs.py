"""Jobs: submit and look."""

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from forgeflow.domain.document import text_problem
from forgeflow.domain.timetable import Once, Timetable
from forgeflow.domain.transitions import JobStatus
from forgeflow.errors import Conflict, FieldProblem, IdempotencyConflict, InvalidInput, NotFound
from forgeflow.service.requests import JobRequest
from forgeflow.store import jobs, ticks
from forgeflow.store.connection import Connection, transaction
from forgeflow.store.jobs import JobRow

_SUBMIT_TRIES = 3


@dataclass(frozen=True, slots=True)
class Submission:
    """The job, and whether this call made it (False: an earlier one with the same idempotency key did)."""

    job: JobRow
    is_new: bool


def submit_job(connection: Connection, request: JobRequest, *, source: str) -> Submission:
    """Store a job; one without a schedule gets its run in the same transaction, and workers are woken behind it.

    With an idempotency key that is taken, the answer is the job it made. Waits for a simultaneous submission with
    the same key.  Raises InvalidInput, IdempotencyConflict, StoreError.
    """
    for _ in range(_SUBMIT_TRIES):
        job = _create(connection, request, source)
        if job:
            return Submission(job, is_new=True)
        assert request.idempotency_key
        holder = jobs.find_key(connection, idempotency_key=request.idempotency_key)
        if holder is None:
            continue  # deleted between the two statements
        if holder.request_digest != _digest(request):
            raise IdempotencyConflict("this idempotency key was used before with a different body")
        return Submission(get_job(connection, holder.id), is_new=False)
    raise Conflict("the idempotency key is being made and deleted at this moment; try again")


def _create(connection: Connection, request: JobRequest, source: str) -> JobRow | None:
    """One transaction, of one round trip for a job that is due now; None when the idempotency key is taken."""
    create = partial(
        jobs.create_job,
        connection,
        definition=request.definition(),
        idempotency_key=request.idempotency_key,
        request_digest=_digest(request) if request.idempotency_key else None,
        status=JobStatus.PAUSED if request.paused else JobStatus.ACTIVE,
        source=source,
    )
    timetable = request.timetable()
    if timetable is None and not request.paused:
        return create(next_run_at=None, is_due=True)
    with transaction(connection):
        now = jobs.server_now(connection)
        tick = None if timetable is None else first_tick(timetable, now)
        job = create(next_run_at=None if request.paused else tick)
        if job and request.paused:
            ticks.open_gap(connection, job_id=job.id, from_at=now, reason="paused")
    if job and job.next_run_at:
        ticks.announce_clock(connection)
    return job


def _digest(request: JobRequest) -> bytes:
    """What makes two submissions the same: every field but the key.

    A default is the same as nothing, so that a field of a later version does not change the digest of today's bodies.
    """
    fields = request.model_dump(mode="json", exclude={"idempotency_key"}, exclude_defaults=True)
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).digest()


def first_tick(timetable: Timetable | Once, now: datetime) -> datetime:
    """The first tick of a new job, a `run_at` however long ago.  Raises InvalidInput when there is none."""
    if isinstance(timetable, Once):
        return timetable.run_at
    tick = timetable.next_after(now)
    if tick is None:
        raise InvalidInput("the schedule has no tick left", [_no_tick(timetable)])
    return tick


def _no_tick(timetable: Timetable) -> FieldProblem:
    if timetable.end_at is None:
        return FieldProblem("#/cron_expr", "has no tick before the year 10000", "bad-schedule")
    return FieldProblem("#/end_at", "leaves the schedule no tick to come", "empty-window")


def get_job(connection: Connection, job_id: UUID) -> JobRow:
    """Raises NotFound."""
    job = jobs.get_job(connection, job_id=job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id}")
    return job


def list_jobs(connection: Connection, *, before: UUID | None, max_rows: int) -> list[JobRow]:
    return jobs.list_jobs(connection, before=before, max_rows=max_rows)


def find_job(connection: Connection, text: str) -> JobRow:
    """The job of that id, of that name, or the only one whose id begins so, with four characters at least.

    Raises NotFound, and InvalidInput where more than one fits.
    """
    first, last = _id_range(text)
    if first and first == last and (job := jobs.get_job(connection, job_id=first)):
        return job  # whatever others are called
    found = [] if text_problem(text) else jobs.find_jobs(connection, name=text, first=first, last=last)
    if not found:
        raise NotFound("there is no job of that name or id")
    if len(found) > 1:
        shown = ", ".join(f"{job.id} ({job.name})" for job in found[:5])
        raise InvalidInput(f"more than one job is called so; give an id: {shown}{', …' if len(found) > 5 else ''}")
    return get_job(connection, found[0].id)


def _id_range(text: str) -> tuple[UUID | None, UUID | None]:
    """The smallest and the largest id that begin so; nothing where none can."""
    digits = text.lower().replace("-", "")
    if not re.fullmatch(r"[0-9a-f]{4,32}", digits, re.ASCII):
        return None, None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
