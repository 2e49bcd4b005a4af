"""What a function is told of its run, and what it may ask of the place where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, Self
from uuid import UUID
from zoneinfo import ZoneInfo

from forgeflow.errors import InvalidInput, MissingEnvError
from forgeflow.functions.auth import NOBODY, AuthContext
from forgeflow.functions.log import CronLog, LogEntry

if TYPE_CHECKING:  # a function that asks for neither does not pay for their import
    import httpx2
    from psycopg import Connection
    from psycopg_pool import ConnectionPool

# Shares that were added up may come to a little more, or less, than the whole.
_ROUNDING = 1e-6


class Surroundings(Protocol):
    """Where a function runs: a worker, or a test."""

    @property
    def environ(self) -> Mapping[str, str]: ...

    def pool(self) -> ConnectionPool[Connection[tuple[Any, ...]]]:
        """Connections to the user's own tables; the same pool in every run of a process."""

    def client(self) -> httpx2.Client:
        """The same one in every run of a process."""

    def should_stop(self) -> bool:
        """Whether this attempt is to come to its end: cancelled, or its node stops.  Never blocks."""

    def note_progress(self, percent: int, note: str) -> None:
        """Show how far this attempt has come, 0 to 100."""

    def log_entry(self, entry: LogEntry) -> None:
        """Keep what the function said."""


@dataclass(frozen=True, kw_only=True)
class CronContext:
    """One attempt of one run, as its function sees it; all times are in UTC.

    `attempt` counts the tries, from 1. `scheduled_time` is when the run was due, `execution_time` when this
    attempt began.
    """

    run_id: UUID
    cron_name: str
    scheduled_time: datetime
    execution_time: datetime
    timezone: str
    is_catch_up: bool
    attempt: int
    max_attempts: int
    auth: AuthContext = NOBODY
    log: CronLog
    surroundings: Surroundings = field(repr=False, compare=False)

    def db(self) -> ConnectionPool[Connection[tuple[Any, ...]]]:
        """`with ctx.db().connection() as connection:` commits when the block ends, and rolls back when it raises."""
        return self.surroundings.pool()

    def http(self) -> httpx2.Client:
        return self.surroundings.client()

    def delay(self) -> timedelta:
        """How long after its time it began; never negative."""
        return max(self.execution_time - self.scheduled_time, timedelta(0))

    def is_late(self, threshold: timedelta = timedelta(minutes=1)) -> bool:
        return self.delay() > threshold

    def local_scheduled_time(self) -> datetime:
        """When it was due, on the clock of its own time zone."""
        return self.scheduled_time.astimezone(ZoneInfo(self.timezone))

    def should_stop(self) -> bool:
        """Whether to come to an end soon: the run was cancelled, or its node stops.  For loops; never blocks."""
        return self.surroundings.should_stop()

    def progress(self, done: float, note: str = "") -> None:
        """Tell how far it has come: `done` is the part that is done, 0 to 1.  Raises InvalidInput for another."""
        if not -_ROUNDING <= done <= 1 + _ROUNDING:
            raise InvalidInput("progress: done: expected the part that is done, from 0 to 1")
        self.surroundings.note_progress(min(max(int(done * 100 + _ROUNDING), 0), 100), note)

    def env(self, key: str) -> str | None:
        return self.surroundings.environ.get(key)

    def env_require(self, key: str) -> str:
        """Raises MissingEnvError when it is not set."""
        value = self.env(key)
        if value is None:
            raise MissingEnvError(key)
        return value

    def with_auth(self, auth: AuthContext) -> Self:
        """The same run, acting for somebody else."""
        return replace(self, auth=auth)
