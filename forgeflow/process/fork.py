"""Forking a child that starts clean."""

import contextlib
import faulthandler
import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Collection
from pathlib import Path

from forgeflow.process.tree import die_with_parent

# What a child tells its parent by its exit code.
EXIT_BOOT_FAILED = 3
EXIT_TRY_AGAIN = 75
EXIT_BUG = 70
EXIT_REFUSED = 78
EXIT_RESULT_REFUSED = 79

_ALL_SIGNALS = signal.valid_signals()


def freeze_heap() -> None:
    """Before the first fork, once: what is on the heap now stays shared with the children."""
    gc.collect()
    gc.freeze()


_HEEDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


def _noted(_number: int, _frame: object) -> None:
    """A handler that does nothing, rather than SIG_IGN, which a job would inherit over exec."""


_is_in_doubt = True


def doubt_signals() -> None:
    """Code of others runs now, and may leave signals blocked or ignored."""
    global _is_in_doubt
    _is_in_doubt = True


def heed_signals() -> None:
    """None is blocked or ignored from now on: what we start would inherit that.  Call it from the main thread.

    Looks only after `doubt_signals`: it takes longer than the rest of our part in starting a program.
    """
    global _is_in_doubt
    if not _is_in_doubt:
        return
    _is_in_doubt = False
    if signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or the kernel would reap for us
    for number in _HEEDED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _noted)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, _noted)
    for number in (signal.SIGCHLD, signal.SIGQUIT, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)


def _close_others(keep: Collection[int]) -> None:
    """Close every descriptor but stdio and `keep`: a sibling that held our parent's ends would hide its death."""
    kept = {0, 1, 2, *keep}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - a Path would open the listing later
        if (number := int(name)) not in kept:
            try:
                os.close(number)
            except OSError:  # the listing's own descriptor
                continue


def fork_child(main: Callable[[], int], *, keep: Collection[int], death_signal: int = signal.SIGKILL) -> int:
    """Fork; the child runs `main` and exits with what it returns, 70 when it raises.  Returns the child's id.

    The child has its own session, no handlers or descriptors of the parent but stdio and `keep`, an empty signal mask,
    and gets `death_signal` when the parent dies. Signals are blocked in between, so none is lost. Call it from a
    process with one thread (checked).  Raises OSError when the system has no process to give; that is to be tried
    again later.
    """
    assert threading.active_count() == 1, "a process with threads must not fork"
    _flush()
    parent = os.getpid()
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL_SIGNALS)
    try:
        pid = os.fork()
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        raise
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        return pid
    code = EXIT_BUG
    try:
        _reset_signals()
        die_with_parent(parent, death_signal)
        os.setsid()
        _close_others(keep)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        faulthandler.enable(all_threads=False)  # ABRT, which the master sends when we hang, leaves a traceback
        code = main()
    except BaseException:  # noqa: BLE001 - the edge of the process
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def open_standard_descriptors() -> None:
    """Give stdin, stdout and stderr something to be when the starter closed them.

    Otherwise the next socket becomes number 1 or 2, and a job's output, or a log line, goes into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, so this one
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _flush() -> None:
    """What nobody reads any more must not stop a fork."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir())) - 1
