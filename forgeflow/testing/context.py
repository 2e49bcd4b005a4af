"""The context of a function that a test calls."""

import asyncio
import inspect
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from forgeflow.domain.schedule import check_zone
from forgeflow.errors import ForgeError, InvalidInput
from forgeflow.functions.auth import NOBODY, AuthContext
from forgeflow.functions.context import CronContext
from forgeflow.functions.log import CronLog, LogEntry
from forgeflow.functions.spec import takes_context
from forgeflow.testing.http import Handler, Mock, MockHttpClient, json_mock

if TYPE_CHECKING:  # a test without a database does not need its driver
    from psycopg_pool import ConnectionPool

_MAX_ATTEMPTS = 3


class RecordingLog(CronLog):
    """Keeps what a function says, for the test to look at."""

    def __init__(self, cron_name: str, entries: list[LogEntry]) -> None:
        super().__init__(cron_name, entries.append)
        self._entries = entries

    def entries(self) -> list[LogEntry]:
        """What was said up to now, in its order."""
        return list(self._entries)


@dataclass(kw_only=True)
class _TestSurroundings:
    """A place without anything but what the test has given."""

    cron_name: str
    environ: Mapping[str, str]
    own_client: MockHttpClient
    own_pool: Any
    is_stopping: bool
    entries: list[LogEntry] = field(default_factory=list)
    progress: list[tuple[int, str]] = field(default_factory=list)

    def pool(self) -> Any:
        if self.own_pool is None:
            raise ForgeError(
                f"the test of {self.cron_name} has no database: build its context .with_pool(pool), where the pytest "
                "fixture forgeflow_pool gives a pool of an empty one"
            )
        return self.own_pool

    def client(self) -> MockHttpClient:
        return self.own_client

    def should_stop(self) -> bool:
        return self.is_stopping

    def note_progress(self, percent: int, note: str) -> None:
        self.progress.append((percent, note))

    def log_entry(self, entry: LogEntry) -> None:
        self.entries.append(entry)


@dataclass(frozen=True, kw_only=True)
class TestCronContext(CronContext):
    """A context that reaches nothing outside of the test; `TestCronContext.builder("report").build()` makes one."""

    __test__: ClassVar[bool] = False  # it is no class of tests, whatever pytest thinks of its name

    log: RecordingLog
    surroundings: _TestSurroundings = field(repr=False, compare=False)

    @staticmethod
    def builder(cron_name: str) -> "TestCronContextBuilder":
        return TestCronContextBuilder(cron_name)

    def http(self) -> MockHttpClient:
        return self.surroundings.client()

    def progress_told(self) -> list[tuple[int, str]]:
        """What was told by `progress` up to now: whole percent, and the note."""
        return list(self.surroundings.progress)


