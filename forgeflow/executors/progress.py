"""What a command says of how far it has come: lines such as `42% half of the invoices`."""

import re

_LINE = re.compile(rb"\s*(?:([0-9]{1,3})(?:\.[0-9]*)?\s*%)?\s*(.*?)\s*", re.DOTALL)
_MAX_LINE_BYTES = 1024
# Of what comes at once only the end counts: what was overtaken in the meantime was never to be seen.
_MAX_LINES = 16


class ProgressReader:
    """Takes bytes as they come; what it keeps is bounded, whatever they are."""

    def __init__(self) -> None:
        self._rest = b""
        self.percent: int | None = None
        self.note = ""

    def feed(self, data: bytes) -> bool:
        """Whether something was said: a whole line that is not blank.  One without a percentage leaves it as it was."""
        *lines, rest = (self._rest + data[-_MAX_LINES * _MAX_LINE_BYTES :]).split(b"\n")
        self._rest = rest[:_MAX_LINE_BYTES]
        said = [match.groups() for line in lines[-_MAX_LINES:] if (match := _LINE.fullmatch(line[:_MAX_LINE_BYTES]))]
        said = [(percent, note) for percent, note in said if percent or note]
        for percent, note in said:
            self.percent = int(percent) if percent else self.percent
            self.note = note.decode("utf-8", "replace")
        return bool(said)
