"""The guard of one machine: keeps its services alive, ends what a dead one leaves behind, stops them in order.

Its process has one thread and is a sub-reaper: whatever outlives a service becomes its child and is killed. This is
what keeps a killed master's jobs from running on.
"""

import contextlib
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from forgeflow.embedded import EmbeddedServer, stop_server
from forgeflow.process.clock import boottime
from forgeflow.process.fork import fork_child
from forgeflow.process.tree import Strays, children, kill_child, signal_child

log = structlog.get_logger()

_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
_RESTART_SECONDS = 1.0
_SECOND_INT_SECONDS = 1.0
_WEB_STOP_SECONDS = 10.0
_NOT_READY_SECONDS = 60.0
_POLL_SECONDS = 1.0
_START_POLL_SECONDS = 0.05
_STRAYS_POLL_SECONDS = 0.005
# A service that ends with one of these will end so again: stop, instead of starting it for ever.
_HOPELESS = {2, 3, 4, 75, 78}


class Interrupted(BaseException):
    """Something is being started, and a signal asks for the second time to stop."""


class Signals:
    """Signals, noted for the loop to look at; and a socket that wakes it."""

    def __init__(self) -> None:
        self._taken: list[int] = []
        self._is_interruptible = False
        self._first_at = float("inf")
        self._receiver, self._sender = socket.socketpair()
        for end in (self._receiver, self._sender):
            end.setblocking(False)
        for number in (*_STOPPING, signal.SIGUSR2, signal.SIGCHLD):
            # Under nohup a closed terminal is no reason to stop.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)
        signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)

    def _note(self, number: int, _frame: object) -> None:
        if number == signal.SIGCHLD:
            return
        self._taken.append(number)
        if number in _STOPPING:
            now = boottime()
            self._first_at = min(self._first_at, now)
            if self._is_interruptible and now - self._first_at >= _SECOND_INT_SECONDS:
                self._is_interruptible = False
                raise Interrupted

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """The second signal to stop raises Interrupted in the block.

        Not the first: what has begun to start is soon up, and then can be stopped in order. An exception at any place
        of it leaves more behind.
        """
        self._is_interruptible = True
        try:
            yield
        finally:
            self._is_interruptible = False

    def close(self) -> None:
        """From now on they are ignored: on its way out Python would put back the handlers that kill."""
        signal.set_wakeup_fd(-1)
        for number in (*_STOPPING, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)

    def take(self) -> list[int]:
        taken, self._taken = self._taken, []
        return taken

    def wait(self, seconds: float, *others: int) -> None:
        """Until a signal comes or one of the other descriptors is readable, at most so long."""
        select.select([self._receiver.fileno(), *others], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            while self._receiver.recv(4096):
                pass


class Watchdog:
    """Our end of NOTIFY_SOCKET: a master that is frozen must be dead before its leases can pass.

    Its workers end their jobs by themselves then; but one that is killed meanwhile leaves its job to nobody else.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._heard_at = self._looked_at = 0.0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind("")  # the kernel gives it an abstract name of its own

    def fileno(self) -> int:
        return self._socket.fileno()

    def environment(self) -> dict[str, str]:
        """For the master that is being started now."""
        self.is_silent()  # takes in the last words of the one before
        self._heard_at = float("inf")  # its watch begins with its first word
        name = self._socket.getsockname()[1:].decode()
        return {"NOTIFY_SOCKET": f"@{name}", "WATCHDOG_USEC": str(int(self._seconds * 1e6))}

    @property
    def look_seconds(self) -> float:
        """How often to call `is_silent`."""
        return self._seconds / 3

    def is_silent(self) -> bool:
        """Whether the master has said nothing for too long; not when it was us who slept."""
        now = boottime()
        with contextlib.suppress(BlockingIOError):
            while self._socket.recv(4096):
                self._heard_at = now
        if now - self._looked_at > self._seconds and self._heard_at < now:
            self._heard_at = now
        self._looked_at = now
        return now - self._heard_at > self._seconds


class Postgres:
    """The embedded server, its death noticed whether or not it is our child."""

    def __init__(self, start: Callable[[], EmbeddedServer]) -> None:
        self._start = start
        self._server = start()
        self._pidfd = os.pidfd_open(self._server.pid)

    @property
    def pid(self) -> int:
        return self._server.pid

    @property
    def url(self) -> str:
        return self._server.url

    def fileno(self) -> int:
        """Readable when the server is dead."""
        return self._pidfd

    def revive(self) -> None:
        """Start it again when it is dead, and wait until it serves.  Raises as start_server."""
        if not select.select([self._pidfd], [], [], 0)[0]:
            return
        log.error("PostgreSQL died", pid=self.pid)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        self._server = self._start()
        os.close(self._pidfd)
        self._pidfd = os.pidfd_open(self.pid)
        log.warning("PostgreSQL started again", pid=self.pid)

    def stop(self) -> None:
        stop_server(self._server)
        os.close(self._pidfd)


@dataclass(slots=True)
class Service:
    """A process of ours, `forgeflow <command>`, that is started again when it dies, unless it is mortal.

    `environment` is what it has beside the guard's; `name` is what the log calls it; one with a watchdog is killed when
    it gives no sign of life.
    """

    command: str
    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    is_mortal: bool = False
    watchdog: Watchdog | None = None
    pid: int | None = None
    start_at: float = 0.0


@dataclass(slots=True)
class Guard:
    """`run` is its whole life, `run_pass` one turn of it.

    `environment` is what the services are started with; `greet` is called until it says that it has greeted. Masters
    drain side by side; the web process serves until the last of them has.
    """

    signals: Signals
    postgres: Postgres | None
    environment: Mapping[str, str]
    greet: Callable[[], bool]
    masters: Sequence[Service]
    web: Service = field(default_factory=lambda: Service("web", "web"))
    exit_code: int = 0
    _strays: Strays = field(default_factory=Strays)
    _is_stopping: bool = False
    _has_greeted: bool = False
    _interrupted_at: float = float("-inf")
    _kill_web_at: float = float("inf")
    _complain_at: float = float("inf")

    def run(self) -> int:
        """Serve until told to stop, or until a service says that there is no point.  Returns the exit code."""
        self._complain_at = boottime() + _NOT_READY_SECONDS
        try:
            while self.run_pass():
                pass
        finally:
            self._end_everything()
        return self.exit_code

    def run_pass(self) -> bool:
        """One turn; False when all has stopped.  Blocks for a second at most, but while PostgreSQL starts again."""
        strays = self._reap()
        for service in self._services():
            if service.pid and service.watchdog and service.watchdog.is_silent():
                log.error("service killed, for it gave no sign of life", service=service.name, pid=service.pid)
                kill_child(service.pid)
        self._obey()
        if self.postgres and not strays:
            self.postgres.revive()
        if self._is_stopping:
            self._stop_web()
            if not strays and all(service.pid is None for service in self._services()):
                return False
        elif not strays:  # what a dead master's jobs still hold must be free before there is another
            self._populate()
            self._greet()
        self._wait(has_strays=bool(strays))
        return True

    def _services(self) -> tuple[Service, ...]:
        return *self.masters, self.web

    def _living_masters(self) -> list[int]:
        return [master.pid for master in self.masters if master.pid]

    def _known(self) -> set[int]:
        pids = {service.pid for service in self._services() if service.pid}
        return pids | ({self.postgres.pid} if self.postgres else set())

    def _reap(self) -> int:
        """Note the services that have died, kill what they left behind; returns how many of that were alive."""
        for service in self._services():
            if service.pid and (code := _reaped(service.pid)) is not None:
                service.pid = None
                service.start_at = float("inf") if service.is_mortal else boottime() + _RESTART_SECONDS
                self._note_death(service, code)
        return self._strays.kill(self._known())

    def _note_death(self, service: Service, code: int) -> None:
        if not self._is_stopping:
            event = "service died; it stays dead" if service.is_mortal else "service died"
            log.error(event, service=service.name, exit_code=code)
            if code in _HOPELESS:
                self.exit_code = code
                self._stop(signal.SIGTERM)
        # A master that was told to stop before it could listen has died of the signal.
        elif service is not self.web and code not in (128 + signal.SIGTERM, 128 + signal.SIGQUIT):
            self.exit_code = self.exit_code or code

    def _obey(self) -> None:
        for number in self.signals.take():
            match number:
                case signal.SIGTERM | signal.SIGHUP:
                    self._stop(signal.SIGTERM)
                case signal.SIGQUIT:
                    self._stop(signal.SIGQUIT)
                case signal.SIGINT:
                    self._interrupt()
                case signal.SIGUSR2:
                    for pid in self._living_masters():
                        os.kill(pid, signal.SIGUSR2)

    def _interrupt(self) -> None:
        """The first time as TERM, later as QUIT; not as INT, for a master that still imports would print a traceback.

        One key press may arrive twice, from the terminal and from a program around us.
        """
        if not self._is_stopping:
            self._interrupted_at = boottime()
            self._stop(signal.SIGTERM)
        elif boottime() - self._interrupted_at >= _SECOND_INT_SECONDS:
            self._stop(signal.SIGQUIT)

    def _stop(self, number: int) -> None:
        """Tell the masters; the web process serves until they have drained."""
        self._is_stopping = True
        for pid in self._living_masters():
            signal_child(pid, number)  # and wake it, should it be stopped
        if number == signal.SIGQUIT and not self._living_masters():
            self._kill_web_at = boottime()

    def _stop_web(self) -> None:
        """Once the master has drained: TERM, and KILL when that is not enough."""
        now = boottime()
        if self._living_masters() or not self.web.pid:
            return
        if self._kill_web_at == float("inf"):
            self._kill_web_at = now + _WEB_STOP_SECONDS
            signal_child(self.web.pid, signal.SIGTERM)
        elif now >= self._kill_web_at:
            kill_child(self.web.pid)

    def _populate(self) -> None:
        for service in self._services():
            if service.pid is None and boottime() >= service.start_at:
                service.pid = self._start(service)

    def _start(self, service: Service) -> int:
        # -P: a file random.py in the folder where we were started is not the standard library's.
        arguments = [sys.executable, "-P", "-m", "forgeflow.cli", service.command]
        watched = service.watchdog.environment() if service.watchdog else {}
        environment = {**self.environment, **service.environment, **watched}
        if self.postgres:
            environment["FORGEFLOW_DATABASE_URL"] = self.postgres.url

        def become() -> int:
            os.execve(sys.executable, arguments, environment)

        return fork_child(become, keep=())

    def _greet(self) -> None:
        self._has_greeted = self._has_greeted or self.greet()
        if not self._has_greeted and boottime() >= self._complain_at:
            self._complain_at = boottime() + _NOT_READY_SECONDS
            log.warning("not ready yet; /readyz says why")

    def _wait(self, *, has_strays: bool) -> None:
        if has_strays:
            seconds = _STRAYS_POLL_SECONDS
        elif self._has_greeted or self._is_stopping:
            seconds = _POLL_SECONDS
        else:
            seconds = _START_POLL_SECONDS
        seconds = min([seconds, *(each.watchdog.look_seconds for each in self._services() if each.watchdog)])
        self.signals.wait(seconds, *([self.postgres.fileno()] if self.postgres else []))

    def _end_everything(self) -> None:
        """Nothing of ours outlives us, whatever went wrong; PostgreSQL is somebody else's to stop, after this."""
        for service in self._services():
            if service.pid:
                kill_child(service.pid)
        keep = {self.postgres.pid} if self.postgres else set()
        self._strays.kill_until_none(keep)


def end_children(signals: Signals, *, patience: float = 10.0) -> None:
    """What an interrupted start has left, a PostgreSQL that stops perhaps: ask it to end, then kill it."""
    deadline = boottime() + patience
    asked: set[int] = set()
    while (left := set(children())) and boottime() < deadline:
        for pid in left:
            if pid not in asked:
                os.kill(pid, signal.SIGINT)
            _reaped(pid)
        asked |= left
        signals.wait(_START_POLL_SECONDS)
    Strays().kill_until_none()


def _reaped(pid: int) -> int | None:
    """The exit code of a child that has ended, 128 + n for signal n, or None."""
    done, status = os.waitpid(pid, os.WNOHANG)
    if not done:
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