@dataclass(frozen=True, slots=True)
class TestCronContextBuilder:
    """Says what the context will be. Each method gives another builder, so one may be kept and built upon."""

    __test__: ClassVar[bool] = False

    cron_name: str
    scheduled_time: datetime | None = None
    execution_time: datetime | None = None
    timezone: str = "UTC"
    is_catch_up: bool = False
    run_id: UUID | None = None
    attempt: int = 1
    auth: AuthContext = NOBODY
    pool: "ConnectionPool[Any] | None" = None
    mocks: tuple[Mock, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_stopping: bool = False

    def scheduled_at(self, time: datetime) -> "TestCronContextBuilder":
        """When the run was due; unless given, when it is executed.  Raises InvalidInput for a naive time."""
        return replace(self, scheduled_time=_in_utc(time, "scheduled_at"))

    def executed_at(self, time: datetime) -> "TestCronContextBuilder":
        """When the attempt began; unless given, when the context is built.  Raises InvalidInput for a naive time."""
        return replace(self, execution_time=_in_utc(time, "executed_at"))

    def with_timezone(self, timezone: str) -> "TestCronContextBuilder":
        """Raises CronError for no IANA name."""
        return replace(self, timezone=check_zone(timezone).key)

    def as_catch_up(self) -> "TestCronContextBuilder":
        return replace(self, is_catch_up=True)

    def with_run_id(self, run_id: UUID) -> "TestCronContextBuilder":
        return replace(self, run_id=run_id)

    def with_attempt(self, attempt: int) -> "TestCronContextBuilder":
        """The n-th try, from 1; there are three, or as many as this one.  Raises InvalidInput below 1."""
        if attempt < 1:
            raise InvalidInput("with_attempt: expected a whole number from 1")
        return replace(self, attempt=attempt)

    def as_user(self, user_id: UUID) -> "TestCronContextBuilder":
        return replace(self, auth=replace(self.auth, user_id=user_id))

    def with_role(self, role: str) -> "TestCronContextBuilder":
        """One role more."""
        return replace(self, auth=replace(self.auth, roles=self.auth.roles | {role}))

    def with_pool(self, pool: "ConnectionPool[Any]") -> "TestCronContextBuilder":
        return replace(self, pool=pool)

    def mock_http(self, pattern: str, handler: Handler) -> "TestCronContextBuilder":
        """Answer requests whose URL matches (`*`, `?`, `[…]`) by a function of the request.

        It gives a response or what JSON has, or raises what the transport would, say `httpx2.ConnectError`.
        """
        if not callable(handler):
            raise InvalidInput("mock_http: handler: expected a function of the request; mock_http_json takes a value")
        return replace(self, mocks=(*self.mocks, Mock(pattern, handler)))

    def mock_http_json(self, pattern: str, value: Any) -> "TestCronContextBuilder":
        """Answer them with 200 and that value.  Raises InvalidInput for one that JSON does not have."""
        return replace(self, mocks=(*self.mocks, json_mock(pattern, value)))

    def with_env(self, key: str, value: str) -> "TestCronContextBuilder":
        """Set a variable; the function sees those that were set so, and no others."""
        return replace(self, environ={**self.environ, key: value})

    def asked_to_stop(self) -> "TestCronContextBuilder":
        """The run was cancelled, or its node stops: `ctx.should_stop()` is true."""
        return replace(self, is_stopping=True)

    def build(self) -> TestCronContext:
        """A new context, with a log and a client of its own."""
        surroundings = _TestSurroundings(
            cron_name=self.cron_name,
            environ=self.environ,
            own_client=MockHttpClient(self.mocks),
            own_pool=self.pool,
            is_stopping=self.is_stopping,
        )
        executed_at = self.execution_time or datetime.now(UTC)
        return TestCronContext(
            run_id=self.run_id or uuid.uuid4(),
            cron_name=self.cron_name,
            scheduled_time=self.scheduled_time or executed_at,
            execution_time=executed_at,
            timezone=self.timezone,
            is_catch_up=self.is_catch_up,
            attempt=self.attempt,
            max_attempts=max(_MAX_ATTEMPTS, self.attempt),
            auth=self.auth,
            log=RecordingLog(self.cron_name, surroundings.entries),
            surroundings=surroundings,
        )


def _in_utc(time: datetime, method: str) -> datetime:
    if time.utcoffset() is None:
        raise InvalidInput(f"{method}: expected a datetime with a time zone, such as datetime.now(UTC)")
    return time.astimezone(UTC)


def run_cron(function: Callable[..., Any], ctx: CronContext, /, **arguments: Any) -> Any:
    """Call a function, `def` or `async def`, as a worker does, and give what it returns; what it raises is raised.

    `arguments` are those of a `forgeflow.job`. Raises ForgeError for an asynchronous one in an event loop.
    """
    returned = function(*([ctx] if takes_context(function) else []), **arguments)
    if not inspect.iscoroutine(returned):
        return returned
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(returned)
    returned.close()
    raise ForgeError("run_cron has an event loop of its own; in an asynchronous test, await the function itself")
