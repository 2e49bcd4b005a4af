"""The connections of this web process; the pool is opened after the fork."""

from collections.abc import Iterator
from contextlib import contextmanager

from flask import current_app
from psycopg_pool import ConnectionPool

from forgeflow.store.connection import Connection, pooled

POOL = "forgeflow.pool"


@contextmanager
def connection() -> Iterator[Connection]:
    """One connection for this request.  Raises StoreUnavailable when none is to be had in time."""
    pool: ConnectionPool[Connection] = current_app.extensions[POOL]
    with pooled(pool) as opened:
        yield opened
