"""The place where everything is measured: one durable server, a fresh database for each measurement.

The server is the embedded one as users have it (fsync, synchronous_commit, full_page_writes, autovacuum on), reached
over its Unix socket by everybody, with pg_stat_statements loaded.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from forgeflow.config import Config, load_config
from forgeflow.embedded import start_server, stop_server
from forgeflow.store.connection import Connection, connect
from forgeflow.store.schema import migrate
from tests.support.databases import drop_database, make_database


@dataclass(frozen=True, slots=True)
class Database:
    """A migrated database and the bench's own session in it."""

    url: str
    config: Config
    connection: Connection
    server_pid: int
    server_log: Path

    @property
    def own_backend(self) -> int:
        return self.connection.info.backend_pid


@dataclass(slots=True)
class Lab:
    """`url` is that of the server's maintenance database, `folder` is for what is made meanwhile.

    `template` names a migrated database to copy; it is made when it is needed and there is none.
    """

    url: str
    server_pid: int
    server_log: Path
    folder: Path
    template: str = ""
    _kept: dict[str, Database] = field(default_factory=dict)

    @contextmanager
    def fresh_database(self) -> Iterator[Database]:
        """A migrated, empty database, dropped in the end."""
        url = make_database(self.url, template=self._made_template())
        database = self._opened(url)
        try:
            yield database
        finally:
            database.connection.close()
            drop_database(self.url, url)

    def kept_database(self, name: str) -> tuple[Database, bool]:
        """The database of that name and whether it is new; it stays until the server ends."""
        is_new = name not in self._kept
        if is_new:
            self._kept[name] = self._opened(make_database(self.url, template=self._made_template()))
        return self._kept[name], is_new

    @contextmanager
    def bare_database(self) -> Iterator[str]:
        """The URL of a database without our schema, dropped in the end."""
        url = make_database(self.url)
        try:
            yield url
        finally:
            drop_database(self.url, url)

    def describe(self) -> str:
        with psycopg.connect(self.url) as connection:
            version = connection.execute("SHOW server_version").fetchone()
            assert version
            return f"PostgreSQL {version[0]}, durable, over its Unix socket"

    def close(self) -> None:
        for database in self._kept.values():
            database.connection.close()

    def _made_template(self) -> str:
        if not self.template:
            url = make_database(self.url)
            config = config_for(url)
            with connect(config, "bench") as connection:
                migrate(connection, config)
                connection.execute("CREATE EXTENSION pg_stat_statements")
            self.template = str(conninfo_to_dict(url)["dbname"])
        return self.template

    def _opened(self, url: str) -> Database:
        config = config_for(url)
        return Database(url, config, connect(config, "bench"), self.server_pid, self.server_log)


def config_for(url: str) -> Config:
    """The defaults, but for the bench's own statements, which may take long: a load of a million rows."""
    patience = {"worker.lease_duration": "1h", "worker.heartbeat_interval": "15m", "worker.statement_deadline": "10m"}
    return load_config(environ={}, overrides={"database.url": url, **patience})


@contextmanager
def open_lab() -> Iterator[Lab]:
    folder = Path(tempfile.mkdtemp(prefix="forgeflow-bench-"))
    folder.chmod(0o755)
    try:
        server = start_server(
            folder,
            max_connections=200,
            settings={"shared_preload_libraries": "pg_stat_statements"},
        )
        lab = Lab(server.url, server.pid, server.data_dir.parent / "server.log", folder)
        try:
            yield lab
        finally:
            lab.close()
            stop_server(server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def vacuum(connection: Connection, *tables: str) -> None:
    """What autovacuum does within a minute after a load."""
    for table in tables:
        connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(table)))
