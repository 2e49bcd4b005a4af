"""The connections of this web process; the pool is opened after the fork."""

from collections.abc import Iterator
from contextlib import contextmanager

from flask import current_app

from forgeflow.store.connection import Connection, Pool, pooled

POOL = "forgeflow.pool"

# Whoever asks for /readyz and /metrics gives up after a few seconds, and must hear before that what is wrong.
PROBE_SECONDS = 2.0


@contextmanager
def connection(*, within_seconds: float | None = None) -> Iterator[Connection]:
    """One connection for this request.

    Raises StoreUnavailable when none is to be had in time, `database.connect_timeout` unless given.
    """
    pool: Pool = current_app.extensions[POOL]
    with pooled(pool, within_seconds=within_seconds) as opened:
        yield opened
