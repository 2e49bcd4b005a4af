"""What a job is going to do, and why it is not."""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from forgeflow.domain.preview import Fire, preview
from forgeflow.domain.schedule import Schedule, check_zone
from forgeflow.domain.transitions import JobStatus
from forgeflow.errors import CronError
from forgeflow.service.jobs import get_job
from forgeflow.store import jobs
from forgeflow.store.connection import Connection
from forgeflow.store.jobs import JobRow


@dataclass(frozen=True, slots=True)
class Upcoming:
    """The next fires of a job; when there are none, `reason` says why."""

    job: JobRow
    description: str
    fires: tuple[Fire, ...]
    warnings: tuple[str, ...] = ()
    reason: str | None = None


def preview_job(connection: Connection, job_id: UUID, *, count: int) -> Upcoming:
    """The next `count` fires of a job, by the database's clock; manual ones and retries are none.  Raises NotFound."""
    job = get_job(connection, job_id)
    if job.cron_expr is None:
        return _preview_once(job)
    try:
        schedule = Schedule.parse(job.cron_expr, job.timezone)
    except CronError as error:  # stored under other time zone data, or by another version
        return Upcoming(job, job.cron_expr, (), reason=f"its schedule cannot be read: {error}")
    seen = preview(schedule, jobs.server_now(connection), count)
    reason = _stopped(job) or (None if seen.fires else "its schedule has no time left before the year 10000")
    return Upcoming(job, seen.description, () if reason else seen.fires, seen.warnings, reason)


def _preview_once(job: JobRow) -> Upcoming:
    if job.run_at is None:
        return Upcoming(
            job, "Once, when submitted", (), reason=_stopped(job) or "it has no schedule, but was due when submitted"
        )
    local = _local(job.run_at, job.timezone)
    description = f"Once, on {local:%Y-%m-%d} at {local:%H:%M:%S}".removesuffix(":00")
    reason = _stopped(job) or (None if job.next_run_at else "its time has come")
    return Upcoming(job, description, () if reason else (Fire(job.run_at, local),), reason=reason)


def _stopped(job: JobRow) -> str | None:
    if job.status == JobStatus.PAUSED:
        return "the job is paused: until it is resumed it runs by trigger only"
    if job.status == JobStatus.CANCELLED:
        return "the job is cancelled, which is for good"
    return None


def _local(instant: datetime, zone: str) -> datetime:
    """On the zone's clock; in UTC if there is none, or if it cannot show that."""
    try:
        return instant.astimezone(check_zone(zone))
    except (CronError, OverflowError):
        return instant.astimezone(UTC)
