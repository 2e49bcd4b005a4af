"""Statements about ticks and leadership; all but `find_leader` go over the session that holds the leader's lock."""

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
    cron_expr: str | None
    timezone: str
    start_at: datetime | None
    end_at: datetime | None
    catch_up: str
    catch_up_limit: int
    next_run_at: datetime
    now: datetime


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
class _Term:
    term: int


@dataclass(frozen=True, slots=True)
class _RunId:
    id: UUID


@dataclass(frozen=True, slots=True)
class _Advanced:
    advanced: bool


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


def due_jobs(connection: Connection, *, max_rows: int, now: datetime | None = None) -> list[DueJob]:
    """Due jobs, locked until the end of the transaction."""
    return fetch_all(connection, "ticks/due_jobs", DueJob, {"max_rows": max_rows, "now": now})


def fire_tick(connection: Connection, *, job_id: UUID, tick_at: datetime, trigger: str, term: int) -> UUID | None:
    """The run of this tick; None when it has fired before."""
    parameters = {"job_id": job_id, "tick_at": tick_at, "trigger": trigger, "term": term}
    row = fetch_one(connection, "ticks/fire_tick", _RunId, parameters)
    return row.id if row else None


def record_gap(connection: Connection, *, job_id: UUID, from_at: datetime, to_at: datetime, reason: str) -> None:
    parameters = {"job_id": job_id, "from_at": from_at, "to_at": to_at, "reason": reason}
    execute(connection, "ticks/record_gap", parameters)


def advance_job(connection: Connection, *, job_id: UUID, old: datetime, new: datetime | None) -> bool:
    """Whether the clock was moved; False means that somebody else did, and the transaction must be undone."""
    row = fetch_one(connection, "ticks/advance_job", _Advanced, {"job_id": job_id, "old": old, "new": new})
    return row is not None
