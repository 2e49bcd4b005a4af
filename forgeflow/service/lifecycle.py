"""A job's life: pause, resume, cancel, trigger, skip a tick, edit.

Each is one transaction that holds the job's row first, so that it and the tick come one after the other: what is
answered is in force for the next tick.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from forgeflow.domain.overlap import REPLACED, Overlap, Unfinished, decide_overlap
from forgeflow.domain.timetable import Once, Timetable, make_timetable
from forgeflow.domain.transitions import JobEvent, JobStatus, next_job_status
from forgeflow.errors import (
    Conflict,
    CronError,
    FieldProblem,
    InvalidInput,
    NotFound,
    StatusConflict,
    VersionMismatch,
)
from forgeflow.service.jobs import first_tick, get_job
from forgeflow.service.requests import PauseRequest, read_job_edit, read_payload
from forgeflow.store import jobs, runs, ticks
from forgeflow.store.connection import Connection, repeated, transaction
from forgeflow.store.jobs import JobDefinition, JobRow, LockedJob
from forgeflow.store.runs import RunRow
from forgeflow.store.ticks import DueJob, Gap

_MOMENT = timedelta(microseconds=1)
CANCELLED = "the job is cancelled, which is for good; submit it anew"


def lock_job(connection: Connection, job_id: UUID) -> LockedJob:
    """The job, held until the end of the transaction, and active when its pause has ended.  Raises NotFound."""
    job = jobs.lock_job(connection, job_id=job_id)
    if job and job.paused_until and job.paused_until <= job.now:
        end_pause(connection, job_id, job, until=job.paused_until)
        job = jobs.lock_job(connection, job_id=job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id}")
    return job


def _told(connection: Connection, job_id: UUID) -> JobRow:
    """The job, after the commit of what may have brought its clock forward: the leader hears of it."""
    job = get_job(connection, job_id)
    if job.next_run_at:
        ticks.announce_clock(connection)
    return job


def end_pause(connection: Connection, job_id: UUID, job: LockedJob | DueJob, *, until: datetime) -> bool:
    """Make a job active whose pause has ended; its clock gets the first tick from then on, which may be due already.

    Nothing before the end is owed. The job is locked by the caller; False when it is not paused until then.
    """
    try:
        tick = _next_tick(connection, job_id, _timetable(job), until - _MOMENT)
    except CronError:
        tick = until  # the scheduler tells of it, and looks again
    ticks.close_gap(connection, job_id=job_id, to_at=until - _MOMENT, note=job.pause_reason)
    return ticks.end_pause(connection, job_id=job_id, old=until, new=tick)


def _next_status(job: LockedJob, event: JobEvent) -> JobStatus:
    """Raises StatusConflict."""
    status = next_job_status(JobStatus(job.status), event)
    if status is None:
        raise StatusConflict(CANCELLED)
    return status


def _timetable(job: LockedJob | DueJob | JobDefinition) -> Timetable | Once | None:
    return make_timetable(job.cron_expr, job.run_at, job.timezone, start_at=job.start_at, end_at=job.end_at)


def _timing(job: LockedJob | JobDefinition) -> tuple[object, ...]:
    """What decides its ticks: the zone of a job without an expression only shows its time."""
    return job.cron_expr, job.run_at, job.timezone if job.cron_expr else None, job.start_at, job.end_at


def _next_tick(
    connection: Connection, job_id: UUID, timetable: Timetable | Once | None, after: datetime
) -> datetime | None:
    """The first tick after an instant that nobody has taken out."""
    if timetable is None:
        return None
    skipped = ticks.skipped_ticks(connection, job_id=job_id, after=after)
    tick = timetable.next_after(after)
    while tick in skipped:
        tick = timetable.next_after(tick)
    return tick


def _stop_ticks(connection: Connection, job_id: UUID, job: LockedJob, reason: str) -> None:
    """From now on no tick has a run, not even one that is due already."""
    if job.status == JobStatus.PAUSED:
        ticks.close_gap(connection, job_id=job_id, to_at=job.now, note=job.pause_reason)
        since = job.now + _MOMENT
    else:
        since = min(job.next_run_at or job.now, job.now)
    ticks.open_gap(connection, job_id=job_id, from_at=since, reason=reason)


@repeated
def pause_job(connection: Connection, job_id: UUID, request: PauseRequest | None = None) -> JobRow:
    """No ticks from now on, or until an instant; its pending runs are cancelled, running ones go on.

    Of a job that is paused already it changes end and reason.  Raises NotFound, StatusConflict, and InvalidInput for
    an end that has passed.
    """
    until, reason = (request.until, request.reason) if request else (None, None)
    with transaction(connection):
        job = lock_job(connection, job_id)
        status = _next_status(job, JobEvent.PAUSE)
        if until and until <= job.now:
            raise InvalidInput(
                "the pause cannot end before it begins",
                [FieldProblem("#/until", "has passed; expected a time to come", "time-passed")],
            )
        if (job.status, job.paused_until, job.pause_reason) != (status, until, reason):
            if job.status != status:
                _stop_ticks(connection, job_id, job, "paused")
                runs.lock_runs(connection, job_id=job_id)
                runs.end_pending_runs(connection, job_id=job_id, reason="its job was paused")
            jobs.set_status(
                connection, job_id=job_id, status=status, next_run_at=until, paused_until=until, pause_reason=reason
            )
    return _told(connection, job_id)


@repeated
def resume_job(connection: Connection, job_id: UUID) -> JobRow:
    """Ticks from now on; nothing is owed for the pause.  Raises NotFound, StatusConflict."""
    with transaction(connection):
        job = lock_job(connection, job_id)
        status = _next_status(job, JobEvent.RESUME)
        if job.status != status:
            ticks.close_gap(connection, job_id=job_id, to_at=job.now, note=job.pause_reason)
            tick = _next_tick(connection, job_id, _timetable(job), job.now)
            jobs.set_status(connection, job_id=job_id, status=status, next_run_at=tick)
    return _told(connection, job_id)


@repeated
def cancel_job(connection: Connection, job_id: UUID) -> JobRow:
    """No ticks for good; pending runs are cancelled, running ones are stopped.  Raises NotFound."""
    is_stopping = False
    with transaction(connection):
        job = lock_job(connection, job_id)
        status = _next_status(job, JobEvent.CANCEL)
        if job.status != status:
            _stop_ticks(connection, job_id, job, "cancelled")
            jobs.set_status(connection, job_id=job_id, status=status, next_run_at=None)
            runs.lock_runs(connection, job_id=job_id)
            runs.end_pending_runs(connection, job_id=job_id, reason="its job was cancelled")
            is_stopping = bool(runs.request_cancel(connection, job_id=job_id, reason="its job was cancelled"))
    if is_stopping:
        runs.announce_cancel(connection)
    return get_job(connection, job_id)


@repeated
def skip_next(connection: Connection, job_id: UUID, *, tick_at: datetime | None = None) -> JobRow:
    """Take the next tick out; `tick_at` says which one is meant, so that it can be asked twice.

    Raises NotFound, StatusConflict, and Conflict when there is no next tick, or another one than was meant.
    """
    with transaction(connection):
        job = lock_job(connection, job_id)
        if job.status == JobStatus.CANCELLED:
            raise StatusConflict(CANCELLED)
        seen = tick_at and ticks.find_tick(connection, job_id=job_id, tick_at=tick_at)
        if not (seen and seen.outcome == "skip_next"):
            tick = None if job.status == JobStatus.PAUSED else job.next_run_at
            if tick is None:
                is_paused = job.status == JobStatus.PAUSED
                raise Conflict("the job is paused: resume it first" if is_paused else "the job has no tick to come")
            if tick_at and tick_at != tick:
                raise Conflict(f"the next tick of the job is {tick.isoformat().replace('+00:00', 'Z')}")
            ticks.skip_tick(connection, job_id=job_id, tick_at=tick, outcome="skip_next")
            following = _next_tick(connection, job_id, _timetable(job), tick)
            jobs.set_clock(connection, job_id=job_id, next_run_at=following)
    return get_job(connection, job_id)


@repeated
def unskip(connection: Connection, job_id: UUID, *, tick_at: datetime | None = None) -> JobRow:
    """Take ticks back in that were taken out and are to come: all, or that one.  Raises NotFound, StatusConflict."""
    with transaction(connection):
        job = lock_job(connection, job_id)
        if job.status == JobStatus.CANCELLED:
            raise StatusConflict(CANCELLED)
        back = ticks.unskip_ticks(connection, job_id=job_id, tick_at=tick_at)
        if back and job.status == JobStatus.ACTIVE:
            tick = _next_tick(connection, job_id, _timetable(job), job.now)
            if tick and (job.next_run_at is None or tick < job.next_run_at):
                jobs.set_clock(connection, job_id=job_id, next_run_at=tick)
    return _told(connection, job_id)


@repeated
def edit_job(
    connection: Connection, job_id: UUID, body: Mapping[str, Any], *, versions: Collection[int] | None = None
) -> JobRow:
    """Change the fields that a JSON object names. A change of its times gives it the next tick from now on.

    Nothing fires by an edit: ticks that are due at that moment have no run, and runs that wait stay as they are, but
    with the new payload. With `versions` only one of those is changed.  Raises NotFound, StatusConflict,
    VersionMismatch, InvalidInput.
    """
    is_releasing = False
    with transaction(connection):
        job = lock_job(connection, job_id)
        if versions is not None and job.version not in versions:
            raise VersionMismatch(f"the job has version {job.version}, which is not the one that was asked for")
        if job.status == JobStatus.CANCELLED:
            raise StatusConflict(CANCELLED)
        before = _definition(get_job(connection, job_id))
        after = read_job_edit(before, dict(body)).definition()
        if after != before:
            clock = job.next_run_at
            _check_has_time(before, after)
            if _timing(after) != _timing(job):
                clock = _edited_clock(connection, job_id, job, _timetable(after))
            jobs.edit_job(connection, job_id=job_id, definition=after, next_run_at=clock, now=job.now)
            if after.overlap == "allow":  # its next runs would go before those that are held
                is_releasing = bool(runs.release_held_runs(connection, job_id=job_id))
    if is_releasing:
        runs.announce_due(connection)
    return _told(connection, job_id)


def _definition(job: JobRow) -> JobDefinition:
    return JobDefinition(**{name: getattr(job, name) for name in JobDefinition.__slots__})


def _check_has_time(before: JobDefinition, after: JobDefinition) -> None:
    """A job that loses its only time by an edit would never run again, and be shown as completed."""
    if (before.cron_expr or before.run_at) and not (after.cron_expr or after.run_at):
        name = "cron_expr" if before.cron_expr else "run_at"
        detail = "would leave the job without a time; give it another one, or pause the job"
        raise InvalidInput("the job would never run", [FieldProblem(f"#/{name}", detail, "no-time")])


def _edited_clock(
    connection: Connection, job_id: UUID, job: LockedJob, timetable: Timetable | Once | None
) -> datetime | None:
    """Where the clock stands after a change of its times.  Raises InvalidInput for those without a tick to come."""
    if timetable is not None and first_tick(timetable, job.now) <= job.now:
        detail = "has passed; expected a time to come, and trigger runs the job now"
        raise InvalidInput("the job would never run", [FieldProblem("#/run_at", detail, "time-passed")])
    if job.status == JobStatus.PAUSED:
        return job.next_run_at
    if job.next_run_at and job.next_run_at <= job.now:
        ticks.record_gaps(connection, gaps=[(job_id, Gap(job.next_run_at, job.now, "edited"))])
    return _next_tick(connection, job_id, timetable, job.now)


def trigger_job(connection: Connection, job_id: UUID, payload: Mapping[str, Any] | None = None) -> RunRow:
    """A run that is due now, also of a paused job; with a payload, that one instead of the job's.

    Goes by the job's overlap like a tick.  Raises NotFound, StatusConflict for a cancelled job, Conflict for a run that
    is in its way, InvalidInput for the payload.
    """
    if made := _trigger_at_once(connection, job_id, payload):
        return made
    run_id, is_stopping = _trigger(connection, job_id, payload)
    if is_stopping:
        runs.announce_cancel(connection)
    runs.announce_due(connection)
    run = runs.get_run(connection, run_id=run_id)
    assert run
    return run


# What only a payload of that executor has; which one the job has is not known before the database is asked.
_TELLING = {"function": "python", "url": "http"}


def _trigger_at_once(connection: Connection, job_id: UUID, payload: Mapping[str, Any] | None) -> RunRow | None:
    """In one round trip, of a job that is as most are; None for others, and for what is to be refused."""
    own = executor = None
    if payload is not None:
        executor = next((name for key, name in _TELLING.items() if key in payload), "shell")
        try:
            own = read_payload(executor, dict(payload))
        except InvalidInput:
            return None
    return jobs.trigger_job(connection, job_id=job_id, payload=own, executor=executor)


@repeated
def _trigger(connection: Connection, job_id: UUID, payload: Mapping[str, Any] | None) -> tuple[UUID, bool]:
    """One transaction: the run, and whether others were asked to stop."""
    with transaction(connection):
        job = lock_job(connection, job_id)
        if job.status == JobStatus.CANCELLED:
            raise StatusConflict(CANCELLED)
        own = None if payload is None else read_payload(job.executor, dict(payload))
        room = make_room(connection, job_id, job)
        run_id = runs.enqueue_run(connection, job_id=job_id, trigger="manual", payload=own, is_held=room.is_held)
        assert run_id, "the job is locked, and not cancelled"
    return run_id, room.is_stopping


@dataclass(frozen=True, slots=True)
class Room:
    """What becomes of a run that is made by hand: whether it has to wait, and whether others are stopped for it."""

    is_held: bool
    is_stopping: bool


def make_room(connection: Connection, job_id: UUID, job: LockedJob) -> Room:
    """Do what the job's overlap says beside one run more; the job is locked.  Raises Conflict for one in its way."""
    overlap: Overlap = job.overlap  # type: ignore[assignment] # a constraint of the table
    if overlap == "allow":
        return Room(is_held=False, is_stopping=False)
    locked = runs.lock_runs(connection, job_id=job_id)
    unfinished = Unfinished(locked.first_id, locked.running, locked.held)
    decision = decide_overlap(overlap, unfinished, limit=job.catch_up_limit)
    if decision.blocked_by:
        raise Conflict(_say_blocked(job, decision.blocked_by))
    is_stopping = False
    if decision.is_replacing:
        runs.end_pending_runs(connection, job_id=job_id, reason=REPLACED)
        is_stopping = bool(runs.request_cancel(connection, job_id=job_id, reason=REPLACED))
    if decision.is_held:
        runs.mark_followed(connection, job_id=job_id)
    return Room(decision.is_held, is_stopping)


def _say_blocked(job: LockedJob, run_id: UUID) -> str:
    if job.overlap == "queue":
        return f"{job.catch_up_limit} runs of this job, catch_up_limit, are waiting already, behind {run_id}"
    return f"a run of this job is in the way, and its overlap is {job.overlap}: {run_id}"
