"""gunicorn around the application: a master, processes with threads, one pool each, opened after the fork."""

import contextlib
import signal
import time
from typing import Any

import structlog
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger
from gunicorn.http.errors import ParseException

from forgeflow.config import Config
from forgeflow.process.fork import freeze_heap
from forgeflow.process.privacy import become_private
from forgeflow.store.connection import open_pool, required_url
from forgeflow.web.address import check_address
from forgeflow.web.app import create_app
from forgeflow.web.database import POOL, STOPPING

log = structlog.get_logger()

_DISCARDED_BYTES = 16 * 1024**2
_DISCARD_SECONDS = 5.0
_PART_BYTES = 64 * 1024

# What gunicorn's master tells its workers, each once.
_ORDERS = {signal.SIGTERM, signal.SIGQUIT, signal.SIGINT, signal.SIGUSR1}


class _ForgeLogger(Logger):  # type: ignore[misc] # gunicorn ships without types
    """gunicorn's own messages go where ours go, in the same form."""

    def setup(self, cfg: Any) -> None:
        self.error_log.propagate = True
        self.error_log.handlers = []
        self.access_log.handlers = []


class _Arbiter(Arbiter):  # type: ignore[misc] # gunicorn ships without types
    """Forks with the orders held back: a worker that had no handlers yet would lose one, and a stop take 30 s."""

    def spawn_worker(self) -> Any:
        signal.pthread_sigmask(signal.SIG_BLOCK, _ORDERS)
        try:
            return super().spawn_worker()
        finally:
            _hear_orders()


def _hear_orders() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ORDERS)


class _Server(BaseApplication):  # type: ignore[misc] # gunicorn ships without types
    def __init__(self, config: Config) -> None:
        self._config = config
        self._app = create_app(config)
        super().__init__()

    def load_config(self) -> None:
        server = self._config.server
        host, port = server.address()
        settings = {
            "bind": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            "workers": server.workers,
            "threads": server.threads,
            "worker_class": "gthread",
            "timeout": max(1, round(server.request_timeout)),
            "graceful_timeout": max(1, round(server.request_timeout)),
            "proc_name": "forgeflow: web",
            "logger_class": _ForgeLogger,
            "control_socket_disable": True,
            "limit_request_line": 8190,  # the most that gunicorn takes
            "forwarded_allow_ips": "",  # or any program on this machine could set SCRIPT_NAME by a header
            "post_fork": self._open_pool,
            "post_worker_init": self._begin,
            "worker_exit": self._close_pool,
            "post_request": _discard_rest,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def run(self) -> None:
        freeze_heap()
        _Arbiter(self).run()

    def load(self) -> Any:
        return self._app

    def _open_pool(self, _server: Any, _worker: Any) -> None:
        self._app.extensions[POOL] = open_pool(self._config, "web", max_size=self._config.server.threads)

    def _begin(self, worker: Any) -> None:
        self._app.extensions[STOPPING] = lambda: not worker.alive
        _hear_orders()

    def _close_pool(self, _server: Any, _worker: Any) -> None:
        if pool := self._app.extensions.pop(POOL, None):
            pool.close(timeout=1.0)


def _discard_rest(_worker: Any, _request: Any, environ: dict[str, Any]) -> None:
    """Read what the client of a refused request still sends, within reason.

    A server that closes while its client is sending resets the connection, and the client never sees the answer.
    """
    if not environ:  # the request did not come so far
        return
    stream, client = environ["wsgi.input"], environ["gunicorn.socket"]
    left, deadline = _DISCARDED_BYTES, time.monotonic() + _DISCARD_SECONDS
    with contextlib.suppress(OSError, ParseException):
        client.settimeout(_DISCARD_SECONDS)
        while left > 0 and time.monotonic() < deadline and (part := stream.read(_PART_BYTES)):
            left -= len(part)
        client.settimeout(None)


def serve(config: Config) -> int:
    """Serve until TERM.  Raises ConfigError, AddressTaken before anything is started."""
    required_url(config)
    check_address(config)
    become_private()
    _Server(config).run()
    return 0
