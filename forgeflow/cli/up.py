"""`forgeflow up`: everything on one machine, under one small sub-reaper.

It starts PostgreSQL, migrates, starts the node's master and the web process, restarts one of them that dies, and
stops all in the other order. As sub-reaper it inherits whatever a dead master leaves behind, and ends it: this is
what keeps a killed master's jobs from running on.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
import structlog

from forgeflow.config import Config, load_config
from forgeflow.embedded import EmbeddedServer, start_server, stop_server
from forgeflow.log import set_up_logging
from forgeflow.process.clock import boottime
from forgeflow.process.fork import fork_child
from forgeflow.process.tree import become_subreaper, children, kill_strays
from forgeflow.store.connection import connect
from forgeflow.store.schema import migrate
from forgeflow.web.wsgi import check_address

log = structlog.get_logger()

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_RESTART_SECONDS = 1.0
_READY_SECONDS = 60.0
_WEB_STOP_SECONDS = 10.0
# A service that ends with one of these will end so again: say it and stop, instead of starting it for ever.
_HOPELESS = {2, 3, 4, 75, 78}


def state_folder(data_dir: str | None) -> Path:
    """Where the embedded server keeps its data."""
    if data_dir:
        return Path(data_dir).absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/forgeflow")
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "forgeflow"


@contextlib.contextmanager
def _database(config: Config, data_dir: str | None) -> Iterator[tuple[str, int | None]]:
    """The URL to use, and the pid of the server when it is ours; it is stopped at the end."""
    if config.database.url:
        yield config.database.url, None
        return
    server = _start_embedded(config, data_dir)
    try:
        yield server.url, server.pid
    finally:
        stop_server(server)


def _start_embedded(config: Config, data_dir: str | None) -> EmbeddedServer:
    binaries = config.database.embedded_bin
    # Each worker has one connection, courier and scheduler one each, the web a pool for each process.
    needed = config.worker.concurrency + config.server.workers * config.server.threads + 20
    return start_server(
        state_folder(data_dir),
        account=config.database.embedded_user or None,
        binaries=Path(binaries) if binaries else None,
        max_connections=max(100, needed),
    )


@dataclass(slots=True)
class _Service:
    """A process of ours that is started again when it dies."""

    command: str
    pid: int | None = None
    start_at: float = 0.0


@dataclass(slots=True)
class _Guard:
    """The services, and what must not be taken for something that they left behind."""

    environment: dict[str, str]
    postmaster: int | None
    services: dict[str, _Service]
    pending: list[int] = field(default_factory=list)
    is_stopping: bool = False
    exit_code: int = 0

    def start(self, service: _Service) -> None:
        arguments = [sys.executable, "-m", "forgeflow.cli", service.command]

        def become() -> int:
            os.execve(sys.executable, arguments, self.environment)

        service.pid = fork_child(become, keep=())

    def known(self) -> set[int]:
        pids = {service.pid for service in self.services.values() if service.pid}
        return pids | ({self.postmaster} if self.postmaster else set())

    def reap(self) -> None:
        """Note the services that have died, and end what they left behind."""
        for service in self.services.values():
            if service.pid and (code := _reaped(service.pid)) is not None:
                service.pid = None
                service.start_at = boottime() + _RESTART_SECONDS
                self._note_death(service, code)
        while set(children()) - self.known():
            kill_strays(self.known())
            select.select([], [], [], 0.005)

    def _note_death(self, service: _Service, code: int) -> None:
        if self.is_stopping:
            self.exit_code = self.exit_code or (code if service.command == "master" else 0)
            return
        log.error("service died", service=service.command, exit_code=code)
        if code in _HOPELESS:
            self.exit_code = code
            self.is_stopping = True

    def forward(self) -> None:
        """Pass signals on to the master; the web process goes on until the master has drained."""
        taken, self.pending = self.pending, []
        for number in taken:
            self.is_stopping = True
            master = self.services["master"]
            if master.pid:
                os.kill(master.pid, number)


def _reaped(pid: int) -> int | None:
    """The exit code of a child that has ended, 128 + n for signal n, or None."""
    done, status = os.waitpid(pid, os.WNOHANG)
    if not done:
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def run_up(config_file: str | None, *, listen: str | None, data_dir: str | None) -> int:
    """Serve everything until told to stop.  Raises ConfigError, AddressTaken, StoreUnavailable before it serves."""
    overrides = {"server.listen": listen} if listen else {}
    config = load_config(config_file, overrides=overrides)
    set_up_logging(config.log)
    check_address(config)
    become_subreaper()
    wake_receiver, wake_sender = socket.socketpair()
    guard = _Guard(
        environment=dict(os.environ),
        postmaster=None,
        services={"master": _Service("master"), "web": _Service("web")},
    )
    for end in (wake_receiver, wake_sender):
        end.setblocking(False)
    for number in (*_FORWARDED, signal.SIGCHLD):
        signal.signal(number, lambda number, _frame: _note(guard, number))
    signal.set_wakeup_fd(wake_sender.fileno(), warn_on_full_buffer=False)
    with _database(config, data_dir) as (url, postmaster):
        guard.postmaster = postmaster
        guard.environment |= {"FORGEFLOW_DATABASE_URL": url, "FORGEFLOW_LISTEN_ADDR": config.server.listen}
        if config_file:
            guard.environment["FORGEFLOW_CONFIG"] = str(Path(config_file).absolute())
        _migrate(load_config(config_file, overrides={**overrides, "database.url": url}))
        _serve(guard, wake_receiver, config)
        _stop_web(guard, wake_receiver)
    signal.set_wakeup_fd(-1)
    click.echo("ForgeFlow has stopped.")
    return guard.exit_code


def _note(guard: _Guard, number: int) -> None:
    if number != signal.SIGCHLD:
        guard.pending.append(number)


def _migrate(config: Config) -> None:
    connection = connect(config, "migrate")
    try:
        migrate(connection, config)
    finally:
        connection.close()


def _serve(guard: _Guard, wake: socket.socket, config: Config) -> None:
    """Keep both services alive until a signal comes, then until the master has drained."""
    announced = False
    give_up_at = boottime() + _READY_SECONDS
    while True:
        guard.reap()
        guard.forward()
        if guard.is_stopping and guard.services["master"].pid is None:
            return
        for service in guard.services.values():
            if service.pid is None and not guard.is_stopping and boottime() >= service.start_at:
                guard.start(service)
        if not announced and not guard.is_stopping and (_answers(config) or boottime() > give_up_at):
            announced = True
            _announce(config)
        if guard.exit_code and (pid := guard.services["master"].pid):
            os.kill(pid, signal.SIGTERM)
        _wait(wake, 0.05 if not announced else 1.0)


def _stop_web(guard: _Guard, wake: socket.socket) -> None:
    web = guard.services["web"]
    deadline = boottime() + _WEB_STOP_SECONDS
    if web.pid:
        os.kill(web.pid, signal.SIGTERM)
    while web.pid:
        guard.reap()
        if web.pid and boottime() > deadline:
            os.kill(web.pid, signal.SIGKILL)
        if web.pid:
            _wait(wake, 0.1)


def _wait(wake: socket.socket, seconds: float) -> None:
    """Until a signal comes, at most so long."""
    if select.select([wake], [], [], seconds)[0]:
        with contextlib.suppress(BlockingIOError):
            wake.recv(4096)


def _address(config: Config) -> str:
    host, port = config.server.address()
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _answers(config: Config) -> bool:
    try:
        with urllib.request.urlopen(f"{_address(config)}/readyz", timeout=1.0) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def _announce(config: Config) -> None:
    address = _address(config)
    click.echo(
        f"""
ForgeFlow is up: {address}

Try a job:
  curl -X POST {address}/api/jobs -d '{{"name": "hello", "executor": "shell", "payload": {{"command": "echo hello"}}}}'
  curl {address}/api/runs

Ctrl-C stops everything; running jobs may finish.
"""
    )
