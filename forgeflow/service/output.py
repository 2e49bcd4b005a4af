"""What a run prints: while it goes on, and when it has ended."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from forgeflow.errors import NotFound
from forgeflow.store.connection import Connection
from forgeflow.store.output import OutputRow, PieceRow, find_output, read_pieces

# Of one answer; a piece has about 64 Ki characters at most.
_MAX_PIECES = 16


@dataclass(frozen=True, slots=True)
class OutputPart:
    """What one attempt printed from a place on.

    The next part is that of the same attempt from `next_offset`. `skipped`: what lies between the asked place and
    `data` is not to be had any more. `is_finished`: the run has ended, and this is the last part.
    """

    attempt: int
    data: str
    next_offset: int
    skipped: int
    is_finished: bool


def read_output(connection: Connection, run_id: UUID, *, attempt: int | None = None, offset: int = 0) -> OutputPart:
    """What is there now, from a place of an attempt on; without an attempt, of the latest.

    When that attempt is over and has no more, the next one is read from its beginning.  Raises NotFound.
    """
    while True:
        row = find_output(connection, run_id=run_id, attempt=attempt)
        if row is None:
            raise NotFound(f"there is no run {run_id}")
        part = _part(connection, run_id, row, offset)
        if part.data or not row.is_over or row.next_attempt is None:
            return part
        attempt, offset = row.next_attempt, 0


def _part(connection: Connection, run_id: UUID, row: OutputRow, offset: int) -> OutputPart:
    is_finished = row.is_finished and row.next_attempt is None
    # What is stored has both ends; of the pieces the older ones may be gone.
    if row.is_over and row.total_bytes and not offset:
        text = stored_text(row.head, row.tail, row.total_bytes)
        return OutputPart(row.attempt, text, len(text), 0, is_finished)
    pieces = read_pieces(connection, run_id=run_id, attempt=row.attempt, place=offset, max_rows=_MAX_PIECES)
    if not pieces:
        text = stored_text(row.head, row.tail, row.total_bytes)[offset:]
        return OutputPart(row.attempt, text, offset + len(text), 0, is_finished)
    begin, text, is_all = _joined(pieces, offset)
    is_last = is_finished and is_all and len(pieces) < _MAX_PIECES
    return OutputPart(row.attempt, text, begin + len(text), begin - offset, is_last)


def _joined(pieces: Sequence[PieceRow], offset: int) -> tuple[int, str, bool]:
    """Where the text begins that the pieces have from a place on, the text as far as it has no gap, and is it all."""
    begin = at = max(offset, pieces[0].first)
    texts: list[str] = []
    for piece in pieces:
        text = piece.text[max(0, at - piece.first) :]
        if not text:
            continue
        if piece.first > at:
            if texts:
                return begin, "".join(texts), False
            begin = at = piece.first
        texts.append(text)
        at += len(text)
    return begin, "".join(texts), True


def whole_output(connection: Connection, run_id: UUID) -> Iterator[str]:
    """All that is kept of the run's latest attempt, with a line where something is left out.  Raises NotFound."""
    attempt, offset = None, 0
    while True:
        part = read_output(connection, run_id, attempt=attempt, offset=offset)
        if not part.data or part.attempt != (attempt or part.attempt):
            return
        yield (gap_line(part.skipped) if part.skipped else "") + part.data
        if part.is_finished:
            return
        attempt, offset = part.attempt, part.next_offset


def gap_line(skipped: int) -> str:
    """Stands where so much is left out of what a run printed."""
    return f"\n[… {skipped} bytes not kept …]\n" if skipped > 0 else "\n[… not all was kept …]\n"


def stored_text(head: str, tail: str, total_bytes: int) -> str:
    """The kept output as one text; a line in its middle says how much is missing."""
    if not tail:
        return head
    # What is no text takes more room as text, so that the number of the missing bytes is not always known.
    return f"{head}{gap_line(total_bytes - len(head.encode()) - len(tail.encode()))}{tail}"
