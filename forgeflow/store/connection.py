"""Connections with a deadline on every wait, and what a broken one means.

No setting of the server and no keepalive ends a call to a server that was stopped: only the client can. So every
wait of these connections ends at a deadline, and the connection with it.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg import pq
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import Row
from psycopg_pool import ConnectionPool, PoolTimeout

from forgeflow.config import Config
from forgeflow.errors import ConfigError, SchemaMismatch, StoreBusy, StoreError, StoreUnavailable

T = TypeVar("T")

# What a dead peer costs at most: an idle socket 5 + 3 * 2 s, unacknowledged data 5 s.
_KEEPALIVES = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 5000,
}


# How long the pool waits for a sign of life of a connection that it is about to lend.
_CHECK_SECONDS = 2.0


class DeadlineConnection(psycopg.Connection[Row]):
    """Gives up a wait after `deadline_seconds`, and closes itself then: what became of the statement is unknown.

    `wait` is psycopg's own hook and its `timeout` new in 3.3; setup.cfg pins the minor version for it.
    """

    deadline_seconds: float = 30.0
    schema_seen_at: float = float("-inf")  # on the monotonic clock; kept here, for it goes with the connection

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.deadline_seconds)
        except pg._WaitTimeout as error:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer from the database within {self.deadline_seconds:g} s") from error


Connection = DeadlineConnection[Any]
Pool = ConnectionPool[Connection]


def _parameters(config: Config, role: str, statement_seconds: float) -> dict[str, Any]:
    """What every connection is opened with: search_path, clock and limits travel in the start packet."""
    settings = {
        "search_path": f"{config.database.schema_name},pg_catalog",
        "timezone": "UTC",
        "statement_timeout": f"{statement_seconds * 1000:.0f}",
        "lock_timeout": f"{min(3.0, 0.6 * statement_seconds) * 1000:.0f}",
        "idle_in_transaction_session_timeout": "30000",
        "client_connection_check_interval": "2000",
        # What the statements are written for, whatever the database's own default is.
        "default_transaction_isolation": "read\\ committed",
    }
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return {
        **_KEEPALIVES,
        "connect_timeout": _connect_seconds(config),
        "application_name": f"forgeflow:{role}"[:63],
        "options": options,
        "autocommit": True,
    }


def _connect_seconds(config: Config) -> int:
    """How long each host may take: those that the URL names share the time, or a dead first one would use it up."""
    facts = conninfo_to_dict(required_url(config))
    hosts = max(len(str(facts.get(name) or "").split(",")) for name in ("host", "hostaddr"))
    return max(1, round(config.database.connect_timeout / hosts))


def _first_line(error: Exception) -> str:
    """psycopg's reason in one line."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def connect(config: Config, role: str) -> Connection:
    """Open one connection for a process of a node, in autocommit, each wait limited to `worker.statement_deadline`.

    Blocks for at most `database.connect_timeout`, shared by the hosts of the URL, but 2 s for each address that a name
    has.  Raises StoreUnavailable, or ConfigError when
    there is no usable URL.
    """
    seconds = config.worker.statement_deadline
    try:
        connection = DeadlineConnection.connect(required_url(config), **_parameters(config, role, seconds))
    except psycopg.Error as error:
        raise StoreUnavailable(f"cannot connect to the database: {_first_line(error)}") from error
    connection.deadline_seconds = seconds
    return connection


def open_pool(config: Config, role: str, *, max_size: int) -> Pool:
    """A pool for the threads of one process; open it after the fork.  Waits for no connection."""
    kwargs = _parameters(config, role, config.database.statement_timeout)

    def configure(connection: Connection) -> None:
        assert isinstance(connection, DeadlineConnection)
        connection.deadline_seconds = config.database.statement_timeout + 1.0

    return ConnectionPool(
        required_url(config),
        connection_class=DeadlineConnection,
        kwargs=kwargs,
        configure=configure,
        check=_check,
        min_size=1,
        max_size=max_size,
        timeout=config.database.connect_timeout,
        # The pool doubles its pause between attempts until this has passed, and then begins anew: without it, it came
        # back 44 s after an outage of 70 s.
        reconnect_timeout=5.0,
        open=True,
    )


def open_users_pool(config: Config) -> ConnectionPool[psycopg.Connection[tuple[Any, ...]]]:
    """A pool for the functions of one worker, on their own tables: search_path and limits are the server's.

    Open it after the fork. Waits for no connection; has two at most, and none before one is asked for.
    """
    return ConnectionPool(
        required_url(config),
        kwargs={"application_name": "forgeflow:function"},
        check=ConnectionPool.check_connection,
        min_size=0,
        max_size=2,
        timeout=config.database.connect_timeout,
        open=True,
    )


