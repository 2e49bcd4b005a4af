"""Whom the kernel ends when memory runs out: a job, then a child of the master, the master last.

Scores are those of /proc/<pid>/oom_score_adj, -1000 to 1000, inherited by what we start. Raising one needs no
privilege, nor does lowering it again to what it was. Where the system refuses, everything stays as it was.
"""

import contextlib
import os

from forgeflow.process.privacy import open_own

CHILD_SCORE = 500
JOB_SCORE = 800

_OWN = "/proc/self/oom_score_adj"


def raise_oom_score(score: int) -> None:
    """Ours, and of what we start from now on; never lower than it is."""
    own = OwnScore()
    own.raise_to(score)
    own.close()


class OwnScore:
    """Our own score, by a descriptor that is kept: opening the file is most of what setting it costs.

    Made after the fork, for it stands for the process that has made it.
    """

    def __init__(self) -> None:
        self._file = -1
        with contextlib.suppress(OSError):
            self._file = open_own(_OWN)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def raise_to(self, score: int) -> bytes:
        """Raise it, if it is lower, for what is started now; returns what `restore` wants."""
        try:
            before = os.pread(self._file, 16, 0)
            if int(before) < score:
                os.pwrite(self._file, b"%d" % score, 0)
                return before
        except OSError:
            pass
        return b""

    def restore(self, before: bytes) -> None:
        """Ours is `before` again; empty: it was not raised.  Never raises: what was started is running by now."""
        if before:
            with contextlib.suppress(OSError):
                os.pwrite(self._file, before, 0)
