"""What is kept of a run's output, and how its bytes become text that can be stored."""

import codecs

from forgeflow.domain.run import Output


class OutputKeeper:
    """Keeps the first and the last half of `limit` bytes, counts the rest; memory stays within twice the limit."""

    __slots__ = ("_half", "_head", "_tail", "total_bytes")

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0

    def feed(self, data: bytes) -> None:
        self.total_bytes += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data[-self._half :]
            if len(self._tail) > 2 * self._half:
                del self._tail[: -self._half]

    def output(self) -> Output:
        if not self.total_bytes:
            return Output()
        tail = bytes(self._tail[-self._half :])
        joined = self.total_bytes <= len(self._head) + len(tail)
        if joined:
            # Cut nowhere, so decode as one: a character may lie across the seam.
            return Output(clean_text(bytes(self._head) + tail), "", self.total_bytes)
        return Output(
            clean_text(bytes(self._head), cut_after=True), clean_text(tail, cut_before=True), self.total_bytes
        )


def clean_text(data: bytes, *, cut_before: bool = False, cut_after: bool = False) -> str:
    """Bytes as text that PostgreSQL takes: U+FFFD for NUL and for what is not UTF-8.

    A character that our own cut has halved is dropped instead of shown as broken.
    """
    if cut_before:
        start = next((i for i, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
        data = data[start:]
    text = codecs.utf_8_decode(data, "replace", not cut_after)[0]
    return text.replace("\0", "\ufffd")
