"""Talking to the service manager that started us, systemd mostly: the sd_notify protocol.

Source: sd_notify(3). Messages are datagrams. A manager that does not read them must not stop us: signs of life that do
not go out are dropped, a change of state waits until it does. Without a manager everything here does nothing.
"""

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
# A message of 4096 bytes or more is ignored by systemd as a whole.
_MAX_STATUS_LENGTH = 500
# A busy node's status changes with every run; each change is work for the manager.
_STATUS_SECONDS = 1.0
_AGAIN_SECONDS = 0.1


class ServiceManager:
    """What we tell it; `address` is NOTIFY_SOCKET, `watchdog_seconds` how long it waits for a sign of life."""

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        self._watchdog_seconds = watchdog_seconds if address else None
        self._status = ""
        self._is_ready = False
        self._is_stopping = False
        self._is_reloading = False
        self._unsaid: list[str] = []  # changes of state, in their order
        self._tell_at = self._sign_at = self._status_at = 0.0
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
        if is_ready and not self._is_ready:
            self._is_ready = True
            self._unsaid.append("READY=1")
        if is_stopping and not self._is_stopping:
            self._is_stopping = True
            self._unsaid.append("STOPPING=1")
        self._say()
        now = boottime()
        if now >= self._sign_at:
            self._sign_at = now + min(_MORE_SECONDS / 3, (self._watchdog_seconds or _MORE_SECONDS) / 3)
            needs_time = is_stopping or not self._is_ready
            self._send("WATCHDOG=1" + f"\nEXTEND_TIMEOUT_USEC={int(_MORE_SECONDS * 1e6)}" * needs_time)
        status = status[:_MAX_STATUS_LENGTH]
        if status != self._status and now >= self._status_at:
            self._status_at = now + _STATUS_SECONDS
            if self._send(f"STATUS={status}"):
                self._status = status
        self._tell_at = min(
            self._sign_at,
            self._status_at if status != self._status else float("inf"),
            now + _AGAIN_SECONDS if self._unsaid else float("inf"),
        )

    def begin_reload(self) -> None:
        """Always followed by `end_reload`, whether it was good or bad; nothing is told before we are ready."""
        if self._is_ready and not self._is_reloading:
            self._is_reloading = True
            self._unsaid.append(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            self._say()

    def end_reload(self) -> None:
        if self._is_reloading:
            self._is_reloading = False
            self._unsaid.append("READY=1")
            self._say()

    def _say(self) -> None:
        while self._unsaid and self._send(self._unsaid[0]):
            del self._unsaid[0]

    def _send(self, message: str) -> bool:
        """False when it is to be tried again; nobody there to hear it is not."""
        if not self._socket:
            return True
        try:
            self._socket.sendto(message.encode("utf-8", "backslashreplace"), self._address)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True
