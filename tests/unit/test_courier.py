"""In which order the courier obeys."""

import ctypes
import os
import subprocess
from pathlib import Path

import pytest

from forgeflow.courier import _is_master, _most_urgent_first

_CLONE_NEWNS = 0x00020000


def test_beats_go_first_and_repeated_recoveries_once() -> None:
    recover = {"kind": "RECOVER", "child": 3, "run": None}
    other = {"kind": "RECOVER", "child": 4, "run": None}
    beat = {"kind": "BEAT", "children": [1]}
    earlier = {"kind": "BEAT", "children": [1, 2]}
    assert _most_urgent_first([recover, earlier, other, dict(recover), beat]) == [beat, recover, other]


def test_no_timer_of_a_retry_is_lost_to_a_later_one() -> None:
    """The sooner one of two that came together once was, and its run waited for the next beat."""
    timers = [{"kind": "PEEK_IN", "seconds": 0.1}, {"kind": "PEEK_IN", "seconds": 600.0}]
    assert _most_urgent_first(timers) == timers


def test_process_that_is_no_master_is_not_taken_for_one() -> None:
    assert not _is_master(os.getpid())
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert not _is_master(ended.pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts /proc anew, and changes its user")
def test_process_that_proc_hides_is_taken_for_alive() -> None:
    """As ProtectProc=invisible does: a living node of our name must not be taken over because we cannot see it."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(writing, _look_from_outside(os.getppid()))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    answer = os.read(reading, 100).decode()
    os.close(reading)
    if answer == "no namespace":
        pytest.skip("mount namespaces are refused here")
    assert answer == "hidden, alive"


def _look_from_outside(pid: int) -> bytes:
    """In a process of its own: what another user makes of `pid` where /proc shows one's own processes only."""
    if ctypes.CDLL(None).unshare(_CLONE_NEWNS) != 0:
        return b"no namespace"
    for arguments in (["--make-rprivate", "/"], ["-t", "proc", "-o", "hidepid=2", "proc", "/proc"]):
        if subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode != 0:
            return b"no namespace"
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    seen = b"visible" if Path(f"/proc/{pid}").exists() else b"hidden"
    return seen + (b", alive" if _is_master(pid) else b", dead")
