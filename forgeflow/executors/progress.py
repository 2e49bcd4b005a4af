"""What a command says of how far it has come: lines such as `42% half of the invoices`."""

import re

_LINE = re.compile(rb"\s*(?:([0-9]{1,3})(?:\.[0-9]*)?\s*%)?\s*(.*?)\s*", re.DOTALL)
_MAX_LINE_BYTES = 1024
# Of what comes at once only the end counts: what was overtaken in the meantime was never to be seen.
_MAX_LINES = 16


class ProgressReader:
    """Takes bytes as they come; what it keeps is bounded, whatever they are.

    A line that is too long is dropped, not cut: a part of a secret would not be known for one.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._is_dropping = False  # up to the next line end
        self.percent: int | None = None
        self.note = ""

    def feed(self, data: bytes) -> bool:
        """Whether something was said: a whole line that is not blank.  One without a percentage leaves it as it was."""
        newest = data[-_MAX_LINES * _MAX_LINE_BYTES :]
        if len(newest) < len(data):
            self._rest, self._is_dropping = b"", True
        *lines, rest = (self._rest + newest).split(b"\n")
        if lines and self._is_dropping:
            del lines[0]
            self._is_dropping = False
        self._is_dropping = self._is_dropping or len(rest) > _MAX_LINE_BYTES
        self._rest = b"" if self._is_dropping else rest
        whole = [line for line in lines[-_MAX_LINES:] if len(line) <= _MAX_LINE_BYTES]
        said = [match.groups() for line in whole if (match := _LINE.fullmatch(line))]
        said = [(percent, note) for percent, note in said if percent or note]
        for percent, note in said:
            self.percent = int(percent) if percent else self.percent
            self.note = note.decode("utf-8", "replace")
        return bool(said)
