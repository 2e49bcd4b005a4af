"""The delay that spreads runs which are due at the same time."""

import hashlib
from datetime import datetime, timedelta
from uuid import UUID


def jitter_delay(job_id: UUID, tick_at: datetime, jitter_seconds: float) -> timedelta:
    """Between 0 and `jitter_seconds`, in whole microseconds: the same for the same tick on every node, and each time.

    A hash, not a draw: a tick that a leader's death undoes gets the same delay again.  Source: README "Jobs".
    """
    seed = job_id.bytes + int(tick_at.timestamp() * 1_000_000).to_bytes(9, "big", signed=True)
    share = int.from_bytes(hashlib.sha256(seed).digest()[:6], "big") / (1 << 48)
    return timedelta(microseconds=int(share * jitter_seconds * 1_000_000))
