"""The leader's passes: due jobs become runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import structlog

from forgeflow.config import Config
from forgeflow.domain.catch_up import CatchUp, TickPlan, plan_once, plan_ticks
from forgeflow.domain.schedule import Schedule
from forgeflow.domain.timetable import Timetable
from forgeflow.errors import CronError, SchemaMismatch, StoreError, StoreUnavailable
from forgeflow.store import runs, ticks
from forgeflow.store.connection import Connection, transaction
from forgeflow.store.ticks import DueJob

log = structlog.get_logger()

# A transaction is over when it has so many jobs or, but for the last job's, so many ticks.
_MAX_JOBS = 100
_MAX_TICKS = 1000
# A schedule that this machine cannot read (other tz data) must neither stop the others nor be forgotten.
_UNREADABLE_PAUSE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class PassResult:
    """How many jobs were looked at, and how many runs were made."""

    jobs: int
    runs: int


@dataclass(slots=True)
class _FiredJob:
    """What one due job got; told to the log when it is committed."""

    job_id: UUID
    fired: list[tuple[datetime, UUID | None, str]] = field(default_factory=list)  # tick, run, trigger
    gaps: list[tuple[str, datetime, datetime]] = field(default_factory=list)  # reason, first tick, last tick

    def tell(self) -> None:
        bound = log.bind(job_id=str(self.job_id))
        for tick_at, run_id, trigger in self.fired:
            bound.info("tick fired", tick_at=tick_at.isoformat(), run_id=str(run_id), trigger=trigger)
        for reason, first, last in self.gaps:
            bound.warning("ticks not run", reason=reason, from_at=first.isoformat(), to_at=last.isoformat())


@dataclass(frozen=True, slots=True)
class _Batch:
    done: list[_FiredJob]
    has_more: bool

    @property
    def runs(self) -> int:
        return sum(run_id is not None for each in self.done for _, run_id, _ in each.fired)


class TickPasses:
    """The passes of one leader over its session.

    `go_on` is called before each batch, job and tick: what is due has no limit, and a leader must neither go deaf
    over it nor be taken for wedged. When it says no, the batch that has begun is the last one.
    """

    def __init__(
        self, connection: Connection, config: Config, term: int, go_on: Callable[[], bool] = lambda: True
    ) -> None:
        self._connection = connection
        self._config = config
        self._term = term
        self._go_on = go_on
        self._refused: set[UUID] = set()

    def run_pass(self) -> PassResult:
        """Fire what is due, in batches, each a transaction; when nothing is due this is one statement.

        Announces the new runs after each commit. Blocks while another session holds a due job for less than the
        statement deadline; jobs that are being edited are left for the next pass. A job that the database refuses is
        left out, logged once, and tried again in the next pass.  Raises StoreUnavailable, SchemaMismatch.
        """
        jobs = fired = 0
        if not ticks.due_jobs(self._connection, max_rows=1):
            return PassResult(0, 0)
        while self._go_on():
            batch = self._fire_batch()
            for each in batch.done:
                each.tell()
            jobs, fired = jobs + len(batch.done), fired + batch.runs
            if batch.runs:
                runs.announce_due(self._connection)
            if not batch.has_more:
                break
        return PassResult(jobs, fired)

    def _fire_batch(self) -> _Batch:
        """All together and, when the database refuses that, one by one: then only the refused ones are left out."""
        try:
            return self._try_batch(self._fire_job)
        except (StoreUnavailable, SchemaMismatch):
            raise
        except StoreError:
            return self._try_batch(self._fire_job_alone)

    def _try_batch(self, fire: Callable[[DueJob], _FiredJob | None]) -> _Batch:
        done: list[_FiredJob] = []
        with transaction(self._connection):
            due = ticks.due_jobs(self._connection, max_rows=_MAX_JOBS)
            is_full = len(due) == _MAX_JOBS
            for job in due:
                if sum(len(each.fired) for each in done) >= _MAX_TICKS:
                    is_full = True
                    break
                if fired := fire(job):
                    done.append(fired)
        return _Batch(done, has_more=is_full and bool(done))

    def _fire_job_alone(self, job: DueJob) -> _FiredJob | None:
        """None when the database refuses it; what else is in the transaction stays."""
        try:
            with transaction(self._connection):  # a savepoint
                return self._fire_job(job)
        except (StoreUnavailable, SchemaMismatch):
            raise
        except StoreError as error:
            if job.id not in self._refused:
                self._refused.add(job.id)
                log.error("ticks of a job refused; tried again in each pass", job_id=str(job.id), reason=str(error))
            return None

    def _fire_job(self, job: DueJob) -> _FiredJob:
        """Make the runs that one due job owes and move its clock."""
        try:
            plan = _plan(job, self._config)
        except (CronError, ValueError, OverflowError) as error:  # the last near the ends of the calendar
            log.error("schedule cannot be read", job_id=str(job.id), reason=str(error))
            plan = TickPlan((), (), job.now + _UNREADABLE_PAUSE)
        on_time = "cron" if job.cron_expr else "once"
        owed = [(tick, "catch_up") for tick in plan.caught_up] + [(tick, on_time) for tick in plan.on_time]
        made = _FiredJob(job.id)
        for tick_at, trigger in owed:
            self._go_on()
            run_id = ticks.fire_tick(self._connection, job_id=job.id, tick_at=tick_at, trigger=trigger, term=self._term)
            made.fired.append((tick_at, run_id, trigger))
        for reason, stretch in (("missed", plan.missed), ("coalesced", plan.coalesced)):
            if stretch:
                first, last = stretch
                ticks.record_gap(self._connection, job_id=job.id, from_at=first, to_at=last, reason=reason)
                made.gaps.append((reason, first, last))
        self._go_on()
        if not ticks.advance_job(self._connection, job_id=job.id, old=job.next_run_at, new=plan.next_at):
            raise StoreError(f"the clock of job {job.id} was moved by somebody else while it was locked")
        return made


def _plan(job: DueJob, config: Config) -> TickPlan:
    if job.cron_expr is None:
        return plan_once(job.next_run_at)
    catch_up: CatchUp = job.catch_up  # type: ignore[assignment] # a constraint of the table
    return plan_ticks(
        Timetable(Schedule(job.cron_expr, job.timezone), job.start_at, job.end_at),
        job.next_run_at,
        job.now,
        misfire_grace=config.scheduler.misfire_grace,
        catch_up=catch_up,
        limit=job.catch_up_limit,
    )
