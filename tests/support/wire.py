"""A wire to the database that can be cut: a proxy between a node and the server's Unix socket."""

import contextlib
import select
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Mode(Enum):
    PASS = "pass"
    HOLE = "black hole"  # nothing arrives, not even that a side closes
    DEAF = "answers are lost"  # what the client says arrives, what the server says does not
    LATE = "answers are late"  # what the client says arrives at once, what the server says is held back for a while


_RELEASE_SECONDS = 0.01


class Wire:
    """`url` is the database behind the wire; use as a context manager."""

    def __init__(self, url: str) -> None:
        facts = conninfo_to_dict(url)
        self._target = f"{facts['host']}/.s.PGSQL.{facts['port']}"
        self._folder = Path(tempfile.mkdtemp(prefix="forgeflow-wire-"))
        self.url = make_conninfo(url, host=str(self._folder))
        self._mode = Mode.PASS
        self._late_seconds = 0.0
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self._folder}/.s.PGSQL.{facts['port']}")
        self._listener.listen(64)
        self._is_closed = False
        self.answers = 0  # how often the server has said that it is ready for more: one for each round trip

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        self._listener.close()
        self.set_mode(Mode.PASS)
        self.cut()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._open) // 2

    def set_mode(self, mode: Mode) -> None:
        with self._changed:
            self._mode = mode
            self._changed.notify_all()

    def cut(self) -> None:
        """Close every connection that is open now."""
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def broken(self, mode: Mode) -> Iterator[None]:
        """In that mode for a while; afterwards the connections from before are closed, as after a real outage."""
        self.set_mode(mode)
        try:
            yield
        finally:
            self.cut()
            self.set_mode(Mode.PASS)

    @contextlib.contextmanager
    def late(self, seconds: float) -> Iterator[None]:
        """Every answer so late for a while; afterwards what is still held back arrives, and no connection is closed."""
        self._late_seconds = seconds
        self.set_mode(Mode.LATE)
        try:
            yield
        finally:
            self.set_mode(Mode.PASS)

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._target)
            except OSError:
                client.close()
                continue
            self._open |= {client, server}
            threading.Thread(target=self._pump, args=(client, server, Mode.HOLE), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, Mode.DEAF), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, stopped_by: Mode) -> None:
        """Pass on until one side closes; what comes in a mode that stops this direction is lost.

        The other side of a black hole learns of a close only when the hole is gone, as from a machine without a cable.
        """
        held: list[tuple[float, bytes]] = []
        said = bytearray()
        with contextlib.suppress(OSError):
            while True:
                if not held or select.select([source], [], [], _RELEASE_SECONDS)[0]:
                    if not (data := source.recv(65536)):
                        break
                    if self._mode is Mode.HOLE or self._mode is stopped_by:
                        continue
                    if stopped_by is Mode.DEAF:
                        said += data
                        self.answers += _take_answers(said)
                    delay = self._late_seconds if stopped_by is Mode.DEAF else 0.0
                    held.append((time.monotonic() + delay, data))
                while held and (self._mode is not Mode.LATE or time.monotonic() >= held[0][0]):
                    sink.sendall(held.pop(0)[1])
        with self._changed:
            self._changed.wait_for(lambda: self._mode is not Mode.HOLE)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open -= {source, sink}


def _take_answers(said: bytearray) -> int:
    """Take whole messages from the front of what the server has said; how many of them were ReadyForQuery."""
    found = 0
    while len(said) >= 5 and len(said) > (size := int.from_bytes(said[1:5])):
        found += said[:1] == b"Z"
        del said[: size + 1]
    return found
