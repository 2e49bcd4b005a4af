"""Talking to the service manager that started us, systemd mostly: the sd_notify protocol.

Source: sd_notify(3). Messages are datagrams; a manager that does not read them must not stop us, so what does not go
out is dropped. Without a manager everything here does nothing.
"""

import contextlib
import os
import socket
import time
from collections.abc import MutableMapping
from typing import Self

from forgeflow.config import Worker
from forgeflow.errors import ConfigError
from forgeflow.process.clock import boottime

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
# While we start, or wait for running jobs, we ask for this much more, again and again.
_MORE_SECONDS = 30.0


class ServiceManager:
    """What we tell it; `address` is NOTIFY_SOCKET, `watchdog_seconds` how long it waits for a sign of life."""

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        self._watchdog_seconds = watchdog_seconds if address else None
        self._status = ""
        self._is_ready = False
        self._is_stopping = False
        self._is_reloading = False
        self._tell_at = 0.0
        self._socket: socket.socket | None = None
        if address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self._address = f"\0{address[1:]}" if address.startswith("@") else address

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> Self:
        """Take the variables out, too: what we start must not talk for us."""
        address, usec, pid = (environ.pop(name, "") for name in _VARIABLES)
        is_watched = usec.isdigit() and int(usec) > 0 and pid in ("", str(os.getpid()))
        return cls(address, int(usec) / 1e6 if is_watched else None)

    def check(self, worker: Worker) -> None:
        """A frozen master must be dead before its leases can pass.  Raises ConfigError when the watchdog is slower."""
        longest = worker.lease_duration - worker.heartbeat_interval - worker.fence_margin
        if self._watchdog_seconds is not None and self._watchdog_seconds > longest:
            raise ConfigError(
                f"WatchdogSec is {self._watchdog_seconds:g}s; expected at most {longest:g}s: worker.lease_duration "
                "minus worker.heartbeat_interval minus worker.fence_margin"
            )

    @property
    def tell_at(self) -> float:
        """When to call `tell` again at the latest, on CLOCK_BOOTTIME."""
        return self._tell_at

    def tell(self, status: str, *, is_ready: bool, is_stopping: bool) -> None:
        """What has changed since the last call, and the signs of life that are due; a call for each turn of a loop."""
        if not self._socket:
            self._tell_at = float("inf")
            return
        words = []
        if is_ready and not self._is_ready:
            self._is_ready = True
            words.append("READY=1")
        if is_stopping and not self._is_stopping:
            self._is_stopping = True
            words.append("STOPPING=1")
        if status != self._status:
            self._status = status
            words.append(f"STATUS={status}")
        now = boottime()
        if now >= self._tell_at:
            self._tell_at = now + min(_MORE_SECONDS / 3, (self._watchdog_seconds or _MORE_SECONDS) / 3)
            words.append("WATCHDOG=1")
            if is_stopping or not self._is_ready:
                words.append(f"EXTEND_TIMEOUT_USEC={int(_MORE_SECONDS * 1e6)}")
        self._send(words)

    def begin_reload(self) -> None:
        """Always followed by `end_reload`, whether it was good or bad; nothing is told before we are ready."""
        if self._is_ready:
            self._is_reloading = True
            self._send(["RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}"])

    def end_reload(self) -> None:
        if self._is_reloading:
            self._is_reloading = False
            self._send(["READY=1"])

    def _send(self, words: list[str]) -> None:
        if self._socket and words:
            with contextlib.suppress(OSError):
                self._socket.sendto("\n".join(words).encode(), self._address)
