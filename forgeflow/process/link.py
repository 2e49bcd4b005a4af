"""A link between the master and one child: small JSON messages, each whole or not at all.

Sending never blocks. A message that does not fit (the peer is stopped, some 280 are waiting) is dropped, so nothing
may depend on one; whoever needs an answer asks again. Payloads of jobs never travel here.
"""

import json
import socket
from typing import Any, Self

Message = dict[str, Any]

_MAX_BYTES = 65536
_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode


class Link:
    """One end of the link."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self.is_closed = False

    @classmethod
    def pair(cls) -> tuple[Self, Self]:
        first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(first), cls(second)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, kind: str, **data: Any) -> bool:
        """Whether the message went out; one that is longer than what is read at once never does."""
        message = _encode({"kind": kind, **data}).encode()
        if len(message) > _MAX_BYTES:
            return False
        try:
            self._socket.send(message)
        except (BlockingIOError, BrokenPipeError, ConnectionError):
            return False
        return True

    def receive(self) -> list[Message]:
        """All messages that have come; sets `is_closed` when the other end is gone."""
        messages: list[Message] = []
        while not self.is_closed:
            try:
                raw = self._socket.recv(_MAX_BYTES)
            except BlockingIOError:
                break
            except ConnectionError:
                raw = b""
            if not raw:
                self.is_closed = True
                break
            messages.append(json.loads(raw))
        return messages

    def close(self) -> None:
        self._socket.close()
