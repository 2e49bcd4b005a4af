"""Process trees: who is whose child, and how to be sure that all of them are gone.

A sub-reaper inherits the orphans among its descendants, so nothing that a job starts, daemons included, can leave
the tree. Signals go only to our own unreaped children, whose ids cannot have been given to anybody else.
"""

import contextlib
import ctypes
import os
import select
import signal
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_ROUND_SECONDS = 0.001

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int, more: int = 0) -> int:
    """prctl(2).  Raises OSError."""
    answer: int = _libc.prctl(option, value, more, 0, 0)
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return answer


def become_subreaper() -> None:
    """Orphans among our descendants become our children from now on.  Not inherited over fork."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def machine() -> str:
    """Where our process ids mean what they mean to us: this boot of this kernel, and our namespace of processes.

    A host name is no such thing: two containers may share it, and neither sees the other's processes.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Get this signal when our parent's main thread ends; exits at once when `parent` is already gone."""
    prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


# The process, and its descriptor of the list of its children; kept open, so that a master that has run out of
# descriptors can still clean up.
_children_list: tuple[int, int] = (0, -1)


def children() -> list[int]:
    """The ids of our children, zombies included.  The process must have one thread."""
    global _children_list
    pid = os.getpid()
    if _children_list[0] != pid:  # another one's, from before the fork, is closed
        _children_list = (pid, os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC))
    text = b""
    while part := os.pread(_children_list[1], 65536, len(text)):
        text += part
    return [int(child) for child in text.split()]


def descendants() -> list[int]:
    """All processes below us, ours and those of our children; some may be gone already."""
    found: list[int] = []
    for child in children():
        found += [child, *_below(child)]
    return found


def _below(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *_below(int(child))]
    return found


def memory_bytes(pid: int) -> int:
    """What a process takes of the machine's memory, its share of what it has in common with others; 0 when gone.

    Reading it takes the kernel about a millisecond for each GiB. Of one that we may not look into, for it runs under
    another user or hides from its own, all that it has is counted.
    """
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except PermissionError:
        return _resident_bytes(pid)
    except OSError:
        pass
    return 0


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def signal_child(pid: int, number: int) -> bool:
    """Signal one of our unreaped children, and wake it when it was stopped; False when it is not ours to signal.

    A child may have changed its user: then nobody but root can end it. One that is gone is nothing.  Raises
    ValueError for ids that would reach everybody.
    """
    if pid <= 1:
        raise ValueError(f"refusing to signal process {pid}")
    try:
        os.kill(pid, number)
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def signal_group(leader: int, number: int) -> None:
    """Signal the process group that one of our unreaped children leads or has led, as far as it is ours to signal.

    A group that is gone is nothing.  Raises ValueError for ids that would reach ourselves or everybody.
    """
    if leader <= 1 or leader == os.getpgrp():
        raise ValueError(f"refusing to signal process group {leader}")
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
        os.killpg(leader, signal.SIGCONT)


def signal_tree(leader: int, number: int) -> None:
    """Signal a command's first process, wherever it has gone, and the group that it was started in; each once.

    Many programs take a second TERM for an order to drop everything.
    """
    signal_group(leader, number)
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(leader) != leader:
            signal_child(leader, number)


def kill_child(pid: int) -> bool:
    """SIGKILL to one of our unreaped children and, when it leads one, to its process group; False: not permitted."""
    with contextlib.suppress(ProcessLookupError):
        if pid > 1 and os.getpgid(pid) == pid:
            signal_group(pid, signal.SIGKILL)
    return signal_child(pid, signal.SIGKILL)


@dataclass(slots=True)
class Strays:
    """The children that nobody wants: what dead workers and ended jobs left behind.

    `immune` are those that we may not kill, for they run under another user now: they are left alone, and known.
    """

    immune: set[int] = field(default_factory=set)

    def kill(self, known: Collection[int] = ()) -> int:
        """One round: SIGKILL and reap all our children that are not `known`; returns how many there were.

        Their own children become ours then, so the tree is empty only after a round that found nobody.
        """
        found = set(children()) - set(known)
        self.immune &= found
        found -= self.immune
        for pid in found:
            if not kill_child(pid):
                self.immune.add(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return len(found)

    def kill_until_none(self, known: Collection[int] = ()) -> int:
        """Rounds until no child but the `known` and the immune is left; returns how many were met in all.

        Ends, for SIGKILL cannot be ignored and every round reaches one level deeper; only a process in
        uninterruptible sleep makes it wait.
        """
        met: set[int] = set()
        while found := set(children()) - set(known) - self.immune:
            met |= found
            self.kill(known)
            if set(children()) - set(known) - self.immune:
                select.select([], [], [], _ROUND_SECONDS)
        return len(met)
