"""Many rows at once, by COPY; the caller's transaction makes them all or none."""

import secrets
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from forgeflow.store.connection import Connection, translated
from forgeflow.store.jobs import DEFINITION, JobDefinition
from forgeflow.store.statements import statement

_ROWS_A_WRITE = 500


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job with an id of `new_ids`."""

    id: UUID
    definition: JobDefinition
    status: str
    next_run_at: datetime | None
    source: str


def new_ids(now: datetime, count: int) -> range:
    """That many ids as uuid_v7() would make them at that instant, as integers, but each greater than the one before.

    What is due at the same instant is claimed in the order of ids, so runs go in the order of these.
    """
    milliseconds = (now - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
    # 62 random bits end the layout; the highest is left 0, so that counting up from them stays inside.
    first = milliseconds << 80 | 0x7 << 76 | secrets.randbits(12) << 64 | 0b10 << 62 | secrets.randbits(61)
    return range(first, first + count)


# COPY's binary format: a signature, flags and the length of an extension; for each row the number of its columns, for
# each column its length, or -1 for NULL, and its bytes; -1 for the number of columns at the end.
_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = struct.pack("!h", -1)
_NULL = struct.pack("!i", -1)
_JSONB_VERSION = b"\x01"


def _column(data: bytes) -> bytes:
    return struct.pack("!i", len(data)) + data


def _jsonb(text: bytes | None) -> bytes:
    return _NULL if text is None else _column(_JSONB_VERSION + text)


def _text(text: str | None) -> bytes:
    return _NULL if text is None else _column(text.encode())


class OwnPayload(NamedTuple):
    """A payload of a run's own, as JSON, and the function that it calls, if that is what it is for."""

    json: bytes | None
    function: str | None


def run_rows(
    ids: Iterable[int],
    payloads: Iterable[OwnPayload | None],
    *,
    job_id: UUID,
    job_version: int,
    priority: int,
    due_at: datetime,
    trigger: str,
    max_attempts: int,
    function: str | None,
) -> Iterator[bytes]:
    """Runs of one job, due at `due_at`, for copy_runs; of a payload None is the job's, and so is then its function."""
    begin = struct.pack("!hi", 10, 16)
    microseconds = (due_at - datetime(2000, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    same = b"".join(
        map(
            _column,
            (
                job_id.bytes,
                struct.pack("!i", job_version),
                struct.pack("!h", priority),
                struct.pack("!q", microseconds),
                struct.pack("!q", microseconds),
                trigger.encode(),
                struct.pack("!i", max_attempts),
            ),
        )
    )
    own = OwnPayload(None, function)
    for run_id, payload in zip(ids, payloads, strict=True):
        said = payload or own
        yield begin + run_id.to_bytes(16) + same + _jsonb(said.json) + _text(said.function)


def copy_runs(connection: Connection, *, rows: Iterable[bytes]) -> None:
    """Make the runs of `run_rows`.  Waits for the database while it takes them in; the rows are asked for meanwhile."""
    rest = iter(rows)
    with translated(), connection.cursor() as cursor, cursor.copy(statement("bulk/copy_runs")) as copy:
        copy.write(_HEADER)
        while some := b"".join(islice(rest, _ROWS_A_WRITE)):
            copy.write(some)
        copy.write(_TRAILER)


def copy_jobs(connection: Connection, *, rows: Iterable[NewJob]) -> None:
    with translated(), connection.cursor() as cursor, cursor.copy(statement("bulk/copy_jobs")) as copy:
        for job in rows:
            values = {name: getattr(job.definition, name) for name in DEFINITION}
            values |= {"tags": list(job.definition.tags), "payload": Jsonb(job.definition.payload)}
            copy.write_row((job.id, *values.values(), job.status, job.next_run_at, job.source))
