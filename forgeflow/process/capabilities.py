"""What a process may do without being root: to become another user, and to end that user's processes.

A unit grants it by AmbientCapabilities, which everything that is started inherits. Jobs must not: so a worker keeps
what it was granted to itself, and lends it to the one program that switches users, while it starts it.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7
_SWITCHING = (1 << _CAP_SETGID) | (1 << _CAP_SETUID)
_VERSION_3 = 0x20080522
_PR_CAP_AMBIENT = 47
_RAISE, _CLEAR_ALL = 2, 4

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _read() -> tuple[int, int, int]:
    """Effective, permitted, inheritable, of the calling thread; the first 32, of which these are."""
    header, words = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    _check(_libc.capget(header, words))
    return words[0], words[1], words[2]


def _set_inheritable(inheritable: int) -> None:
    header, words = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    _check(_libc.capget(header, words))
    words[2], words[5] = inheritable, 0
    _check(_libc.capset(header, words))


def may_switch_user() -> bool:
    """Whether this process can start programs as other users."""
    return _read()[0] & _SWITCHING == _SWITCHING


def keep_to_ourselves() -> None:
    """What is started from now on inherits no capability of ours; a root's program has all of them anyway."""
    _check(_libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0))
    _set_inheritable(0)


@contextmanager
def lent() -> Iterator[None]:
    """What is started meanwhile by this thread may switch users.  Raises OSError when we may not ourselves."""
    if os.geteuid() == 0:
        yield
        return
    _set_inheritable(_SWITCHING)
    try:
        for number in (_CAP_SETGID, _CAP_SETUID):
            _check(_libc.prctl(_PR_CAP_AMBIENT, _RAISE, number, 0, 0))
        yield
    finally:
        keep_to_ourselves()
