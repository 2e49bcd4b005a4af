"""Connections that hear the worker's orders while they wait, and that reach only what they may.

httpcore2 asks its backend for streams. Ours wait for two things at once, the socket and the link to the master, so
no server, silent or slow, makes a worker deaf; and all waits of a call share the time that its run has.
"""

import errno
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import httpcore2

from forgeflow.executors.base import Orders
from forgeflow.executors.network import Guard
from forgeflow.process.clock import boottime
from forgeflow.store.runs import ClaimedRun

T = TypeVar("T")

# What getaddrinfo gives: family, type, protocol, name, address.
Found = tuple[int, int, int, str, Any]

_LONGEST_POLL_SECONDS = 3600.0


class Stopped(Exception):
    """The attempt shall end now; `reason` is that of `Orders.stop_reason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TimedOut(Exception):
    """One sentence: what took too long."""


class NotSent(Exception):
    """One sentence: why no byte of a request went out."""


class Watch:
    """What a call may wait for, and until when; one per attempt."""

    def __init__(self, run: ClaimedRun, orders: Orders) -> None:
        self._run = run
        self._orders = orders
        self._timeout_at = boottime() + run.timeout_seconds

    def look(self) -> None:
        """Raises Stopped or TimedOut when it is time for that; never blocks."""
        if reason := self._orders.stop_reason(self._run):
            raise Stopped(reason)
        if boottime() >= self._timeout_at:
            raise TimedOut(f"not over after {self._run.timeout_seconds:g} s, stopped")

    def wait(self, descriptor: int, events: int, deadline: float) -> bool:
        """Until the descriptor is ready; False when that is not by the deadline.  Raises as `look` does."""
        poll = select.poll()
        poll.register(descriptor, events)
        poll.register(self._orders.fileno(), select.POLLIN)
        while True:
            self.look()
            now = boottime()
            if now >= deadline:
                return False
            until = min(deadline, self._timeout_at, self._orders.fence_at(self._run))
            seconds = min(_LONGEST_POLL_SECONDS, max(0.0, until - now))
            if descriptor in dict(poll.poll(seconds * 1000 + 1)):
                return True


class Backend(httpcore2.NetworkBackend):
    """Looks up a host once, checks every address, and connects to one that was checked."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        # Of the call that is made now; connections outlive it.
        self.watch: Watch | None = None

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> "Stream":
        """Raises NotSent, TimedOut or Stopped."""
        assert timeout is not None
        assert self.watch is not None
        deadline = boottime() + timeout
        found = _look_up(host, port, self.watch, deadline)
        if found is None:
            raise TimedOut(f"{host} was not looked up within {timeout:g} s; no request was sent")
        for *_, address in found:
            # One address that is refused is enough: who mixes them tries to get past us.
            if word := self._guard.refused_by(address[0]):
                raise NotSent(f"{host} has an address that executor.http.deny_networks refuses: {word}")
        return Stream(self, _connect(host, found, self.watch, deadline), host)


class Stream(httpcore2.NetworkStream):
    """A socket that does not block, plain or with TLS."""

    def __init__(self, backend: Backend, sock: socket.socket, host: str) -> None:
        self._backend = backend
        self._socket = sock
        self._host = host

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            return self._patiently(partial(self._socket.recv, max_bytes), select.POLLIN, timeout, "was silent for")
        except OSError as error:
            raise httpcore2.ReadError from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        left = memoryview(buffer)
        try:
            while left:
                send = partial(self._socket.send, left)
                left = left[self._patiently(send, select.POLLOUT, timeout, "took nothing for") :]
        except OSError as error:
            # Not the end yet: httpcore2 looks whether the server has answered before it went.
            raise httpcore2.WriteError from error

    def close(self) -> None:
        self._socket.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> "Stream":
        """Raises NotSent, TimedOut or Stopped."""
        try:
            secured = ssl_context.wrap_socket(
                self._socket, server_hostname=server_hostname, do_handshake_on_connect=False
            )
            self._socket = secured
            self._patiently(secured.do_handshake, select.POLLIN, timeout, "did not agree on TLS within")
        except (OSError, ValueError) as error:
            self.close()
            raise NotSent(f"no TLS with {self._host}: {_tls_trouble(error)}") from error
        except BaseException:
            self.close()
            raise
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            poll = select.poll()
            poll.register(self._socket.fileno(), select.POLLIN)
            return bool(poll.poll(0))
        return None

    def _patiently(self, act: Callable[[], T], events: int, timeout: float | None, complaint: str) -> T:
        """What `act` gives when the socket lets it; `events` are those that a plain one waits for."""
        assert timeout is not None
        watch = self._backend.watch
        assert watch is not None
        deadline = boottime() + timeout
        watch.look()  # also when the socket is always ready: a server that never ends must not make us deaf
        while True:
            try:
                return act()
            except BlockingIOError:
                wanted = events
            except ssl.SSLWantReadError:
                wanted = select.POLLIN
            except ssl.SSLWantWriteError:
                wanted = select.POLLOUT
            if not watch.wait(self._socket.fileno(), wanted, deadline):
                raise TimedOut(f"{self._host} {complaint} {timeout:g} s, given up")


def _look_up(host: str, port: int, watch: Watch, deadline: float) -> Sequence[Found] | None:
    """All addresses of a host, or what its name says itself; None when they are not there in time.  Raises NotSent."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (socket.gaierror, UnicodeError):
        return _ask_resolver(host, port, watch, deadline)


def _ask_resolver(host: str, port: int, watch: Watch, deadline: float) -> Sequence[Found] | None:
    """In a thread, for the C library hears nobody while it waits; one that is given up ends by itself."""
    found: list[Found] = []
    troubles: list[Exception] = []
    ready, done = os.pipe()

    def ask() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:  # noqa: BLE001 - it is told in the other thread
            troubles.append(error)
        finally:
            os.close(done)

    try:
        threading.Thread(target=ask, name="look-up", daemon=True).start()
        if not watch.wait(ready, select.POLLIN, deadline):
            return None
    finally:
        os.close(ready)
    if troubles or not found:
        reason = troubles[0].strerror if troubles and isinstance(troubles[0], OSError) else "it is no host's name"
        raise NotSent(f"{host} could not be looked up: {reason}")
    return found


def _connect(host: str, found: Sequence[Found], watch: Watch, deadline: float) -> socket.socket:
    """To the first address that takes us; one that is silent leaves time for the others."""
    trouble = ""
    for number, (family, kind, protocol, _, address) in enumerate(found):
        share = (deadline - boottime()) / (len(found) - number)
        sock = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
        try:
            code = sock.connect_ex(address)
            if code == errno.EINPROGRESS:
                answered = watch.wait(sock.fileno(), select.POLLOUT, boottime() + share)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if answered else errno.ETIMEDOUT
            if code == 0:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return sock
        except BaseException:
            sock.close()
            raise
        sock.close()
        trouble = os.strerror(code)
    if boottime() >= deadline:
        raise TimedOut(f"no connection with {host} in the time of executor.http.connect_timeout; no request was sent")
    raise NotSent(f"no connection with {host}: {trouble}")


def _tls_trouble(error: Exception) -> str:
    """Without what the other side has sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return (error.reason or "the handshake failed").lower().replace("_", " ")
    return error.strerror or "the connection broke" if isinstance(error, OSError) else "its name fits no certificate"
