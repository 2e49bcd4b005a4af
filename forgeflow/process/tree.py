"""Process trees: who is whose child, and how to be sure that all of them are gone.

A sub-reaper inherits the orphans among its descendants, so nothing that a job starts, daemons included, can leave
the tree. Signals go only to our own unreaped children, whose ids cannot have been given to anybody else.
"""

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Collection
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def become_subreaper() -> None:
    """Orphans among our descendants become our children from now on.  Not inherited over fork."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Be killed when our parent's main thread ends; exits at once when `parent` is already gone."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def children() -> list[int]:
    """The ids of our children, zombies included.  The process must have one thread."""
    pid = os.getpid()
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_zombie(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] == "Z"


def signal_group(leader: int, number: int) -> None:
    """Signal the process group of one of our unreaped children, and wake it when it was stopped.

    Refuses ids that would reach ourselves or everybody.  A group that is gone is nothing.
    """
    if leader <= 1 or leader == os.getpgrp():
        raise ValueError(f"refusing to signal process group {leader}")
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
        os.killpg(leader, signal.SIGCONT)


def signal_child(pid: int, number: int) -> None:
    """Signal one of our unreaped children."""
    if pid <= 1:
        raise ValueError(f"refusing to signal process {pid}")
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_child(pid: int) -> None:
    """SIGKILL to one of our unreaped children and, when it leads one, to its process group."""
    if pid <= 1:
        raise ValueError(f"refusing to kill process {pid}")
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            signal_group(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)


def kill_strays(known: Collection[int] = ()) -> int:
    """One round: SIGKILL and reap all our children that are not `known`.  Returns how many were still alive.

    Their own children become ours then, so the tree is empty only after a round that found nobody; see
    `kill_strays_until_none`.
    """
    alive = 0
    for pid in children():
        if pid in known:
            continue
        if not is_zombie(pid):
            alive += 1
        kill_child(pid)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return alive


def kill_strays_until_none(known: Collection[int] = (), *, pause: Callable[[], None]) -> int:
    """Rounds of `kill_strays` until no child but the `known` is left; returns how many were killed in all.

    Calls `pause` between rounds. Ends, for SIGKILL cannot be ignored and every round reaches one level deeper; only
    a process in uninterruptible sleep makes it wait.
    """
    killed = 0
    while set(children()) - set(known):
        killed += kill_strays(known)
        pause()
    return killed
