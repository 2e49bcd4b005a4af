"""Statements from `sql/`, each read once and run by name."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, LiteralString, TypeVar

from psycopg import Cursor
from psycopg.rows import class_row

from forgeflow.store.connection import Connection, translated

T = TypeVar("T")


@cache
def statement(name: str) -> LiteralString:
    """The text of `sql/<name>.sql` without its comments, which need not travel with every call."""
    text = (files("forgeflow") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip()


def send(
    connection: Connection,
    name: str,
    row: type[T],
    parameters: Mapping[str, Any] | None = None,
    *,
    prepare: bool | None = None,
) -> Cursor[T]:
    """Run a statement; inside a pipeline the rows come when they are asked for."""
    cursor = connection.cursor(row_factory=class_row(row))
    with translated():
        return cursor.execute(statement(name), parameters or {}, prepare=prepare)


def fetch_all(
    connection: Connection,
    name: str,
    row: type[T],
    parameters: Mapping[str, Any] | None = None,
    *,
    prepare: bool | None = None,
) -> list[T]:
    with translated():
        return send(connection, name, row, parameters, prepare=prepare).fetchall()


def fetch_one(connection: Connection, name: str, row: type[T], parameters: Mapping[str, Any] | None = None) -> T | None:
    """The first row, or None."""
    with translated():
        return send(connection, name, row, parameters).fetchone()


def execute(connection: Connection, name: str, parameters: Mapping[str, Any] | None = None) -> None:
    with translated():
        connection.execute(statement(name), parameters or {})
