"""Connections: a deadline on every wait, and errors in our own words."""

import os
import signal
import threading
from uuid import uuid4

import pytest

from forgeflow.config import Config
from forgeflow.errors import ConfigError, SchemaMismatch, StoreBusy, StoreError, StoreUnavailable
from forgeflow.store import jobs, runs
from forgeflow.store.connection import Connection, connect, open_pool, pooled, transaction, translated
from forgeflow.store.listener import listen, prove_listening, take_notifications
from tests.support.databases import config_for
from tests.support.waiting import wait_for


def test_statement_without_answer_ends_at_the_deadline(config: Config, connection: Connection) -> None:
    """A stopped server process is what no setting of server or socket helps against."""
    frozen = connect(config, "frozen")
    pid = frozen.info.backend_pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable, match=r"no answer from the database within 0\.5 s"):
            jobs.server_now(frozen)
        assert frozen.closed
    finally:
        os.kill(pid, signal.SIGCONT)
    assert jobs.server_now(connection)


def test_deadline_also_bounds_a_commit(config: Config) -> None:
    frozen = connect(config, "frozen")
    pid = frozen.info.backend_pid
    try:
        with pytest.raises(StoreUnavailable), transaction(frozen):
            os.kill(pid, signal.SIGSTOP)
        assert frozen.closed
    finally:
        os.kill(pid, signal.SIGCONT)


def test_ended_session_is_unavailable(config: Config, connection: Connection) -> None:
    other = connect(config, "other")
    connection.execute("SELECT pg_terminate_backend(%s)", [other.info.backend_pid])
    with pytest.raises(StoreUnavailable):
        jobs.server_now(other)


def test_long_statement_is_ended_by_the_server_too(connection: Connection) -> None:
    with pytest.raises(StoreUnavailable), translated():
        connection.execute("SELECT pg_sleep(20)")


def test_unreachable_server_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match="cannot connect to the database"):
        connect(config_for("postgresql://nobody@127.0.0.1:1/none"), "test")


def test_missing_url_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="no database is configured"):
        connect(config_for(""), "test")


def test_url_with_an_unknown_option_is_a_config_error(database_url: str) -> None:
    with pytest.raises(ConfigError, match="is not a libpq URL"):
        connect(config_for(f"{database_url} no_such_option=1"), "test")


def test_missing_table_says_migrate(connection: Connection) -> None:
    with pytest.raises(SchemaMismatch, match="forgeflow migrate"), translated():
        connection.execute("SELECT * FROM of_a_later_version")


def test_refused_statement_is_a_store_error(connection: Connection) -> None:
    with pytest.raises(StoreError, match="refused a statement"), translated():
        connection.execute("SELECT 1/0")


def test_deadlock_is_told_apart_from_an_outage(config: Config, connection: Connection) -> None:
    """The connection lives, and the same may be tried again over it."""
    connection.execute("CREATE TABLE pair AS SELECT generate_series(1, 2) AS id")
    other = connect(config, "other")
    results: list[Exception] = []

    def lock(own: Connection, first: int, second: int, meet: threading.Barrier) -> None:
        try:
            with transaction(own):
                own.execute("UPDATE pair SET id = id WHERE id = %s", [first])
                meet.wait()
                own.execute("UPDATE pair SET id = id WHERE id = %s", [second])
        except StoreBusy as error:
            results.append(error)

    for session in (connection, other):
        session.execute("SET deadlock_timeout = '50ms'")
    meet = threading.Barrier(2)
    threads = [
        threading.Thread(target=lock, args=(connection, 1, 2, meet)),
        threading.Thread(target=lock, args=(other, 2, 1, meet)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 1
    assert jobs.server_now(connection)
    assert jobs.server_now(other)
    other.close()


def test_session_speaks_utc_and_sees_our_schema_first(connection: Connection) -> None:
    assert connection.execute("SHOW timezone").fetchone() == ("UTC",)
    assert connection.execute("SELECT current_schemas(true)").fetchone() == (["forgeflow", "pg_catalog"],)
    row = connection.execute("SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()").fetchone()
    assert row == ("forgeflow:test",)


def test_pool_gives_connections_with_a_deadline_and_says_when_there_is_none(config: Config) -> None:
    with open_pool(config, "web", max_size=1) as pool, pooled(pool) as opened:
        assert jobs.server_now(opened)
    broken = config_for("postgresql://nobody@127.0.0.1:1/none", database__connect_timeout="300ms")
    with (
        open_pool(broken, "web", max_size=1) as pool,
        pytest.raises(StoreUnavailable, match="no connection"),
        pooled(pool),
    ):
        pass


def test_listener_hears_itself_and_others_and_joins_equal_words(config: Config, connection: Connection) -> None:
    listen(connection, "forgeflow_due")
    assert take_notifications(connection) == []
    word = str(uuid4())
    prove_listening(connection, "forgeflow_due", word)
    with connect(config, "other") as other:
        for _ in range(5):
            runs.announce_due(other)
        runs.announce_cancel(other)
    heard: list[str] = []

    def has_heard_all() -> bool:
        heard.extend(note.payload for note in take_notifications(connection))
        return set(heard) == {word, "", "cancel"}

    wait_for(has_heard_all, why="all three words")
