"""The leader's passes: due jobs become runs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

import structlog

from forgeflow.config import Config
from forgeflow.domain.catch_up import CatchUp, TickPlan, plan_once, plan_ticks
from forgeflow.domain.jitter import jitter_delay
from forgeflow.domain.overlap import REPLACED, Overlap, Unfinished, add_run, decide_overlap
from forgeflow.domain.schedule import Schedule
from forgeflow.domain.timetable import Timetable
from forgeflow.domain.transitions import JobStatus
from forgeflow.errors import CronError, SchemaMismatch, StoreError, StoreUnavailable
from forgeflow.service.lifecycle import end_pause
from forgeflow.store import runs, ticks
from forgeflow.store.connection import Connection, transaction
from forgeflow.store.runs import JobRuns
from forgeflow.store.ticks import DueJob, Gap, NewTick

log = structlog.get_logger()

# A transaction is over when it has so many jobs or, but for the last job's, so many ticks.
_MAX_JOBS = 500
_MAX_TICKS = 2000
# A schedule that this machine cannot read (other tz data) must neither stop the others nor be forgotten.
_UNREADABLE_PAUSE = timedelta(minutes=5)
# Such a clock is no tick, for these are whole seconds: it says when to look again.
_NO_TICK = 1
_MAX_LINES = 20


@dataclass(frozen=True, slots=True)
class PassResult:
    """How many jobs were looked at, and how many runs were made."""

    jobs: int
    runs: int


@dataclass(slots=True)
class _JobPass:
    """What one due job gets in a batch; told to the log when it is committed."""

    job: DueJob
    plan: TickPlan
    new_ticks: list[NewTick] = field(default_factory=list)
    fired: list[tuple[datetime, UUID, str]] = field(default_factory=list)  # tick, run, trigger
    blocked: list[tuple[datetime, UUID]] = field(default_factory=list)  # tick, the run in its way
    is_resumed: bool = False

    def gaps(self) -> list[tuple[UUID, Gap]]:
        stretches = (("missed", self.plan.missed), ("coalesced", self.plan.coalesced))
        return [(self.job.id, Gap(*stretch, reason)) for reason, stretch in stretches if stretch]

    def tell_exceptions(self) -> None:
        """What is not as ever; ticks that have their runs are told by the batch."""
        job_id = str(self.job.id)
        if self.is_resumed:
            log.info("pause ended", job_id=job_id, until=_text(self.job.next_run_at))
        for tick_at, run_id in self.blocked:
            log.info(
                "tick skipped",
                job_id=job_id,
                tick_at=_text(tick_at),
                overlap=self.job.overlap,
                blocked_by=str(run_id),
            )
        for _, gap in self.gaps():
            to_at = gap.to_at and _text(gap.to_at)
            log.warning("ticks not run", job_id=job_id, reason=gap.reason, from_at=_text(gap.from_at), to_at=to_at)


@dataclass(frozen=True, slots=True)
class _Batch:
    done: Sequence[_JobPass]
    has_more: bool

    @property
    def runs(self) -> int:
        return sum(len(each.fired) for each in self.done)

    def tell(self) -> None:
        """A line for each tick or, for many, one for all: the ledger has them, and a line costs more than its tick."""
        is_short = self.runs <= _MAX_LINES
        if not is_short:
            log.info("ticks fired", runs=self.runs, jobs=len(self.done))
        for each in self.done:
            each.tell_exceptions()
            for tick_at, run_id, trigger in each.fired if is_short else ():
                job_id = str(each.job.id)
                log.info("tick fired", job_id=job_id, tick_at=_text(tick_at), run_id=str(run_id), trigger=trigger)


def _text(instant: datetime) -> str:
    return instant.isoformat()


class TickPasses:
    """The passes of one leader over its session.

    `go_on` is called before each batch, job and statement of one tick: what is due has no limit, and a leader must
    neither go deaf over it nor be taken for wedged. When it says no, the batch that has begun is the last one.
    """

    def __init__(
        self, connection: Connection, config: Config, term: int, go_on: Callable[[], bool] = lambda: True
    ) -> None:
        self._connection = connection
        self._config = config
        self._term = term
        self._go_on = go_on
        self._refused: set[UUID] = set()
        self._is_stopping_runs = False
        # As of the last pass: how long nothing is due, unless somebody announces a clock; 0 when something was.
        self.quiet_seconds = 0.0

    def run_pass(self) -> PassResult:
        """Fire what is due, in batches, each a transaction; when nothing is due this is one statement.

        Announces the new runs after each commit. Waits for no lock: jobs that are being edited, and those with a run
        that somebody is at work on at the moment and that the decision needs, are left for the next pass. A job that
        the database refuses is left out, logged once, and tried again in the next pass.  Raises StoreUnavailable,
        SchemaMismatch.
        """
        jobs = fired = 0
        next_seconds = ticks.seconds_to_next(self._connection)
        self.quiet_seconds = float("inf") if next_seconds is None else next_seconds
        if self.quiet_seconds > 0:
            return PassResult(0, 0)
        while self._go_on():
            batch = self._fire_batch()
            batch.tell()
            jobs, fired = jobs + len(batch.done), fired + batch.runs
            if batch.runs:
                runs.announce_due(self._connection)
            if self._is_stopping_runs:
                runs.announce_cancel(self._connection)
                self._is_stopping_runs = False
            if not batch.has_more:
                break
        return PassResult(jobs, fired)

    def _fire_batch(self) -> _Batch:
        """All together and, when the database refuses that, one by one: then only the refused ones are left out."""
        try:
            return self._try_batch(self._fire_jobs)
        except (StoreUnavailable, SchemaMismatch):
            raise
        except StoreError:
            return self._try_batch(self._fire_jobs_apart)

    def _try_batch(self, fire: Callable[[Iterable[DueJob]], list[_JobPass]]) -> _Batch:
        with transaction(self._connection):
            due = ticks.due_jobs(self._connection, max_rows=_MAX_JOBS)
            done = fire(due)
        is_full = len(due) == _MAX_JOBS or len(done) < len(due) or any(each.is_resumed for each in done)
        return _Batch(done, has_more=is_full and bool(done))

    def _fire_jobs_apart(self, due: Iterable[DueJob]) -> list[_JobPass]:
        """Without those that the database refuses; what else is in the transaction stays."""
        done: list[_JobPass] = []
        for job in due:
            try:
                with transaction(self._connection):  # a savepoint
                    done += self._fire_jobs([job])
            except (StoreUnavailable, SchemaMismatch):
                raise
            except StoreError as error:
                if job.id not in self._refused:
                    self._refused.add(job.id)
                    log.error("ticks of a job refused; tried again in each pass", job_id=str(job.id), reason=str(error))
        return done

    def _fire_jobs(self, due: Iterable[DueJob]) -> list[_JobPass]:
        """Make the runs that these jobs owe and move their clocks, with a few statements for all of them.

        Those that must not overlap are decided on one by one. Ends early when there are many ticks.
        """
        exclusive: list[_JobPass] = []
        free: list[_JobPass] = []
        count = 0
        for job in due:
            self._go_on()
            planned = self._plan(job)
            (exclusive if job.overlap != "allow" and planned.new_ticks else free).append(planned)
            count += len(planned.new_ticks)
            if count >= _MAX_TICKS:
                break
        done = self._fire_exclusively(exclusive) + self._fire_freely(free)
        if gaps := [gap for each in done for gap in each.gaps()]:
            ticks.record_gaps(self._connection, gaps=gaps)
        self._advance([each for each in done if not each.is_resumed])
        return done

    def _plan(self, job: DueJob) -> _JobPass:
        if job.status == JobStatus.PAUSED:
            return self._resume(job)
        try:
            plan = _plan_job(job, self._config)
            return _JobPass(job, plan, _new_ticks(job, plan))
        except (CronError, ValueError, OverflowError) as error:  # the last near the ends of the calendar
            log.error("schedule cannot be read", job_id=str(job.id), reason=str(error))
            look_again = (job.now + _UNREADABLE_PAUSE).replace(microsecond=_NO_TICK)
            return _JobPass(job, TickPlan((), (), look_again, missed=(job.next_run_at, job.now)))

    def _resume(self, job: DueJob) -> _JobPass:
        """A pause is over; what is due since then comes in the next batch."""
        if not end_pause(self._connection, job.id, job, until=job.next_run_at):
            raise StoreError(f"the pause of job {job.id} was ended by somebody else while it was locked")
        return _JobPass(job, TickPlan((), (), None), is_resumed=True)

    def _fire_freely(self, jobs: list[_JobPass]) -> list[_JobPass]:
        """Jobs whose runs may overlap."""
        new = [tick for each in jobs for tick in each.new_ticks]
        if not new:
            return jobs
        fired = ticks.fire_ticks(self._connection, ticks=new, are_held=False, term=self._term)
        made = {(tick.job_id, tick.tick_at): tick.run_id for tick in fired}
        for each in jobs:
            for tick in each.new_ticks:
                if run_id := made.get((tick.job_id, tick.tick_at)):
                    each.fired.append((tick.tick_at, run_id, tick.trigger))
        return jobs

    def _fire_exclusively(self, jobs: list[_JobPass]) -> list[_JobPass]:
        """Jobs whose runs must not overlap, without those that have to wait for the next pass."""
        skipping = [each for each in jobs if each.job.overlap == "skip"]
        if skipping:
            found = runs.find_unfinished(self._connection, job_ids=[each.job.id for each in skipping])
            unfinished = {row.job_id: Unfinished(row.run_id) for row in found}
            for each in skipping:
                self._fire_in_turn(each, unfinished.get(each.job.id, Unfinished()))
        locking = [each for each in jobs if each.job.overlap != "skip"]
        if not locking:
            return skipping
        locked = runs.lock_unfinished(self._connection, job_ids=[each.job.id for each in locking])
        of_job = {row.job_id: row for row in locked}
        ready = [each for each in locking if each.job.id not in of_job or _is_whole(of_job[each.job.id])]
        for each in ready:
            row = of_job.get(each.job.id)
            now = Unfinished(row.first_id, row.running, row.held) if row else Unfinished()
            self._fire_in_turn(each, now, due_at=row.due_at if row else None)
        return skipping + ready

    def _fire_in_turn(self, each: _JobPass, unfinished: Unfinished, *, due_at: datetime | None = None) -> None:
        """Give the ticks of a job their outcomes, one after the other."""
        for tick in each.new_ticks:
            self._go_on()
            unfinished = self._fire_beside(each, tick, unfinished, due_at)

    def _fire_beside(
        self, each: _JobPass, tick: NewTick, unfinished: Unfinished, due_at: datetime | None
    ) -> Unfinished:
        """Give one tick its outcome.  Returns what is unfinished then.

        A run that gives way leaves its time to the one in its place: where jitter is longer than the schedule's
        steps, none would ever be due.
        """
        overlap: Overlap = each.job.overlap  # type: ignore[assignment] # a constraint of the table
        decision = decide_overlap(overlap, unfinished, limit=each.job.catch_up_limit)
        job_id = each.job.id
        if decision.blocked_by:
            if ticks.skip_tick(
                self._connection,
                job_id=job_id,
                tick_at=tick.tick_at,
                outcome="overlap",
                blocked_by=decision.blocked_by,
                term=self._term,
            ):
                each.blocked.append((tick.tick_at, decision.blocked_by))
            return unfinished
        if decision.is_replacing and due_at:
            tick = replace(tick, run_after=min(tick.run_after, due_at))
        fired = ticks.fire_ticks(self._connection, ticks=[tick], are_held=decision.is_held, term=self._term)
        if not fired:
            return unfinished
        (made,) = fired
        if decision.is_replacing:
            self._end_others(job_id, made.run_id)
        if decision.is_held:
            runs.mark_followed(self._connection, job_id=job_id)
        each.fired.append((tick.tick_at, made.run_id, tick.trigger))
        return add_run(unfinished, made.run_id, decision)

    def _end_others(self, job_id: UUID, run_id: UUID) -> None:
        runs.end_pending_runs(self._connection, job_id=job_id, reason=REPLACED, but=run_id)
        if runs.request_cancel(self._connection, job_id=job_id, reason=REPLACED):
            self._is_stopping_runs = True

    def _advance(self, jobs: list[_JobPass]) -> None:
        if not jobs:
            return
        moves = [(each.job.id, each.job.next_run_at, each.plan.next_at) for each in jobs]
        moved = ticks.advance_jobs(self._connection, moves=moves)
        for job_id, _, _ in moves:
            if job_id not in moved:
                raise StoreError(f"the clock of job {job_id} was moved by somebody else while it was locked")


def _plan_job(job: DueJob, config: Config) -> TickPlan:
    if job.cron_expr is None:
        return plan_once(job.next_run_at)
    timetable = Timetable(Schedule(job.cron_expr, job.timezone), job.start_at, job.end_at)
    if job.next_run_at.microsecond == _NO_TICK:  # it could not be read, and can again
        return TickPlan((), (), timetable.next_after(job.now), missed=(job.next_run_at, job.now))
    catch_up: CatchUp = job.catch_up  # type: ignore[assignment] # a constraint of the table
    return plan_ticks(
        timetable,
        job.next_run_at,
        job.now,
        misfire_grace=config.scheduler.misfire_grace,
        catch_up=catch_up,
        limit=job.catch_up_limit,
    )


def _new_ticks(job: DueJob, plan: TickPlan) -> list[NewTick]:
    on_time = "cron" if job.cron_expr else "once"
    owed = [(tick, "catch_up") for tick in plan.caught_up] + [(tick, on_time) for tick in plan.on_time]
    return [NewTick(job.id, tick, _due_at(job, tick), trigger) for tick, trigger in owed]


def _due_at(job: DueJob, tick: datetime) -> datetime:
    try:
        return tick + jitter_delay(job.id, tick, job.jitter_seconds) if job.jitter_seconds else tick
    except OverflowError:
        return tick


def _is_whole(found: JobRuns) -> bool:
    """Whether nobody else is at work on one of these runs."""
    return found.locked == found.total
