"""Statements about what runs print while they go on."""

from dataclasses import dataclass
from uuid import UUID

from forgeflow.store.connection import Connection
from forgeflow.store.runs import RowId
from forgeflow.store.statements import fetch_all, fetch_one


@dataclass(frozen=True, slots=True)
class PieceRow:
    """`first`: its place in all that the attempt printed."""

    first: int
    text: str


@dataclass(frozen=True, slots=True)
class OutputRow:
    """Where one attempt stands; head, tail and total_bytes are what is stored of it, nothing while it goes on."""

    attempt: int
    is_over: bool
    is_finished: bool
    next_attempt: int | None
    head: str
    tail: str
    total_bytes: int


@dataclass(frozen=True, slots=True)
class DeletedRows:
    count: int


def append_piece(
    connection: Connection,
    *,
    run_id: UUID,
    attempt: int,
    boot_id: UUID,
    child: int,
    first: int,
    piece: str,
    has_progress: bool,
    progress: int | None,
    progress_note: str | None,
    limit: int,
) -> bool:
    """Show a piece of the output, and the progress, of a run that goes on; False when it is somebody else's.

    At most `limit` characters stay. Waits for nobody.
    """
    parameters = {
        "run_id": run_id,
        "attempt": attempt,
        "boot_id": boot_id,
        "child": child,
        "first": first,
        "piece": piece,
        "has_progress": has_progress,
        "progress": progress,
        "progress_note": progress_note,
        "limit": limit,
    }
    return fetch_one(connection, "output/append_piece", RowId, parameters) is not None


def find_output(connection: Connection, *, run_id: UUID, attempt: int | None) -> OutputRow | None:
    return fetch_one(connection, "output/find_output", OutputRow, {"run_id": run_id, "attempt": attempt})


def read_pieces(connection: Connection, *, run_id: UUID, attempt: int, place: int, max_rows: int) -> list[PieceRow]:
    """In their order, `max_rows` at most: a piece has 64 Ki characters at most, or 4 Ki and those."""
    parameters = {"run_id": run_id, "attempt": attempt, "place": place, "max_rows": max_rows}
    return fetch_all(connection, "output/read_pieces", PieceRow, parameters)


def delete_old_pieces(connection: Connection, *, max_rows: int) -> int:
    """How many: when it is `max_rows` there may be more."""
    row = fetch_one(connection, "output/delete_old_pieces", DeletedRows, {"max_rows": max_rows})
    return row.count if row else 0