def _check(connection: Connection) -> None:
    """The pool's own check, but soon: a server that hangs must not cost a request the deadline of a statement."""
    whole, connection.deadline_seconds = connection.deadline_seconds, _CHECK_SECONDS
    try:
        ConnectionPool.check_connection(connection)
    finally:
        connection.deadline_seconds = whole


@contextmanager
def pooled(pool: Pool, *, within_seconds: float | None = None) -> Iterator[Connection]:
    """One connection of the pool.

    Raises StoreUnavailable when none is to be had in time, `database.connect_timeout` unless given.
    """
    try:
        with pool.connection(within_seconds) as connection:
            yield connection
    except PoolTimeout as error:
        raise StoreUnavailable("no connection to the database was to be had in time") from error


def required_url(config: Config) -> str:
    """`database.url`.  Raises ConfigError, which says what to do, when it is not set or not a libpq URL."""
    if not config.database.url:
        raise ConfigError(
            "no database is configured: set FORGEFLOW_DATABASE_URL or [database] url, or use `forgeflow up`, "
            "which brings its own (its URL is in postgres/url of its state folder, for FORGEFLOW_DATABASE_URL_FILE)"
        )
    try:
        conninfo_to_dict(config.database.url)
    except psycopg.ProgrammingError:
        # Not libpq's own words: they may quote the password.
        raise ConfigError(
            "database.url is not a libpq URL: one of its options is not known, or it is not well formed"
        ) from None
    return config.database.url


# What may be shown of a URL: a list of what is harmless, for libpq gets new kinds of secrets with its versions.
_SHOWN = ("host", "hostaddr", "port", "user", "dbname", "service", "sslmode", "target_session_attrs")


def shown_url(url: str) -> str:
    """Where a libpq URL leads, in libpq's words; `password=***` for a password, and nothing that is not harmless."""
    try:
        facts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return "***"
    shown = make_conninfo("", **{name: facts[name] for name in _SHOWN if facts.get(name)})
    return f"{shown} password=***".strip() if facts.get("password") else shown


@contextmanager
def translated() -> Iterator[None]:
    """Turn psycopg's errors into ours."""
    try:
        yield
    except (pg.DeadlockDetected, pg.SerializationFailure, pg.LockNotAvailable) as error:
        raise StoreBusy(f"the database undid a statement in favour of another: {_first_line(error)}") from error
    except pg.ReadOnlySqlTransaction as error:
        raise StoreUnavailable(f"the server takes no writes at the moment: {_first_line(error)}") from error
    except (pg.UndefinedTable, pg.UndefinedColumn, pg.UndefinedFunction) as error:
        raise SchemaMismatch(
            f"the database is not migrated to this version ({_first_line(error)}); run `forgeflow migrate`"
        ) from error
    except psycopg.Error as error:
        # Refused, lost and exhausted connections carry no sqlstate, or one of these classes.
        state = error.sqlstate or ""
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
            not state or state[:2] in ("08", "53", "55", "57", "58")
        ):
            raise StoreUnavailable(f"the database did not answer: {_first_line(error)}") from error
        raise StoreError(f"the database refused a statement: {_first_line(error)}") from error


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """One transaction; a commit whose answer was lost raises StoreUnavailable and may have happened."""
    with translated(), connection.transaction():
        yield


_P = ParamSpec("_P")
_TRIES = 5


def repeated(act: Callable[Concatenate[Connection, _P], T]) -> Callable[Concatenate[Connection, _P], T]:
    """Do it again, up to five times in all, when the database undid it for a deadlock.

    For acts of one transaction that lock a job before its runs: workers, now and then, hold a run while they wait for
    a job. Inside of a transaction of the caller's it is the caller's to repeat.
    """

    @functools.wraps(act)
    def repeat(connection: Connection, /, *args: _P.args, **kwargs: _P.kwargs) -> T:
        for _ in range(_TRIES - 1):
            try:
                return act(connection, *args, **kwargs)
            except StoreBusy as error:
                is_ours = connection.info.transaction_status == pq.TransactionStatus.IDLE
                if not is_ours or isinstance(error.__cause__, pg.LockNotAvailable):
                    raise
        return act(connection, *args, **kwargs)

    return repeat
