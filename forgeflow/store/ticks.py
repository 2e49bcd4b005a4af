"""Statements about ticks and leadership; all but `find_leader` go over the session that holds the leader's lock."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from forgeflow.store.connection import Connection
from forgeflow.store.listener import tell
from forgeflow.store.statements import execute, fetch_all, fetch_one


@dataclass(frozen=True, slots=True)
class DueJob:
    """A job whose next tick has come; `now` is the database's clock."""

    id: UUID
    status: str
    cron_expr: str | None
    run_at: datetime | None
    timezone: str
    start_at: datetime | None
    end_at: datetime | None
    catch_up: str
    catch_up_limit: int
    overlap: str
    jitter_seconds: float
    pause_reason: str | None
    next_run_at: datetime
    now: datetime


@dataclass(frozen=True, slots=True)
class NewTick:
    """A tick that shall have a run, due at `run_after`."""

    job_id: UUID
    tick_at: datetime
    run_after: datetime
    trigger: str


@dataclass(frozen=True, slots=True)
class FiredTick:
    job_id: UUID
    tick_at: datetime
    run_id: UUID


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch of ticks that were not run, from its first to its last; None: it goes on."""

    from_at: datetime
    to_at: datetime | None
    reason: str
    note: str | None = None


@dataclass(frozen=True, slots=True)
class TickRow:
    """What became of a tick that has an outcome of its own."""

    outcome: str
    run_id: UUID | None
    blocked_by: UUID | None
    fired_at: datetime


@dataclass(frozen=True, slots=True)
class Leader:
    """Whether a scheduler leads, and which one was the last that began to."""

    is_led: bool
    worker_id: str | None
    term: int | None


@dataclass(frozen=True, slots=True)
class _Won:
    won: bool


@dataclass(frozen=True, slots=True)
class _Seconds:
    seconds: float | None


@dataclass(frozen=True, slots=True)
class _Term:
    term: int


@dataclass(frozen=True, slots=True)
class _JobId:
    id: UUID


@dataclass(frozen=True, slots=True)
class _TickAt:
    tick_at: datetime


@dataclass(frozen=True, slots=True)
class _Skipped:
    skipped: bool


@dataclass(frozen=True, slots=True)
class _Ended:
    ended: bool


def find_leader(connection: Connection) -> Leader:
    leader = fetch_one(connection, "ticks/find_leader", Leader)
    assert leader
    return leader


def try_leadership(connection: Connection) -> bool:
    """Whether this session leads now; ask once a session only.  Waits for nobody."""
    row = fetch_one(connection, "ticks/try_leadership", _Won)
    return row is not None and row.won


def begin_term(connection: Connection, *, boot_id: UUID, worker_id: str) -> int:
    row = fetch_one(connection, "ticks/begin_term", _Term, {"boot_id": boot_id, "worker_id": worker_id})
    assert row
    return row.term


def limit_idle_session(connection: Connection, *, idle_seconds: float) -> None:
    """The server ends this session when it is silent for that long."""
    execute(connection, "ticks/limit_idle_session", {"idle_seconds": idle_seconds})


def resign_leadership(connection: Connection) -> None:
    """The lock is free afterwards, and the standbys know it, unless the queue of notifications is full."""
    tell(lambda: execute(connection, "ticks/resign_leadership"))


def seconds_to_next(connection: Connection) -> float | None:
    """Until a job is due, 0 or less when one is; None when there is none to wait for."""
    row = fetch_one(connection, "ticks/seconds_to_next", _Seconds)
    assert row
    return row.seconds


def announce_clock(connection: Connection) -> bool:
    """Call it after the commit of a schedule that may be due sooner than any other.  False as `tell`."""
    return tell(lambda: execute(connection, "ticks/announce_clock"))


def due_jobs(connection: Connection, *, max_rows: int, now: datetime | None = None) -> list[DueJob]:
    """Due jobs, locked until the end of the transaction."""
    return fetch_all(connection, "ticks/due_jobs", DueJob, {"max_rows": max_rows, "now": now})


def fire_ticks(connection: Connection, *, ticks: Sequence[NewTick], are_held: bool, term: int) -> list[FiredTick]:
    """The runs of these ticks; those that have had their outcome before get none."""
    parameters = {
        "job_ids": [tick.job_id for tick in ticks],
        "tick_ats": [tick.tick_at for tick in ticks],
        "run_afters": [tick.run_after for tick in ticks],
        "triggers": [tick.trigger for tick in ticks],
        "are_held": are_held,
        "term": term,
    }
    return fetch_all(connection, "ticks/fire_ticks", FiredTick, parameters)


def skip_tick(
    connection: Connection,
    *,
    job_id: UUID,
    tick_at: datetime,
    outcome: str,
    blocked_by: UUID | None = None,
    term: int | None = None,
) -> bool:
    """Whether this tick had no outcome before; it has no run."""
    parameters = {
        "job_id": job_id,
        "tick_at": tick_at,
        "outcome": outcome,
        "blocked_by": blocked_by,
        "term": term,
    }
    return fetch_one(connection, "ticks/skip_tick", _Skipped, parameters) is not None


def record_gaps(connection: Connection, *, gaps: Sequence[tuple[UUID, Gap]]) -> None:
    """Stretches of jobs that have an end."""
    parameters = {
        "job_ids": [job_id for job_id, _ in gaps],
        "from_ats": [gap.from_at for _, gap in gaps],
        "to_ats": [gap.to_at for _, gap in gaps],
        "reasons": [gap.reason for _, gap in gaps],
    }
    execute(connection, "ticks/record_gaps", parameters)


def open_gap(connection: Connection, *, job_id: UUID, from_at: datetime, reason: str) -> None:
    execute(connection, "ticks/open_gap", {"job_id": job_id, "from_at": from_at, "reason": reason})


def close_gap(connection: Connection, *, job_id: UUID, to_at: datetime, note: str | None = None) -> None:
    execute(connection, "ticks/close_gap", {"job_id": job_id, "to_at": to_at, "note": note})


def advance_jobs(connection: Connection, *, moves: Sequence[tuple[UUID, datetime, datetime | None]]) -> set[UUID]:
    """The jobs whose clock was moved, from the old to the new; undo the transaction when one is missing."""
    parameters = {
        "job_ids": [job_id for job_id, _, _ in moves],
        "olds": [old for _, old, _ in moves],
        "news": [new for _, _, new in moves],
    }
    return {row.id for row in fetch_all(connection, "ticks/advance_jobs", _JobId, parameters)}


def end_pause(connection: Connection, *, job_id: UUID, old: datetime, new: datetime | None) -> bool:
    """Whether the job was still paused until `old`; it is active now, its clock stands at `new`."""
    return fetch_one(connection, "ticks/end_pause", _Ended, {"job_id": job_id, "old": old, "new": new}) is not None


def find_tick(connection: Connection, *, job_id: UUID, tick_at: datetime) -> TickRow | None:
    return fetch_one(connection, "ticks/find_tick", TickRow, {"job_id": job_id, "tick_at": tick_at})


def find_gap(connection: Connection, *, job_id: UUID, instant: datetime) -> Gap | None:
    return fetch_one(connection, "ticks/find_gap", Gap, {"job_id": job_id, "instant": instant})


def skipped_ticks(connection: Connection, *, job_id: UUID, after: datetime) -> set[datetime]:
    """Ticks to come that somebody has taken out."""
    rows = fetch_all(connection, "ticks/skipped_ticks", _TickAt, {"job_id": job_id, "after": after})
    return {row.tick_at for row in rows}


def unskip_ticks(connection: Connection, *, job_id: UUID, tick_at: datetime | None) -> list[datetime]:
    """Ticks to come that were taken out, and are in again; all, or that one."""
    rows = fetch_all(connection, "ticks/unskip_ticks", _TickAt, {"job_id": job_id, "tick_at": tick_at})
    return [row.tick_at for row in rows]


# Time zone data


@dataclass(frozen=True, slots=True)
class FutureTick:
    """A job's next tick and what it is computed from: the first one after `now` that was not taken out."""

    id: UUID
    name: str
    version: int
    cron_expr: str
    timezone: str
    start_at: datetime | None
    end_at: datetime | None
    next_run_at: datetime
    now: datetime
    skipped: list[datetime]


