"""Whom the kernel ends when memory runs out: a job, then a child of the master, the master last.

Scores are those of /proc/<pid>/oom_score_adj, -1000 to 1000, inherited by what we start. Raising one needs no
privilege, nor does lowering it again to what it was. Where the system refuses, everything stays as it was.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

CHILD_SCORE = 500
JOB_SCORE = 800

_OWN = Path("/proc/self/oom_score_adj")


def raise_oom_score(score: int) -> None:
    """Ours, and of what we start from now on; never lower than it is."""
    with contextlib.suppress(OSError):
        if int(_OWN.read_text()) < score:
            _OWN.write_text(str(score))


@contextlib.contextmanager
def raised_oom_score(score: int) -> Iterator[None]:
    """What the block starts has at least this score; ours is as before when it ends."""
    try:
        before = _OWN.read_text()
    except OSError:
        yield
        return
    raise_oom_score(score)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            _OWN.write_text(before)
