"""A real PostgreSQL for tests: in a fresh folder, gone at the end. Blocking; a start takes a second or two."""

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from forgeflow.embedded import EmbeddedServer, start_server, stop_server

# Nothing of a test must outlive a power cut.
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

# A database of a test's own is 300 files: on a disk making them is most of what such a test takes.
_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 4 * 1024**3


@contextlib.contextmanager
def temporary_server(*, binaries: Path | None = None, max_connections: int = 100) -> Iterator[EmbeddedServer]:
    """Its URL is that of its maintenance database, as a superuser; `binaries` and errors as of `start_server`."""
    # Not below pytest's own folder: that is 0700, and the server runs under another account when we are root.
    state = Path(tempfile.mkdtemp(prefix="forgeflow-test-", dir=_fast_folder()))
    state.chmod(0o755)
    try:
        server = start_server(state, binaries=binaries, max_connections=max_connections, settings=FAST)
        try:
            yield server
        finally:
            stop_server(server)
    finally:
        shutil.rmtree(state, ignore_errors=True)


def make_database(server_url: str, *, template: str | None = None) -> str:
    """Create a database with a name of its own; returns its URL."""
    name = f"ff_{uuid.uuid4().hex[:20]}"
    statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    if template:
        statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(statement)
    return make_conninfo(server_url, dbname=name)


def drop_database(server_url: str, url: str) -> None:
    """Whoever is still connected to it is thrown out."""
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(str(name))))


def _fast_folder() -> str | None:
    """A file system in memory with room for several servers; None where there is none."""
    try:
        facts = os.statvfs(_MEMORY)
    except OSError:
        return None
    has_room = facts.f_bavail * facts.f_frsize >= _ROOM_BYTES and os.access(_MEMORY, os.W_OK | os.X_OK)
    return str(_MEMORY) if has_room else None
