"""Which ticks of a due job become runs, and which one comes next."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from forgeflow.domain.timetable import Timetable

CatchUp = Literal["skip", "once", "all"]


Stretch = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class TickPlan:
    """Ticks to fire, oldest first: `caught_up` late by policy, `on_time` as usual; `next_at` is the clock's new stand.

    Ticks that nobody runs stand by their first and last: `missed` by policy, `coalesced` into a later one.
    """

    caught_up: tuple[datetime, ...]
    on_time: tuple[datetime, ...]
    next_at: datetime | None
    missed: Stretch | None = None
    coalesced: Stretch | None = None


# Within the grace a schedule of seconds would owe a burst; one late tick older than this is enough.
_BURST_SECONDS = 15.0


def plan_once(run_at: datetime) -> TickPlan:
    """A job with `run_at` has one tick, which is run however late it is."""
    return TickPlan((), (run_at,), None)


def plan_ticks(
    timetable: Timetable, due_at: datetime, now: datetime, *, misfire_grace: float, catch_up: CatchUp, limit: int
) -> TickPlan:
    """What a job owes that was due at `due_at`, when it is `now`.

    A tick late by less than `misfire_grace` seconds simply runs; but of ticks less than a minute apart and older than
    15 s only the latest, unless `all` are wanted. Older ones are missed: `skip` drops them, `once` runs the latest,
    `all` the latest `limit` of them. Costs at most `limit` steps back and the ticks within the
    grace, however long the outage was.  Source: README "What is promised", "Jobs".
    """
    grace_start = now - timedelta(seconds=misfire_grace)
    in_grace = [due_at] if due_at > grace_start else []
    next_at = timetable.next_after(max(due_at, grace_start))
    while next_at and next_at <= now:
        in_grace.append(next_at)
        next_at = timetable.next_after(next_at)
    kept = _latest_missed(timetable, due_at, grace_start, {"skip": 0, "once": 1, "all": limit}[catch_up])
    on_time = tuple(in_grace) if catch_up == "all" else _thin_burst(in_grace, now)
    coalesced = [tick for tick in in_grace if tick not in on_time]
    return TickPlan(
        kept,
        on_time,
        next_at,
        _missed(timetable, due_at, grace_start, kept),
        (coalesced[0], coalesced[-1]) if coalesced else None,
    )


def _latest_missed(timetable: Timetable, due_at: datetime, end: datetime, count: int) -> tuple[datetime, ...]:
    """The last `count` ticks from `due_at` to `end`, both included, oldest first."""
    found: list[datetime] = []
    upper = end + timedelta(microseconds=1)
    while len(found) < count and (tick := timetable.previous(upper)) is not None and tick >= due_at:
        found.append(tick)
        upper = tick
    if not found and count and due_at <= end:
        found.append(due_at)  # a tick of an older version of the schedule
    return tuple(reversed(found))


def _thin_burst(ticks: list[datetime], now: datetime) -> tuple[datetime, ...]:
    """Of ticks less than a minute apart and older than 15 s only the latest."""
    edge = now - timedelta(seconds=_BURST_SECONDS)
    return tuple(
        tick
        for tick, follower in zip(ticks, [*ticks[1:], None], strict=False)
        if tick >= edge or follower is None or follower >= edge or (follower - tick).total_seconds() >= 60
    )


def _missed(
    timetable: Timetable, due_at: datetime, grace_start: datetime, kept: tuple[datetime, ...]
) -> Stretch | None:
    if due_at > grace_start:
        return None
    last = timetable.previous(kept[0] if kept else grace_start + timedelta(microseconds=1))
    if kept and (last is None or last < due_at):
        return None
    return (due_at, max(due_at, last or due_at))