@dataclass(frozen=True, slots=True)
class _ZoneVersion:
    version: str | None


def find_zone_version(connection: Connection) -> str | None:
    row = fetch_one(connection, "ticks/find_zone_version", _ZoneVersion)
    return row.version if row else None


def record_zone_version(connection: Connection, *, version: str, term: int) -> None:
    execute(connection, "ticks/record_zone_version", {"version": version, "term": term})


def future_ticks(
    connection: Connection, *, after: UUID | None, only: Sequence[UUID] | None, max_rows: int
) -> list[FutureTick]:
    """A page by id, of all jobs or of `only` those; nothing is locked."""
    parameters = {"after": after, "only": None if only is None else list(only), "max_rows": max_rows}
    return fetch_all(connection, "ticks/future_ticks", FutureTick, parameters)


def move_ticks(
    connection: Connection,
    *,
    job_ids: Sequence[UUID],
    versions: Sequence[int],
    old: Sequence[datetime],
    new: Sequence[datetime | None],
) -> list[UUID]:
    """The jobs whose tick was moved; the lists go together, an entry for each job.  Waits for nobody."""
    parameters = {"job_ids": list(job_ids), "versions": list(versions), "old": list(old), "new": list(new)}
    return [row.id for row in fetch_all(connection, "ticks/move_ticks", _JobId, parameters)]
