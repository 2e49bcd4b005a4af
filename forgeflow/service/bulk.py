"""Many submissions as one: all of them or none, one notification, and a number of round trips that does not grow."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from forgeflow.domain.transitions import JobStatus
from forgeflow.errors import Conflict, FieldProblem, InvalidInput, NotFound, StatusConflict
from forgeflow.service.jobs import first_tick
from forgeflow.service.requests import JobRequest, read_payloads, refusal
from forgeflow.store import bulk, jobs, runs, ticks
from forgeflow.store.connection import Connection, transaction
from forgeflow.store.jobs import JobDefinition


def submit_runs(connection: Connection, job_id: UUID, payloads: Sequence[Mapping[str, Any] | None]) -> list[UUID]:
    """A run for each payload, due now, and run in this order where one worker runs them; None: the job's payload.

    Returns their ids in the same order. Holds the job until all are stored: a change of it waits, claims do not. What
    takes longer than a statement may is undone; 100,000 runs take seconds.  Raises NotFound, StatusConflict for a
    cancelled job, Conflict for a job whose runs may not overlap, InvalidInput, which names every bad payload by its
    place in the list, as `#/3/command`.
    """
    with transaction(connection):
        job = jobs.share_job(connection, job_id=job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id}")
        if job.status == JobStatus.CANCELLED:
            raise StatusConflict("the job is cancelled, which is for good; submit it anew")
        if job.overlap != "allow":
            raise Conflict(f"runs of this job may not overlap, its overlap is {job.overlap}: trigger them one by one")
        ids = bulk.new_ids(job.now, len(payloads))
        rows = bulk.run_rows(
            ids,
            read_payloads(job.executor, payloads),
            job_id=job_id,
            job_version=job.version,
            priority=job.priority,
            due_at=job.now,
            trigger="manual",
            max_attempts=job.max_attempts,
            function=job.function,
        )
        bulk.copy_runs(connection, rows=rows)
    if payloads:
        runs.announce_due(connection)
    return [UUID(int=run_id) for run_id in ids]


def submit_jobs(connection: Connection, requests: Sequence[JobRequest], *, source: str) -> list[UUID]:
    """Store many jobs; those without a schedule get their runs, in this order, and workers are woken once behind it.

    Returns their ids in the same order.  Raises InvalidInput, which names every bad field by the place of its request
    in the list, as `#/3/cron_expr`: an idempotency key, for here nobody would be told what it had made before.
    """
    with transaction(connection):
        now = jobs.server_now(connection)
        ticks_to_come = _first_ticks(requests, now)
        ids = bulk.new_ids(now, len(requests))
        made = [
            bulk.NewJob(
                UUID(int=job_id),
                request.definition(),
                JobStatus.PAUSED if request.paused else JobStatus.ACTIVE,
                None if request.paused else tick,
                source,
            )
            for job_id, request, tick in zip(ids, requests, ticks_to_come, strict=True)
        ]
        bulk.copy_jobs(connection, rows=made)
        for job in made:
            if job.status == JobStatus.PAUSED:
                ticks.open_gap(connection, job_id=job.id, from_at=now, reason="paused")
        due = [job for job in made if job.status == JobStatus.ACTIVE and job.next_run_at is None]
        bulk.copy_runs(connection, rows=_first_runs(due, now))
    if due:
        runs.announce_due(connection)
    if any(job.next_run_at for job in made):
        ticks.announce_clock(connection)
    return [job.id for job in made]


def _first_ticks(requests: Sequence[JobRequest], now: datetime) -> list[datetime | None]:
    found: list[datetime | None] = []
    problems: list[FieldProblem] = []
    for place, request in enumerate(requests):
        if request.idempotency_key:
            detail = "is not for jobs that are submitted together; submit this one alone"
            problems.append(FieldProblem(f"#/{place}/idempotency_key", detail, "key-in-bulk"))
        try:
            timetable = request.timetable()
            found.append(None if timetable is None else first_tick(timetable, now))
        except InvalidInput as error:
            problems += [replace(each, pointer=f"#/{place}{each.pointer[1:]}") for each in error.problems]
    if problems:
        raise refusal(problems, "jobs")
    return found


def _first_runs(made: Sequence[bulk.NewJob], now: datetime) -> Iterator[bytes]:
    for run_id, job in zip(bulk.new_ids(now, len(made)), made, strict=True):
        yield from bulk.run_rows(
            [run_id],
            [None],
            job_id=job.id,
            job_version=1,
            priority=job.definition.priority,
            due_at=now,
            trigger="once",
            max_attempts=job.definition.max_attempts,
            function=_function_of(job.definition),
        )


def _function_of(definition: JobDefinition) -> str | None:
    return definition.payload["function"] if definition.executor == "python" else None
