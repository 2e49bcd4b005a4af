"""Where functions run in a worker: the pool, the client and the environment of its process, and the run at hand."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import structlog

from forgeflow.config import Config
from forgeflow.executors.base import Orders
from forgeflow.executors.output import OutputKeeper
from forgeflow.functions.context import CronContext
from forgeflow.functions.log import CronLog, LogEntry
from forgeflow.store.runs import ClaimedRun

if TYPE_CHECKING:  # both are made when a function asks for the first time
    import httpx2
    from psycopg import Connection
    from psycopg_pool import ConnectionPool

log = structlog.get_logger()


class Belongings:
    """What all functions of one worker share; made in the worker, so none of it is inherited by a fork."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._pool: ConnectionPool[Connection[tuple[Any, ...]]] | None = None
        self._client: httpx2.Client | None = None

    def pool(self) -> "ConnectionPool[Connection[tuple[Any, ...]]]":
        if self._pool is None:
            from forgeflow.store.connection import open_users_pool

            self._pool = open_users_pool(self._config)
        return self._pool

    def client(self) -> "httpx2.Client":
        if self._client is None:
            import httpx2

            self._client = httpx2.Client()
        return self._client


@dataclass
class WorkerSurroundings:
    """What one attempt's function reaches."""

    run: ClaimedRun
    belongings: Belongings
    orders: Orders
    keeper: OutputKeeper
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    was_told: str | None = None  # why it was told to stop

    def pool(self) -> "ConnectionPool[Connection[tuple[Any, ...]]]":
        return self.belongings.pool()

    def client(self) -> "httpx2.Client":
        return self.belongings.client()

    def should_stop(self) -> bool:
        """For the thread that executes."""
        self.was_told = self.was_told or self.orders.stop_reason(self.run)
        return self.was_told is not None

    def note_progress(self, percent: int, note: str) -> None:
        self.keeper.note_progress(percent, note)

    def log_entry(self, entry: LogEntry) -> None:
        """To the log of the service, as far as its level goes, and to the output of the run."""
        data = json.dumps(dict(entry.data), ensure_ascii=False, default=str, skipkeys=True) if entry.data else ""
        line = " ".join(part for part in (entry.level, entry.message, data) if part)
        self.keeper.feed(f"{line}\n".encode("utf-8", "backslashreplace"))
        write = log.warning if entry.level == "warn" else getattr(log, entry.level)
        write(
            "function said",
            message=entry.message,
            data=json.loads(data) if data else {},
            cron_name=entry.cron_name,
            run_id=str(self.run.id),
            attempt=self.run.attempt,
        )


def context_of(surroundings: WorkerSurroundings, name: str) -> CronContext:
    """What the function of that name is told of its run."""
    run = surroundings.run
    return CronContext(
        run_id=run.id,
        cron_name=name,
        scheduled_time=run.scheduled_for.astimezone(UTC),
        execution_time=datetime.now(UTC),
        timezone=run.timezone,
        is_catch_up=run.is_catch_up,
        attempt=run.failures + 1,
        max_attempts=run.max_attempts,
        log=CronLog(name, surroundings.log_entry),
        surroundings=surroundings,
    )
