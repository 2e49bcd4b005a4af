"""Who may look into our process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from forgeflow.process.tree import prctl

_PR_GET_DUMPABLE = 3
_PR_SET_DUMPABLE = 4


def become_private() -> None:
    """Nobody but root may trace us, or read our memory and what our environment was at the start, from now on.

    A job that runs as our user could else take the database's password from there. Inherited over fork, lost by an
    exec, so jobs can be traced by their user. Our files in /proc are root's then.
    """
    prctl(_PR_SET_DUMPABLE, 0)


@contextmanager
def _seen() -> Iterator[None]:
    """As before `become_private`, for a moment."""
    before = prctl(_PR_GET_DUMPABLE, 0)
    prctl(_PR_SET_DUMPABLE, 1)
    try:
        yield
    finally:
        prctl(_PR_SET_DUMPABLE, before)


def open_own(path: str) -> int:
    """A file of our own process in /proc, for reading and writing.  Raises OSError.

    Unless we are root, it is ours only while we can be looked into: for the microseconds that opening takes.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except PermissionError:
        with _seen():
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
