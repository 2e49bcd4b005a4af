"""A schedule within a window: what a job's next tick is taken from."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from forgeflow.domain.schedule import Schedule

_MOMENT = timedelta(microseconds=1)
_MAX_INSTANT = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Timetable:
    """The ticks of `schedule` from `start_at` to `end_at`, both included; None leaves that side open.

    Answers as Schedule does, in aware UTC.
    """

    schedule: Schedule
    start_at: datetime | None = None
    end_at: datetime | None = None

    def next_after(self, instant: datetime) -> datetime | None:
        """First tick strictly after `instant`; None when the window, or the calendar, has no more."""
        if self.start_at and instant < self.start_at:
            instant = self.start_at - _MOMENT
        tick = self.schedule.next_after(instant)
        return None if tick and self.end_at and tick > self.end_at else tick

    def previous(self, instant: datetime) -> datetime | None:
        """Last tick strictly before `instant`; None when the window, or the calendar, has none."""
        if self.end_at and instant > self.end_at:
            instant = self.end_at + _MOMENT
        tick = self.schedule.previous(instant)
        return None if tick and self.start_at and tick < self.start_at else tick

    def between(self, start: datetime, end: datetime, limit: int) -> list[datetime]:
        """The first `limit` ticks after `start` and up to `end` inclusive, oldest first."""
        if self.start_at and start < self.start_at:
            start = self.start_at - _MOMENT
        return self.schedule.between(start, min(end, self.end_at or _MAX_INSTANT), limit)


@dataclass(frozen=True, slots=True)
class Once:
    """The timetable of a job with `run_at`: one tick."""

    run_at: datetime

    def next_after(self, instant: datetime) -> datetime | None:
        return self.run_at if self.run_at > instant else None

    def previous(self, instant: datetime) -> datetime | None:
        return self.run_at if self.run_at < instant else None

    def between(self, start: datetime, end: datetime, limit: int) -> list[datetime]:
        return [self.run_at][:limit] if start < self.run_at <= end else []


def make_timetable(
    cron_expr: str | None,
    run_at: datetime | None,
    timezone: str,
    *,
    start_at: datetime | None = None,
    end_at: datetime | None = None,
) -> Timetable | Once | None:
    """What a job with these fields goes by; None for one that has no time of its own.  Raises CronError."""
    if cron_expr is not None:
        return Timetable(Schedule(cron_expr, timezone), start_at, end_at)
    return Once(run_at) if run_at else None


def is_tick(timetable: Timetable | Once, instant: datetime) -> bool:
    return timetable.next_after(instant - _MOMENT) == instant
