"""The connections of this web process; the pool is opened after the fork."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from flask import current_app

from forgeflow.store.connection import Connection, Pool, pooled
from forgeflow.store.schema import require_current

POOL = "forgeflow.pool"
STOPPING = "forgeflow.stopping"  # says whether this process has been told to stop

_SCHEMA_SECONDS = 60.0

# Whoever asks for /readyz and /metrics gives up after a few seconds, and must hear before that what is wrong.
PROBE_SECONDS = 2.0


@contextmanager
def connection(*, within_seconds: float | None = None) -> Iterator[Connection]:
    """One connection for this request.

    Its schema is looked at once a minute: an older ForgeFlow must not go on writing to a newer one.  Raises
    StoreUnavailable when none is to be had in time, `database.connect_timeout` unless given, and SchemaMismatch.
    """
    pool: Pool = current_app.extensions[POOL]
    with pooled(pool, within_seconds=within_seconds) as opened:
        if time.monotonic() - opened.schema_seen_at > _SCHEMA_SECONDS:
            require_current(opened)
            opened.schema_seen_at = time.monotonic()
        yield opened
