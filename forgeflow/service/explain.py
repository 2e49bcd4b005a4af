"""Why a job did, or did not, run at a time: the one outcome of that tick, from rows."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from uuid import UUID
from zoneinfo import ZoneInfo

from forgeflow.domain.instant import read_moment
from forgeflow.domain.schedule import check_zone
from forgeflow.domain.timetable import Once, Timetable, is_tick, make_timetable
from forgeflow.domain.transitions import JobStatus
from forgeflow.errors import CronError, FieldProblem, InvalidInput
from forgeflow.service.jobs import get_job
from forgeflow.store import jobs, runs, ticks
from forgeflow.store.connection import Connection
from forgeflow.store.jobs import JobRow, Timing
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
    `previous` and `following` are the ticks around an instant that is none.
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
        instant = read_moment(at, zone)
    except ValueError as error:
        raise InvalidInput("the time cannot be read", [FieldProblem("at", str(error), "bad-parameter")]) from error
    return _Inquiry(connection, job, instant, zone).explain()


class _Inquiry:
    """One question, asked of the ledger first, then of what the job was then, then of the stretches."""

    def __init__(self, connection: Connection, job: JobRow, at: datetime, zone: ZoneInfo) -> None:
        self._connection = connection
        self._job = job
        self._at = at
        self._zone = zone

    def explain(self) -> Explanation:
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

    def _judge(self, timing: Timing) -> Explanation:
        whole = make_timetable(timing.cron_expr, timing.run_at, timing.timezone)
        if whole is None:
            return self._say(Outcome.NO_TICK, "the job has no schedule: it ran when it was submitted, and by trigger")
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
            return self._say(Outcome.SKIP_NEXT, f"somebody took this tick out, at {_text(tick.fired_at)}")
        if tick.outcome == Outcome.OVERLAP:
            why = f"run {tick.blocked_by} of this job was unfinished, and overlap did not let another one begin"
            return self._say(Outcome.OVERLAP, why, blocked_by=tick.blocked_by)
        assert tick.run_id
        run = runs.get_run(self._connection, run_id=tick.run_id)
        became = f"run {tick.run_id} is {run.status}" if run else f"run {tick.run_id} is not kept any more"
        late_by = tick.fired_at - self._at
        if tick.outcome == Outcome.CAUGHT_UP:
            outcome, why = Outcome.CAUGHT_UP, f"missed, and caught up {_span(late_by)} later"
        elif late_by > _LATE:
            outcome, why = Outcome.LATE, f"it got its run {_span(late_by)} late"
        else:
            outcome, why = Outcome.RAN, "it ran"
        return self._say(outcome, f"{why}: {became}", run=run, fired_at=tick.fired_at)

    def _say_between(self, timing: Timing) -> Explanation:
        inside = make_timetable(
            timing.cron_expr, timing.run_at, timing.timezone, start_at=timing.start_at, end_at=timing.end_at
        )
        assert inside
        before, after = _around(inside, self._at)
        shown = [f"the one before is {_text(before)}"] if before else []
        shown += [f"the next one is {_text(after)}"] if after else []
        why = "; ".join(["the schedule has no tick then", *shown])
        return self._say(Outcome.NO_TICK, why, previous=before, following=after)

    def _say_gap(self, gap: Gap) -> Explanation:
        note = gap.note if gap.to_at else self._job.pause_reason
        why = {
            "missed": "nobody led at that time, and catch_up did not want this tick",
            "coalesced": "later ticks of the same minute ran in its place",
            "paused": f"the job was paused{f': {note}' if note else ''}",
            "cancelled": "the job was cancelled",
            "edited": "it was due, and had no run yet, when the schedule was changed",
        }[gap.reason]
        return self._say(Outcome(gap.reason), why, gap=gap)

    def _say_open(self) -> Explanation:
        now = jobs.server_now(self._connection)
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
            self._job, self._at, local, outcome, reason, run, fired_at, blocked_by, gap, previous, following
        )


def _around(timetable: Timetable | Once, at: datetime) -> tuple[datetime | None, datetime | None]:
    return timetable.previous(at), timetable.next_after(at)


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
