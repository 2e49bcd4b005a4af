"""A real PostgreSQL for the tests, and an empty, migrated database for each of them.

A server is started in a fresh folder and stopped at the end: the embedded one, or that of the folder with initdb and
postgres that FORGEFLOW_TEST_BINARIES names.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg

from forgeflow.config import Config, load_config
from forgeflow.embedded import EmbeddedServer, start_server, stop_server
from forgeflow.store.connection import connect
from forgeflow.store.schema import migrate
from forgeflow.testing.server import FAST, drop_database, make_database, temporary_server

__all__ = [
    "FAST",
    "INTERVALS",
    "config_for",
    "drop_database",
    "make_database",
    "make_template",
    "standby_server",
    "test_server",
]

# Short enough for tests, in the proportions of the defaults; and no wait between tries unless a test is about it.
INTERVALS = {
    "worker.lease_duration": "2s",
    "worker.heartbeat_interval": "600ms",
    "worker.statement_deadline": "500ms",
    "worker.recovery_interval": "500ms",
    "worker.kill_grace": "500ms",
    "worker.fence_margin": "600ms",
    "worker.fence_grace": "200ms",
    "worker.drain_timeout": "20s",
    "scheduler.campaign_interval": "500ms",
    "scheduler.tick": "200ms",
    "retry.base": "1ms",
    "retry.cap": "1ms",
}


@contextlib.contextmanager
def test_server() -> Iterator[EmbeddedServer]:
    given = os.environ.get("FORGEFLOW_TEST_BINARIES")
    with temporary_server(binaries=Path(given) if given else None, max_connections=200) as server:
        yield server


@contextlib.contextmanager
def standby_server() -> Iterator[EmbeddedServer]:
    """A migrated server that was put into standby afterwards; nobody streams to it."""
    state = Path(tempfile.mkdtemp(prefix="forgeflow-standby-"))
    state.chmod(0o755)
    try:
        server = start_server(state, settings=FAST)
        config = config_for(server.url)
        with connect(config, "test") as connection:
            migrate(connection, config)
        stop_server(server)
        signal_file = server.data_dir / "standby.signal"
        signal_file.touch()
        if os.geteuid() == 0:
            owner = server.data_dir.stat()
            os.chown(signal_file, owner.st_uid, owner.st_gid)
        server = start_server(state, settings=FAST)
        try:
            yield server
        finally:
            stop_server(server)
    finally:
        shutil.rmtree(state, ignore_errors=True)


def config_for(url: str, **settings: str) -> Config:
    """The tests' intervals over the defaults; keywords are `section__key`."""
    overrides = {name.replace("__", "."): value for name, value in settings.items()}
    return load_config(environ={}, overrides={**INTERVALS, "database.url": url, **overrides})


def make_template(server_url: str) -> str:
    """A migrated database to copy; returns its name."""
    url = make_database(server_url)
    config = config_for(url, worker__statement_deadline="590ms")
    connection = connect(config, "test")
    try:
        migrate(connection, config)
    finally:
        connection.close()
    return str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])
