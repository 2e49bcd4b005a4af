"""The schema: forward-only files with checksums, applied once, by one process at a time."""

import hashlib
import re
import time
from dataclasses import dataclass
from importlib.resources import files

import structlog
from psycopg import errors as pg
from psycopg import sql

from forgeflow.config import Config
from forgeflow.errors import SchemaMismatch, StoreUnavailable
from forgeflow.store.connection import Connection, transaction, translated
from forgeflow.store.statements import execute, fetch_all, fetch_one

log = structlog.get_logger()

_LOCK_WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Migration:
    """One released schema file; its text never changes."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class AppliedMigration:
    version: int
    checksum: str


@dataclass(frozen=True, slots=True)
class _Lock:
    won: bool


def migrations() -> list[Migration]:
    """Every schema file of this version of ForgeFlow, oldest first; their numbers have no gap."""
    found = []
    for entry in (files("forgeflow") / "sql" / "schema").iterdir():
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", entry.name)
        if match:
            found.append(Migration(int(match[1]), match[2], entry.read_text(encoding="utf-8")))
    found.sort(key=lambda migration: migration.version)
    assert [migration.version for migration in found] == list(range(1, len(found) + 1))
    return found


def applied_migrations(connection: Connection) -> list[AppliedMigration]:
    """What the database has; [] when it was never migrated."""
    try:
        return fetch_all(connection, "schema/applied_migrations", AppliedMigration)
    except SchemaMismatch as error:
        if isinstance(error.__cause__, pg.UndefinedTable):
            return []
        raise


def create_ledger(connection: Connection) -> None:
    execute(connection, "schema/create_ledger")


def record_migration(connection: Connection, *, version: int, name: str, checksum: str) -> None:
    execute(connection, "schema/record_migration", {"version": version, "name": name, "checksum": checksum})


def try_migration_lock(connection: Connection, *, schema: str) -> bool:
    row = fetch_one(connection, "schema/try_migration_lock", _Lock, {"schema": schema})
    return row is not None and row.won


def release_migration_lock(connection: Connection, *, schema: str) -> None:
    fetch_one(connection, "schema/release_migration_lock", _Lock, {"schema": schema})


def _missing(connection: Connection) -> list[Migration]:
    """What is still to be applied.  Raises SchemaMismatch for a schema that is newer or was made otherwise."""
    applied = {migration.version: migration.checksum for migration in applied_migrations(connection)}
    known = migrations()
    if applied and max(applied) > known[-1].version:
        raise SchemaMismatch(
            f"the database has schema version {max(applied)}, this ForgeFlow knows {known[-1].version}: "
            "update ForgeFlow on this machine; an older one never writes to a newer schema"
        )
    for migration in known:
        if applied.get(migration.version, migration.checksum) != migration.checksum:
            raise SchemaMismatch(
                f"schema version {migration.version} in the database was made by another text of "
                f"{migration.version:04}_{migration.name}.sql: restore the released file; released files never change"
            )
    return [migration for migration in known if migration.version not in applied]


def require_current(connection: Connection) -> None:
    """Raises SchemaMismatch, which says what to do, unless the schema is exactly this version's."""
    missing = _missing(connection)
    if missing:
        raise SchemaMismatch(f"the database lacks schema version {missing[0].version}; run `forgeflow migrate`")


def _take_lock(connection: Connection, schema: str) -> None:
    deadline = time.monotonic() + _LOCK_WAIT_SECONDS
    while not try_migration_lock(connection, schema=schema):
        if time.monotonic() > deadline:
            raise StoreUnavailable("another process has been migrating the database for a minute; try again later")
        time.sleep(0.05)


def _apply(connection: Connection, migration: Migration) -> None:
    with transaction(connection):
        connection.execute(migration.text)
        record_migration(connection, version=migration.version, name=migration.name, checksum=migration.checksum)
    log.info("schema migrated", version=migration.version, name=migration.name)


def migrate(connection: Connection, config: Config) -> list[Migration]:
    """Apply what is missing, each file in a transaction of its own.  Returns what was applied.

    Waits up to a minute for another process that is migrating, and 3 s for each lock on a table. The lock is given
    back.  Raises SchemaMismatch, StoreUnavailable, StoreError.
    """
    schema = config.database.schema_name
    if not _missing(connection):  # and refuse before anything is written
        return []
    _take_lock(connection, schema)
    try:
        with translated():
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        create_ledger(connection)
        missing = _missing(connection)
        for migration in missing:
            _apply(connection, migration)
        return missing
    finally:
        if not connection.closed:
            release_migration_lock(connection, schema=schema)
