"""The shell executor: a command in a process group of its own.

The run is over when the command's first process has ended; whatever it left behind is killed then, daemons
included, before the ending is reported. Nothing here waits without a deadline.
"""

import contextlib
import errno
import fcntl
import os
import pwd
import select
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from forgeflow.config import Config
from forgeflow.domain.run import Ending, Failure
from forgeflow.executors.base import STOPPED, Orders, run_environment
from forgeflow.executors.output import OutputKeeper
from forgeflow.executors.progress import ProgressReader
from forgeflow.process.capabilities import may_switch_user
from forgeflow.process.clock import boottime
from forgeflow.process.oom import JOB_SCORE, OwnScore
from forgeflow.process.spawn import ProgressSlot, Start, Started, User, spawn
from forgeflow.process.tree import Strays, children, descendants, memory_bytes, signal_tree
from forgeflow.store.runs import ClaimedRun

log = structlog.get_logger()

# How long descendants that still hold the output may go on after the command itself has ended.
_LINGER_SECONDS = 1.0
_READ_BYTES = 65536
_FLOOD_BYTES = 256 * 1024
_SCARCITY = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
_MEMORY_LOOK_SECONDS = 1.0
_SUCCESS = (0,)
# The names of a payload's limits, and the kernel's.
_LIMITS = {"memory": "AS", "cpu": "CPU", "files": "NOFILE", "processes": "NPROC", "core": "CORE"}


class _Refused(Exception):
    """This node does not start the command, and why."""


@dataclass(slots=True)
class _Attempt:
    """One running command, and what is to happen when."""

    started: Started
    kept: OutputKeeper
    timeout_at: float
    progress: ProgressReader = field(default_factory=ProgressReader)
    stop_reason: str | None = None
    kill_at: float | None = None
    memory_look_at: float = float("inf")
    memory_bytes: int = 0
    is_pipe_open: bool = True
    read_bytes: int = _READ_BYTES
    wait_status: int | None = None  # its first process has been reaped: that number may be another's


