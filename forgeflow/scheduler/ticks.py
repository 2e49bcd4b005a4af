"""One pass of the leader: due jobs become runs."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog

from forgeflow.config import Config
from forgeflow.domain.catch_up import CatchUp, TickPlan, plan_once, plan_ticks
from forgeflow.domain.schedule import Schedule
from forgeflow.errors import CronError, StoreError
from forgeflow.store import runs, ticks
from forgeflow.store.connection import Connection, transaction
from forgeflow.store.ticks import DueJob

log = structlog.get_logger()

_BATCH = 100
# A schedule that this machine cannot read (other tz data) must neither stop the others nor be forgotten.
_UNREADABLE_PAUSE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class PassResult:
    """How many jobs were looked at, and how many runs were made."""

    jobs: int
    runs: int


def run_pass(
    connection: Connection, config: Config, term: int, *, say_alive: Callable[[], None] = lambda: None
) -> PassResult:
    """Fire what is due, in batches, each a transaction; when nothing is due this is one statement.

    `say_alive` is called before each batch, job and tick: what is due has no limit, and a budget has one.
    Announces the new runs after each commit. Blocks while another session holds a due job for less than the
    statement deadline; jobs that are being edited are left for the next pass.  Raises StoreError.
    """
    if not ticks.due_jobs(connection, max_rows=1):
        return PassResult(0, 0)
    jobs = fired = 0
    while True:
        say_alive()
        with transaction(connection):
            due = ticks.due_jobs(connection, max_rows=_BATCH)
            made = sum(_fire_job(connection, config, job, term, say_alive) for job in due)
        jobs, fired = jobs + len(due), fired + made
        if made:
            runs.announce_due(connection)
        if len(due) < _BATCH:
            return PassResult(jobs, fired)


def _fire_job(connection: Connection, config: Config, job: DueJob, term: int, say_alive: Callable[[], None]) -> int:
    """Make the runs that one due job owes and move its clock; returns how many runs there are now."""
    say_alive()
    try:
        plan = _plan(job, config)
    except (CronError, ValueError, OverflowError) as error:  # the last near the ends of the calendar
        log.error("schedule cannot be read", job_id=str(job.id), reason=str(error))
        plan = TickPlan((), (), job.now + _UNREADABLE_PAUSE)
    on_time = "cron" if job.cron_expr else "once"
    owed = [(tick, "catch_up") for tick in plan.caught_up] + [(tick, on_time) for tick in plan.on_time]
    fired = 0
    for tick_at, trigger in owed:
        say_alive()
        run_id = ticks.fire_tick(connection, job_id=job.id, tick_at=tick_at, trigger=trigger, term=term)
        fired += run_id is not None
        log.info("tick fired", job_id=str(job.id), tick_at=tick_at.isoformat(), run_id=str(run_id), trigger=trigger)
    for reason, stretch in (("missed", plan.missed), ("coalesced", plan.coalesced)):
        if stretch:
            first, last = stretch
            ticks.record_gap(connection, job_id=job.id, from_at=first, to_at=last, reason=reason)
            log.warning(
                "ticks not run", reason=reason, job_id=str(job.id), from_at=first.isoformat(), to_at=last.isoformat()
            )
    if not ticks.advance_job(connection, job_id=job.id, old=job.next_run_at, new=plan.next_at):
        raise StoreError(f"the clock of job {job.id} was moved by somebody else while it was locked")
    return fired


def _plan(job: DueJob, config: Config) -> TickPlan:
    if job.cron_expr is None:
        return plan_once(job.next_run_at)
    catch_up: CatchUp = job.catch_up  # type: ignore[assignment] # a constraint of the table
    return plan_ticks(
        Schedule.parse(job.cron_expr, job.timezone),
        job.next_run_at,
        job.now,
        misfire_grace=config.scheduler.misfire_grace,
        catch_up=catch_up,
        limit=job.catch_up_limit,
    )
