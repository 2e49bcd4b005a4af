"""Why a job did, or did not, run at a time: the one outcome of that tick, from rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from uuid import UUID
from zoneinfo import ZoneInfo

from forgeflow.domain.instant import Moment, read_moment
from forgeflow.domain.run import RunStatus
from forgeflow.domain.schedule import Schedule, check_zone
from forgeflow.domain.timetable import is_tick, make_timetable
from forgeflow.domain.transitions import JobStatus
from forgeflow.errors import CronError, FieldProblem, InvalidInput
from forgeflow.service.jobs import get_job
from forgeflow.store import jobs, runs, ticks
from forgeflow.store.connection import Connection
from forgeflow.store.jobs import JobRow, PastTiming
from forgeflow.store.runs import RunRow
from forgeflow.store.ticks import Gap, TickRow

# A tick that had its run later than this is told to be late: a change of the leader may take so long.
_LATE = timedelta(seconds=5)


class Outcome(StrEnum):
    """What became of a tick, or why an instant is none."""

    RAN = "ran"
    LATE = "late"
    CAUGHT_UP = "caught_up"
    COALESCED = "coalesced"
    OVERLAP = "overlap"
    SKIP_NEXT = "skip_next"
    MISSED = "missed"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    EDITED = "edited"
    NOT_STARTED = "not_started"
    ENDED = "ended"
    PLANNED = "planned"
    DUE = "due"
    NO_TICK = "no_tick"
    NOT_SUBMITTED = "not_submitted"
    UNRECORDED = "unrecorded"


@dataclass(frozen=True, slots=True)
class Explanation:
    """One outcome, and a sentence that says it.

    `run` is the tick's own, `blocked_by` the run that was in its way; `gap` the stretch of ticks that shared its fate;
    `previous` and `following` are the ticks around an instant that is none. `notes` tell of a clock that was set.
    """

    job: JobRow
    at: datetime
    local: datetime
    outcome: Outcome
    reason: str
    run: RunRow | None = None
    fired_at: datetime | None = None
    blocked_by: UUID | None = None
    gap: Gap | None = None
    previous: datetime | None = None
    following: datetime | None = None
    notes: tuple[str, ...] = ()


def explain_tick(connection: Connection, job_id: UUID, at: str) -> Explanation:
    """What became of the tick at that time; without an offset it is a reading of the job's clock.

    Judged by what the job was at that time.  Raises NotFound, InvalidInput.
    """
    job = get_job(connection, job_id)
    try:
        zone = check_zone(job.timezone)
    except CronError:  # stored under other time zone data
        zone = ZoneInfo("UTC")
    try:
        moment = read_moment(at, zone)
    except ValueError as error:
        raise InvalidInput("the time cannot be read", [FieldProblem("at", str(error), "bad-parameter")]) from error
    return _Inquiry(connection, job, moment, zone).explain()


class _Inquiry:
    """One question, asked of the ledger first, then of what the job was then, then of the stretches."""

    def __init__(self, connection: Connection, job: JobRow, moment: Moment, zone: ZoneInfo) -> None:
        self._connection = connection
        self._job = job
        self._moment = moment
        self._at = moment.at
        self._zone = zone

    def explain(self) -> Explanation:
        if self._moment.is_skipped and (skipped := self._judge_skipped()):
            return skipped
        tick = ticks.find_tick(self._connection, job_id=self._job.id, tick_at=self._at)
        if tick:
            return self._say_ticked(tick)
        if self._at < self._job.created_at:
            return self._say(Outcome.NOT_SUBMITTED, f"the job was submitted later, at {_text(self._job.created_at)}")
        timing = jobs.timing_at(self._connection, job_id=self._job.id, instant=self._at)
        assert timing
        try:
            return self._judge(timing)
        except CronError as error:
            return self._say(Outcome.UNRECORDED, f"its schedule cannot be read: {error}")

    def _judge_skipped(self) -> Explanation | None:
        """A reading that the clock never showed; None where a fixed time that it skipped is run after the gap."""
        reading, timing = self._moment.reading, jobs.timing_at(self._connection, job_id=self._job.id, instant=self._at)
        if reading is None or timing is None or timing.cron_expr is None:
            return None
        try:
            schedule = Schedule(timing.cron_expr, timing.timezone)
        except CronError:
            return None
        if not schedule.readings_within(reading, reading + timedelta(seconds=1)):
            return self._say(Outcome.NO_TICK, "the schedule has no tick then")
        if schedule.is_interval:
            return self._say(Outcome.NO_TICK, "schedules of intervals make up for nothing that the clock skips")
        return None

    def _judge(self, timing: PastTiming) -> Explanation:
        whole = make_timetable(timing.cron_expr, timing.run_at, timing.timezone)
        if whole is None:
            why = f"the job had no schedule then: it is due when submitted, which was at {_text(self._job.created_at)}"
            return self._say(Outcome.NO_TICK, f"{why}, and runs by trigger")
        if not is_tick(whole, self._at):
            return self._say_between(timing)
        if timing.start_at and self._at < timing.start_at:
            return self._say(Outcome.NOT_STARTED, f"the schedule begins at {_text(timing.start_at)}")
        if timing.end_at and self._at > timing.end_at:
            return self._say(Outcome.ENDED, f"the schedule ended at {_text(timing.end_at)}")
        gap = ticks.find_gap(self._connection, job_id=self._job.id, instant=self._at)
        if gap and not self._is_after_pause(gap):
            return self._say_gap(gap)
        return self._say_open()

    def _is_after_pause(self, gap: Gap) -> bool:
        """A pause that has an end says nothing of what comes after it."""
        until = self._job.paused_until
        return gap.to_at is None and until is not None and self._at >= until

    def _say_ticked(self, tick: TickRow) -> Explanation:
        if tick.outcome == Outcome.SKIP_NEXT:
            return self._say(Outcome.SKIP_NEXT, f"somebody took this tick out, at {self._clock(tick.fired_at)}")
        if tick.outcome == Outcome.OVERLAP:
            rule = "overlap let no other begin"
            if self._job.overlap == "queue":
                rule = "as many as catch_up_limit says were waiting behind it"
            why = f"run {tick.blocked_by} of this job was unfinished, and {rule}"
            return self._say(Outcome.OVERLAP, why, blocked_by=tick.blocked_by)
        assert tick.run_id
        run = runs.get_run(self._connection, run_id=tick.run_id)
        became = self._say_run(run) + self._say_retried(run) if run else f"run {tick.run_id} is not kept any more"
        late_by = tick.fired_at - self._at
        if tick.outcome == Outcome.CAUGHT_UP:
            outcome, why = Outcome.CAUGHT_UP, f"it was missed, and caught up {_span(late_by)} later: "
        elif late_by > _LATE:
            outcome, why = Outcome.LATE, f"it got its run {_span(late_by)} late: "
        else:
            outcome, why = Outcome.RAN, ""
        return self._say(outcome, f"{why}{became}", run=run, fired_at=tick.fired_at)

    def _say_run(self, run: RunRow) -> str:
        """What its run is at, or what became of it."""
        begun = f"begun {_span(run.started_at - self._at)} after its time" if run.started_at else "never begun"
        if run.status == RunStatus.RUNNING:
            return f"its run goes on, {begun}"
        if run.status == RunStatus.SUCCEEDED:
            assert run.finished_at
            return f"it ran, {begun}, ended at {self._clock(run.finished_at)}"
        if run.status == RunStatus.DEAD:
            return f"its run failed {run.failures} of {run.max_attempts} times, the last one {begun}: {run.error}"
        if run.status == RunStatus.CANCELLED:
            return f"its run was cancelled, {begun}{f': {run.error}' if run.error else ''}"
        if run.is_held:
            return "its run waits until the others of its job have ended"
        due = run.next_attempt_at
        if due and due > jobs.server_now(self._connection):
            why = "its next try" if run.failures else "its time, by jitter_seconds"
            return f"its run waits for {why}, {self._clock(due)}"
        return "its run waits for a worker"

    def _say_retried(self, run: RunRow) -> str:
        """Which run did it again, the last one of them."""
        for seen in runs.find_retries(self._connection, run_ids=[run.id]):
            if last := seen.unfinished_id or seen.ended_id:
                return f"; run {last} retried it"
        return ""

    def _say_between(self, timing: PastTiming) -> Explanation:
        inside = make_timetable(
            timing.cron_expr, timing.run_at, timing.timezone, start_at=timing.start_at, end_at=timing.end_at
        )
        assert inside
        before, after = inside.previous(self._at), inside.next_after(self._at)
        # What this schedule would have had while the job had another one is none of its ticks.
        before = before if before and before >= timing.since else None
        after = after if after and (timing.until is None or after < timing.until) else None
        shown = [f"the one before is {self._clock(before)}"] if before else []
        shown += [f"the next one is {self._clock(after)}"] if after else []
        why = "; ".join(["the schedule has no tick then", *shown])
        return self._say(Outcome.NO_TICK, why, previous=before, following=after)

    def _say_gap(self, gap: Gap) -> Explanation:
        note = gap.note if gap.to_at else self._job.pause_reason
        why = {
            "missed": f"nobody led at that time, and catch_up, {self._job.catch_up}, did not want this tick",
            "coalesced": "later ticks of the same minute ran in its place",
            "paused": f"the job was paused{f': {note}' if note else ''}",
            "cancelled": "the job was cancelled",
            "edited": "it was due, and had no run yet, when the schedule was changed",
        }[gap.reason]
        return self._say(Outcome(gap.reason), why, gap=gap)

    def _say_open(self) -> Explanation:
        now = jobs.server_now(self._connection)
        if self._job.status == JobStatus.CANCELLED:
            return self._say(Outcome.CANCELLED, "the job was cancelled")
        if self._at > now:
            return self._say(Outcome.PLANNED, f"it is to come, in {_span(self._at - now)}")
        clock = self._job.paused_until if self._job.status == JobStatus.PAUSED else self._job.next_run_at
        if clock and clock <= self._at:
            leader = ticks.find_leader(self._connection)
            who = f"node {leader.worker_id} leads" if leader.is_led else "no scheduler leads at the moment"
            return self._say(Outcome.DUE, f"it is due, and is going to be run or not by catch_up; {who}")
        return self._say(Outcome.UNRECORDED, "the ledger has nothing of this tick")

    def _say(
        self,
        outcome: Outcome,
        reason: str,
        *,
        run: RunRow | None = None,
        fired_at: datetime | None = None,
        blocked_by: UUID | None = None,
        gap: Gap | None = None,
        previous: datetime | None = None,
        following: datetime | None = None,
    ) -> Explanation:
        try:
            local = self._at.astimezone(self._zone)
        except OverflowError:
            local = self._at
        return Explanation(
            self._job,
            self._at,
            local,
            outcome,
            reason,
            run,
            fired_at,
            blocked_by,
            gap,
            previous,
            following,
            tuple(self._notes(local)),
        )

    def _notes(self, local: datetime) -> Iterator[str]:
        if self._moment.is_skipped:
            yield f"the clock skipped {self._moment.reading:%H:%M:%S} that day, and went on at {local:%H:%M:%S}"
        if self._moment.is_repeated:
            yield "the clock shows this time twice that day; this is the first one, ask with an offset for the other"

    def _clock(self, instant: datetime) -> str:
        """On the job's clock, with its offset, to the second."""
        try:
            return instant.astimezone(self._zone).isoformat(" ", "seconds")
        except OverflowError:
            return _text(instant)


def _text(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _span(span: timedelta) -> str:
    """`2 h 5 min`, `1.3 s`"""
    seconds = span.total_seconds()
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} days {hours} h" if hours else f"{days} days"