class ShellExecutor:
    """Runs `payload.command` with `<shell> -c`, or `payload.argv`.  One at a time; made once per worker."""

    def __init__(self, config: Config) -> None:
        self._settings = config.executor_shell
        self._kill_grace = config.worker.kill_grace
        self._fence_grace = config.worker.fence_grace
        passed = {name: os.environ[name] for name in self._settings.env_pass if name in os.environ}
        self._environment: Mapping[str, str] = {"PATH": os.defpath, **passed}
        self._slot = ProgressSlot()
        self._score = OwnScore()
        self._workdir = self._settings.workdir or _home()
        self._strays = Strays()

    def unfit(self) -> str:
        """Why no command can be started on this machine, as configured; empty when one can."""
        if not os.access(self._settings.shell, os.X_OK):
            return f"executor.shell.shell is {self._settings.shell}, which cannot be executed"
        if not Path(self._workdir).is_dir():
            return f"executor.shell.workdir is {self._workdir}, which is no folder"
        return ""

    def __call__(self, run: ClaimedRun, orders: Orders, keeper: OutputKeeper) -> Ending:
        try:
            started = spawn(self._start_of(run), own_score=self._score, least_score=JOB_SCORE, slot=self._slot)
        except _Refused as error:
            return Ending(run.id, run.attempt, Failure("not_started", str(error), charged=True))
        except OSError as error:
            return Ending(run.id, run.attempt, _not_started(run, error))
        attempt = _Attempt(started, keeper, boottime() + run.timeout_seconds)
        if self._settings.memory_limit is not None:
            attempt.memory_look_at = boottime() + _MEMORY_LOOK_SECONDS
        try:
            self._watch(attempt, run, orders)
            status = self._end(attempt, orders.fence_at(run))
            refusal = _said(started.refusal)
        except BaseException:
            # A bug of ours must not leave a command behind that nobody watches: the run goes to another worker.
            self._clear(attempt)
            raise
        finally:
            started.close()
        if refusal:
            return Ending(
                run.id, run.attempt, Failure("not_started", f"the command was not started: {refusal}", charged=True)
            )
        return _ending(run, attempt, status)

    def _start_of(self, run: ClaimedRun) -> Start:
        """Raises _Refused for what this node does not do."""
        payload = run.payload
        user = self._user(payload.get("run_as"))
        argv = payload.get("argv") or [self._settings.shell, "-c", payload["command"]]
        own = {"HOME": user.home, "USER": user.name, "LOGNAME": user.name} if user else {}
        return Start(
            argv,
            workdir=payload.get("workdir") or (user.home if user else self._workdir),
            environment={**self._environment, **own, **payload.get("env", {}), **run_environment(run)},
            stdin=payload.get("stdin"),
            user=user,
            limits={_LIMITS[name]: value for name, value in payload.get("limits", {}).items()},
        )

    def _user(self, name: str | None) -> User | None:
        if name is None:
            return None
        if name not in self._settings.run_as_allowed:
            raise _Refused(
                f"jobs do not run as {name} on this node: executor.shell.run_as_allowed does not name that user"
            )
        if not may_switch_user():
            raise _Refused(f"this node cannot start programs as {name}: its unit grants it neither root nor CAP_SETUID")
        try:
            return User.named(name)
        except KeyError as error:
            raise _Refused(f"there is no user {name} on this machine") from error

    def _watch(self, attempt: _Attempt, run: ClaimedRun, orders: Orders) -> None:
        """Read output and orders and keep the time until the command's first process has ended."""
        pidfd = os.pidfd_open(attempt.started.pid)
        try:
            self._watch_until_readable(pidfd, attempt, run, orders)
        finally:
            os.close(pidfd)

    def _watch_until_readable(self, pidfd: int, attempt: _Attempt, run: ClaimedRun, orders: Orders) -> None:
        poll = select.poll()
        output, progress = attempt.started.output, attempt.started.progress
        for descriptor in (pidfd, output, progress, orders.fileno()):
            poll.register(descriptor, select.POLLIN)
        hears = True
        deadline = 0.0
        ready: Mapping[int, int] = {}
        while True:
            now = boottime()
            if now >= deadline or orders.fileno() in ready:
                self._keep_time(attempt, run, orders, now)
                if hears and orders.is_closed:
                    hears = False  # or the end of the link would wake us all the time
                    poll.unregister(orders.fileno())
            deadline = self._next_deadline(attempt, orders.fence_at(run))
            ready = dict(poll.poll(_milliseconds(deadline - now)))
            if output in ready:
                _read_output(attempt)
                if not attempt.is_pipe_open:
                    poll.unregister(output)
            if progress in ready and not _read_progress(attempt):
                poll.unregister(progress)
            if pidfd in ready:
                return

    def _next_deadline(self, attempt: _Attempt, fence_at: float) -> float:
        if attempt.stop_reason is None:
            return min(attempt.timeout_at, attempt.memory_look_at, fence_at)
        kill_at = float("inf") if attempt.kill_at is None else attempt.kill_at
        return kill_at if attempt.stop_reason == "fenced" else min(kill_at, fence_at)

    def _keep_time(self, attempt: _Attempt, run: ClaimedRun, orders: Orders, now: float) -> None:
        reason = orders.stop_reason(run)
        if reason == "fenced" and attempt.stop_reason != "fenced":
            self._stop(attempt, reason)  # also when it is being stopped already: there is less time now
        elif reason == "lost" and attempt.kill_at is not None:
            attempt.kill_at = now  # whatever it is being stopped for
        elif reason and not attempt.stop_reason:
            self._stop(attempt, reason)
        elif not attempt.stop_reason and now >= attempt.timeout_at:
            self._stop(attempt, "timed_out")
        elif not attempt.stop_reason and now >= attempt.memory_look_at:
            self._look_at_memory(attempt)
        if attempt.kill_at is not None and now >= attempt.kill_at:
            signal_tree(attempt.started.pid, signal.SIGKILL)
            attempt.kill_at = None

    def _look_at_memory(self, attempt: _Attempt) -> None:
        """What takes too much has no grace: the machine may have no memory left for it."""
        limit = self._settings.memory_limit
        assert limit is not None
        attempt.memory_look_at = boottime() + _MEMORY_LOOK_SECONDS
        attempt.memory_bytes = sum(map(memory_bytes, descendants()))
        if attempt.memory_bytes > limit:
            attempt.stop_reason = "memory"
            signal_tree(attempt.started.pid, signal.SIGKILL)

    def _stop(self, attempt: _Attempt, reason: str) -> None:
        """TERM to the group; KILL follows after `worker.kill_grace`, or after `worker.fence_grace` for a fence.

        Without a master there is no grace: nobody renews the lease, and nobody sees to it that we ourselves end.
        """
        attempt.stop_reason = reason
        grace = {"fenced": self._fence_grace, "lost": 0.0}.get(reason, self._kill_grace)
        attempt.kill_at = boottime() + grace
        signal_tree(attempt.started.pid, signal.SIGTERM)

    def _end(self, attempt: _Attempt, fence_at: float) -> int:
        """Kill what is left, reap the command, read the rest.  Returns its status as subprocess would."""
        if attempt.is_pipe_open and not attempt.stop_reason:
            _read_until_closed(attempt, min(boottime() + _LINGER_SECONDS, fence_at))
        if children() == [attempt.started.pid]:
            # It has ended, and is all that is left of its tree: there is none to kill.
            attempt.wait_status = os.waitpid(attempt.started.pid, 0)[1]
        else:
            self._clear(attempt)
        assert attempt.wait_status is not None
        if attempt.is_pipe_open:
            _read_until_closed(attempt, boottime() + _LINGER_SECONDS)
        return os.waitstatus_to_exitcode(attempt.wait_status)

    def _clear(self, attempt: _Attempt) -> None:
        """End the command and all that it left behind."""
        if attempt.wait_status is None:
            # Its zombie, if it has ended, still holds the group's id, so that this cannot reach anybody else.
            signal_tree(attempt.started.pid, signal.SIGKILL)
            attempt.wait_status = os.waitpid(attempt.started.pid, 0)[1]
        immune_before = set(self._strays.immune)
        left = self._strays.kill_until_none()
        if left:
            log.warning("processes left behind killed", count=left)
        if immune := self._strays.immune - immune_before:
            log.error("processes left behind run under another user and cannot be killed", pids=sorted(immune))


