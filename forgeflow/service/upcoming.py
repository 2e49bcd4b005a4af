"""What a job is going to do, and why it is not."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from forgeflow.domain.preview import Fire, preview
from forgeflow.domain.schedule import Schedule, check_zone
from forgeflow.domain.transitions import JobStatus
from forgeflow.errors import CronError
from forgeflow.service.jobs import get_job
from forgeflow.store import jobs, ticks
from forgeflow.store.connection import Connection
from forgeflow.store.jobs import JobRow

_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Upcoming:
    """The next fires of a job; when there are none, `reason` says why. `skipped` are ticks that were taken out."""

    job: JobRow
    description: str
    fires: tuple[Fire, ...]
    warnings: tuple[str, ...] = ()
    reason: str | None = None
    skipped: tuple[datetime, ...] = ()


def preview_job(connection: Connection, job_id: UUID, *, count: int) -> Upcoming:
    """The next `count` fires of a job, by the database's clock; manual ones and retries are none.  Raises NotFound.

    They lie in the job's window, after its pause, and are not those that somebody has taken out.
    """
    job = get_job(connection, job_id)
    if job.cron_expr is None:
        return _preview_once(connection, job)
    try:
        schedule = Schedule.parse(job.cron_expr, job.timezone)
    except CronError as error:  # stored under other time zone data, or by another version
        return Upcoming(job, job.cron_expr, (), reason=f"its schedule cannot be read: {error}")
    now = jobs.server_now(connection)
    starts = [edge - _MOMENT for edge in (job.start_at, job.paused_until) if edge and edge > now]
    skipped = ticks.skipped_ticks(connection, job_id=job_id, after=now)
    seen = preview(schedule, max([now, *starts]), count, end_at=job.end_at, without=skipped)
    reason = _stopped(job)
    if not (reason or seen.fires):
        reason = "its window has ended" if job.end_at else "its schedule has no time left before the year 10000"
    fires = () if reason else seen.fires
    return Upcoming(job, seen.description, fires, seen.warnings, reason, tuple(sorted(skipped)))


def _preview_once(connection: Connection, job: JobRow) -> Upcoming:
    description = describe_job(job)
    if job.run_at is None:
        why = _stopped(job) or "it has no schedule: it was due when submitted, and runs by trigger"
        return Upcoming(job, description, (), reason=why)
    reason = _stopped(job) or _passed(connection, job, job.run_at)
    fires = () if reason else (Fire(job.run_at, local_time(job.run_at, job.timezone)),)
    return Upcoming(job, description, fires, reason=reason)


def _passed(connection: Connection, job: JobRow, run_at: datetime) -> str | None:
    """Why an only time is not to come; None when it is."""
    tick = ticks.find_tick(connection, job_id=job.id, tick_at=run_at)
    if tick and tick.outcome == "skip_next":
        return "its time was taken out"
    is_ahead = run_at >= job.paused_until if job.paused_until else bool(job.next_run_at)
    return None if is_ahead and not tick else "its time has come"


def describe_job(job: JobRow) -> str:
    """When the job runs, in words; its expression where that is clearer, or cannot be read."""
    if job.cron_expr is not None:
        try:
            return Schedule.parse(job.cron_expr, job.timezone).describe()
        except CronError:
            return job.cron_expr
    if job.run_at is None:
        return "Once, when submitted"
    local = local_time(job.run_at, job.timezone)
    return f"Once, on {local:%Y-%m-%d} at {local:%H:%M:%S}".removesuffix(":00")


def _stopped(job: JobRow) -> str | None:
    if job.status == JobStatus.PAUSED and job.paused_until is None:
        return "the job is paused: until it is resumed it runs by trigger only"
    if job.status == JobStatus.CANCELLED:
        return "the job is cancelled, which is for good"
    return None


def local_time(instant: datetime, zone: str) -> datetime:
    """On the zone's clock; in UTC if there is none, or if it cannot show that."""
    try:
        return instant.astimezone(check_zone(zone))
    except (CronError, OverflowError):
        return instant.astimezone(UTC)
