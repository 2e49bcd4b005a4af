"""What is kept of a run's output, what is shown of it meanwhile, and how its bytes become text that can be stored."""

import codecs
import threading
from dataclasses import dataclass

from forgeflow.domain.run import Output
from forgeflow.executors.secrets import Mask

# The most that is shown at once of a run that goes on; of more, the newest.
PIECE_BYTES = 64 * 1024
_MAX_NOTE_LENGTH = 200
_NOTHING_HIDDEN = Mask({})


@dataclass(frozen=True, slots=True)
class Piece:
    """What was printed since the piece before, as clean text; `first` is its place in all that was printed.

    Places count characters, and the bytes of what no piece has.
    """

    first: int
    text: str


class OutputKeeper:
    """Keeps the first and the last half of `limit` bytes, counts the rest; memory stays within twice the limit.

    The thread that executes feeds it, another may take pieces meanwhile. What is to be hidden is so in all that
    comes out. It is looked for then: to look at every byte that is fed would cost more than to keep it.
    """

    __slots__ = ("_half", "_head", "_mask", "_place", "_shown_bytes", "_tail", "progress", "total_bytes")

    _lock = threading.Lock()  # one for all: a worker has one at a time, and makes one for each run

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._mask = _NOTHING_HIDDEN
        self._shown_bytes = self._place = 0
        self.total_bytes = 0
        self.progress: tuple[int | None, str] | None = None  # what was noted last

    def hide(self, mask: Mask) -> None:
        """From the beginning on: before anything is fed."""
        self._mask = mask

    def feed(self, data: bytes) -> None:
        with self._lock:
            self.total_bytes += len(data)
            # What is to be hidden may lie across the end of a half, so the mask is shown more.
            size = self._half + self._mask.reach
            room = size - len(self._head)
            if room > 0:
                self._head += data[:room]
                data = data[room:]
            if data:
                self._tail += data[-size:]
                if len(self._tail) > 2 * size:
                    del self._tail[:-size]

    def cut(self) -> None:
        """Nothing follows, though more was said: the beginning of what is to be hidden must not stay at the end."""
        with self._lock:
            size = self._mask.held_back(self._newest(self._mask.reach))
            self.total_bytes -= size
            rest = size - len(self._tail)
            del self._tail[max(0, len(self._tail) - size) :]
            if rest > 0:
                del self._head[len(self._head) - rest :]

    def note_progress(self, percent: int | None, note: str) -> None:
        """How far the run has come, in percent, and in words."""
        text = self.hidden(clean_text(note.encode("utf-8", "backslashreplace")))
        percent = None if percent is None else min(100, max(0, percent))
        self.progress = (percent, text[:_MAX_NOTE_LENGTH])

    def hidden(self, text: str) -> str:
        """The text without what is to be hidden; for what is said of the run beside its output."""
        return self._mask.hide_text(text)

    def output(self) -> Output:
        """What is to be stored: all of it when that is within the limit as text, else a half at each end."""
        if not self.total_bytes:
            return Output()
        half = self._half
        with self._lock:
            if self._is_whole():
                # Cut nowhere, so decode as one: a character may lie across the seam.
                text = clean_text(self._mask.hide(bytes(self._head + self._tail)))
                if _fits(text, 2 * half):
                    return Output(text, "", self.total_bytes)
                return Output(_first_bytes(text, half), _last_bytes(text, half), self.total_bytes)
            head = self._mask.hide(bytes(self._head), 0, half)
            tail = self._mask.hide(bytes(self._tail), len(self._tail) - half)
        # What is no text takes more room as text: so it is cut once more.
        first, last = clean_text(head, cut_after=True), clean_text(tail, cut_before=True)
        return Output(_first_bytes(first, half), _last_bytes(last, half), self.total_bytes)

    def _is_whole(self) -> bool:
        return self.total_bytes == len(self._head) + len(self._tail)

    def take_piece(self, *, is_last: bool = False) -> Piece | None:
        """What has been printed since the last one; None when that is nothing.

        The beginning of a character, or of what is to be hidden, waits for the rest unless `is_last`.
        """
        with self._lock:
            at = self.total_bytes
            size = min(at - self._shown_bytes, PIECE_BYTES, self._half)
            if not size:
                return None
            known = self._newest(size + self._mask.reach)
        left_out = at - size - self._shown_bytes
        start, end = len(known) - size, len(known)
        if left_out:
            halved = _within_character(known[start : start + 4])
            start, left_out = start + halved, left_out + halved
        if not is_last:
            end = max(start, end - self._mask.held_back(known))
            end -= _unfinished(known[max(start, end - 4) : end])
        text = clean_text(self._mask.hide(known, start, end))
        if not text:
            return None
        first = self._place + left_out
        self._shown_bytes, self._place = at - (len(known) - end), first + len(text)
        return Piece(first, text)

    def _newest(self, size: int) -> bytes:
        """The last bytes, as many as that or as there are."""
        if (rest := size - len(self._tail)) > 0 and self._is_whole():
            return bytes(self._head[-rest:] + self._tail)
        return bytes(self._tail[-size:])


def clean_text(data: bytes, *, cut_before: bool = False, cut_after: bool = False) -> str:
    """Bytes as text that PostgreSQL takes: U+FFFD for NUL and for what is not UTF-8.

    A character that our own cut has halved is dropped instead of shown as broken.
    """
    if cut_before:
        data = data[_within_character(data[:4]) :]
    text = codecs.utf_8_decode(data, "replace", not cut_after)[0]
    return text.replace("\0", "\ufffd")


def _within_character(start: bytes) -> int:
    """How many bytes belong to a character that has begun before; 0 when that is none's length."""
    return next((i for i, byte in enumerate(start) if byte & 0xC0 != 0x80), 0)


def _unfinished(end: bytes) -> int:
    """How many of the last four bytes are the beginning of a character."""
    return len(end) - codecs.utf_8_decode(end, "replace", False)[1]


def _fits(text: str, size: int) -> bool:
    return 4 * len(text) <= size or len(text.encode()) <= size


def _first_bytes(text: str, size: int) -> str:
    return text if _fits(text, size) else text.encode()[:size].decode("utf-8", "ignore")


def _last_bytes(text: str, size: int) -> str:
    return text if _fits(text, size) else text.encode()[-size:].decode("utf-8", "ignore")