def _milliseconds(seconds: float) -> float:
    """For poll, which takes no more than 24 days; an hour at most, then one looks again."""
    return min(3_600_000.0, max(0.0, seconds * 1000 + 1))


def _home() -> str:
    """The home of the node's user when it can be entered, else /."""
    with contextlib.suppress(KeyError):
        home = pwd.getpwuid(os.getuid()).pw_dir
        if os.access(home, os.X_OK):
            return home
    return "/"


def _read_output(attempt: _Attempt) -> None:
    try:
        data = os.read(attempt.started.output, attempt.read_bytes)
    except BlockingIOError:
        return
    if data:
        attempt.kept.feed(data)
        if len(data) == attempt.read_bytes == _READ_BYTES:
            # It prints faster than one reads. What a user's pipes may take in all is limited, so not for everybody.
            attempt.read_bytes = _FLOOD_BYTES
            with contextlib.suppress(OSError):
                fcntl.fcntl(attempt.started.output, fcntl.F_SETPIPE_SZ, _FLOOD_BYTES)
    else:
        attempt.is_pipe_open = False


def _read_until_closed(attempt: _Attempt, deadline: float) -> None:
    poll = select.poll()
    poll.register(attempt.started.output, select.POLLIN)
    while attempt.is_pipe_open and poll.poll(max(0.0, (deadline - boottime()) * 1000)):
        _read_output(attempt)
        if boottime() >= deadline:
            return


def _read_progress(attempt: _Attempt) -> bool:
    """False when no more will come."""
    try:
        data = os.read(attempt.started.progress, _READ_BYTES)
    except BlockingIOError:
        return True
    if attempt.progress.feed(data):
        attempt.kept.note_progress(attempt.progress.percent, attempt.progress.note)
    return bool(data)


def _said(descriptor: int | None) -> str:
    """What whoever was to become somebody else has said; nothing when it has."""
    if descriptor is None:
        return ""
    with contextlib.suppress(BlockingIOError):
        return os.read(descriptor, _READ_BYTES).decode("utf-8", "replace")
    return ""


def _not_started(run: ClaimedRun, error: OSError) -> Failure:
    """Why it could not be executed; what the machine lacks at the moment is not the job's fault."""
    blamed = error.filename or "the command"
    argv = run.payload.get("argv")
    if error.errno == errno.ENOENT and argv and blamed == argv[0]:
        return Failure("not_found", f"the program was not found: {blamed}", charged=True)
    reason = f"the command was not started: {error.strerror}: {blamed}"
    return Failure("not_started", reason, charged=error.errno not in _SCARCITY)


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _ending(run: ClaimedRun, attempt: _Attempt, status: int) -> Ending:
    failure = _failure(run, attempt, status)
    exit_code, number = (status, None) if status >= 0 else (None, -status)
    return Ending(run.id, run.attempt, failure, exit_code, signal=number)


def _failure(run: ClaimedRun, attempt: _Attempt, status: int) -> Failure | None:
    """Why the attempt failed; a stop that the command answered in time with success is still a stop."""
    success_codes = run.payload.get("success_codes", _SUCCESS)
    if status in success_codes and attempt.stop_reason is None:
        return None
    match attempt.stop_reason:
        case str(reason) if reason in STOPPED:
            return STOPPED[reason]
        case "timed_out":
            return Failure("timed_out", f"still running after {run.timeout_seconds:g} s, stopped", charged=True)
        case "memory":
            taken = attempt.memory_bytes // 1024**2
            return Failure(
                "memory", f"its processes took {taken} MiB, more than executor.shell.memory_limit", charged=True
            )
    if status < 0:
        return Failure("signalled", f"ended by signal {-status} ({_signal_name(-status)})", charged=True)
    if status == os.EX_TEMPFAIL:
        return Failure("postponed", "exit code 75 (to be tried again later)", charged=True, is_later=True)
    meaning = {126: " (found, but could not be executed)", 127: " (command not found)"}.get(status, "")
    kind = "not_found" if status == 127 else "failed"
    return Failure(kind, f"exit code {status}{meaning}", charged=True)
