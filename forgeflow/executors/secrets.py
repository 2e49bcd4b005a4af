"""Secrets: `secret:NAME` in a payload, read from a file right before the run, and hidden in all that it says.

The stored payload keeps the reference. The value goes to the job and nowhere else: what the job prints, its error, its
progress and the lines that it logs through this process have `***` in its place.
"""

import base64
import contextlib
import errno
import json
import os
import re
import stat
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TextIO, cast
from urllib.parse import quote, quote_plus

from forgeflow.errors import ForgeError
from forgeflow.log import hidden_in_log
from forgeflow.store.runs import ClaimedRun

# A whole word: what stands before it is no part of a word, and the name goes on for as long as it can.
REFERENCE = re.compile(r"(?<![A-Za-z0-9_.-])secret:([A-Za-z0-9_.-]{1,64})(?![A-Za-z0-9_.-])")

# Where a payload may refer to secrets, for each executor. Elsewhere it would be seen: `ps` shows commands, logs URLs.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "shell": ("env", "stdin"),
    "http": ("headers", "body"),
    "python": ("args",),
}
_MAX_BYTES = 64 * 1024
# Each is looked for in all that a run prints.
_MAX_LINES = 1000
# What is encoded is broken into lines of 76 (MIME) or 64 characters (PEM).
_SHORTEST_LINE = 60
_LINE_END = re.compile(rb"[\r\n]")
MASK = b"***"

# Shorter values would make any text unreadable, and hide nothing: they are guessed.
LEAST_HIDDEN = 4
# From here on other spellings of a value are hidden as well, and each line of one that has several.
LEAST_SPELLED = 6


class SecretRefused(ForgeError):
    """A secret that a run refers to is not to be had; the sentence names it, and says why."""


def references(run: ClaimedRun) -> Sequence[str]:
    """The names of the secrets that the run refers to, each once."""
    for name in _FIELDS.get(run.executor, ()):
        if (value := run.payload.get(name)) and _may_refer(value):
            fields = [run.payload.get(each) for each in _FIELDS[run.executor]]
            return list(dict.fromkeys(name for text in _strings(fields) for name in REFERENCE.findall(text)))
    return ()


def _may_refer(value: Any) -> bool:
    """A quick look, for nearly every run has none: a walk through all of it would be felt by short ones."""
    for each in value.values() if type(value) is dict else (value,):
        kind = type(each)
        if (kind is str and "secret:" in each) or (kind in (dict, list) and "secret:" in repr(each)):
            return True
    return False


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


def resolve(run: ClaimedRun, secrets: Mapping[str, str]) -> ClaimedRun:
    """The run with the values in their places; the names of variables, headers and arguments stay as they are."""
    payload = dict(run.payload)
    for name in _FIELDS[run.executor]:
        if name in payload:
            payload[name] = _resolved(payload[name], secrets)
    return replace(run, payload=payload)


def _resolved(value: Any, secrets: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return REFERENCE.sub(lambda found: secrets[found[1]], value)
    if isinstance(value, dict):
        return {key: _resolved(each, secrets) for key, each in value.items()}
    if isinstance(value, list):
        return [_resolved(each, secrets) for each in value]
    return value


def read_secrets(names: Sequence[str], folder: str) -> dict[str, str]:
    """Their values by name, from the unit's credentials, else from `folder`; read anew for each run.

    Raises SecretRefused.
    """
    return {name: _read_secret(name, folder) for name in names}


def _read_secret(name: str, folder: str) -> str:
    places = [(os.environ.get("CREDENTIALS_DIRECTORY", ""), True), (folder, False)]
    for place, is_credential in places:
        if place:
            with contextlib.suppress(FileNotFoundError):
                return _read_file(name, os.path.join(place, name), is_credential=is_credential)  # noqa: PTH118
    raise SecretRefused(
        f"secret {name} is missing; expected a file of that name in executor.secrets.folder "
        "or among the credentials of the unit"
    )


def _read_file(name: str, path: str, *, is_credential: bool) -> str:
    try:
        # A link, or a pipe that nobody writes to, is not followed and not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(descriptor)
            if reason := _unfit(facts, is_credential=is_credential):
                raise SecretRefused(f"secret {name} is refused: {reason}")
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise SecretRefused(f"secret {name} cannot be read: {why}") from None
    return _as_text(name, data)


def _unfit(facts: os.stat_result, *, is_credential: bool) -> str:
    """Why such a file is not trusted; empty when it is."""
    # systemd may let the service read its credentials by an access list, which shows as rights of the group.
    forbidden = stat.S_IWGRP | stat.S_IRWXO if is_credential else stat.S_IRWXG | stat.S_IRWXO
    if not stat.S_ISREG(facts.st_mode):
        return "it is not a regular file"
    if facts.st_uid not in (0, os.geteuid()):
        return "its file belongs to somebody else than the node's user or root"
    if facts.st_mode & forbidden:
        return "its file is accessible by group or others; expected mode 0600 or 0400"
    return ""


def _as_text(name: str, data: bytes) -> str:
    if len(data) > _MAX_BYTES:
        raise SecretRefused(f"secret {name} is refused: it is longer than {_MAX_BYTES} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise SecretRefused(f"secret {name} is refused: it is not UTF-8 text") from None
    if "\0" in text:
        raise SecretRefused(f"secret {name} is refused: it has a NUL")
    text = text.removesuffix("\n")
    if text.count("\n") >= _MAX_LINES:
        raise SecretRefused(f"secret {name} is refused: it has more than {_MAX_LINES} lines")
    if not text:
        raise SecretRefused(f"secret {name} is refused: it is empty")
    return text


class Mask:
    """What is hidden in the output of one run, and how it is found in bytes that come in pieces.

    A byte is hidden when it belongs to any occurrence of any spelling. So it makes no difference where a text is
    looked at, as long as `reach` bytes on both sides of it are.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        found = {each for value in secrets.values() for each in _spellings(value)}
        self._spellings = sorted(found, key=lambda each: (-len(each), each))
        self._encoded = {each for value in secrets.values() for each in _encodings(value)}
        longest = max(map(len, self._spellings), default=0)
        self.reach = longest and longest - 1 + 2 * (longest // _SHORTEST_LINE + 1)

    def hide(self, data: bytes, start: int = 0, end: int | None = None) -> bytes:
        """`data` from `start` to `end`, with *** for what is hidden; what lies outside of that is looked at."""
        end = len(data) if end is None else end
        if not self._spellings:
            return data[start:end]
        parts, at = [], start
        for first, last in self._hidden(data):
            if last > at and first < end:
                parts += [data[at : max(at, first)], MASK]
                at = min(last, end)
        return b"".join([*parts, data[at:end]])

    def _hidden(self, data: bytes) -> list[tuple[int, int]]:
        """The stretches of `data` that are hidden, in order, none touching another."""
        found = [stretch for spelling in self._spellings for stretch in _occurrences(data, spelling)]
        if self._encoded and _LINE_END.search(data):
            unbroken = _Unbroken(data)
            for spelling in self._encoded:
                for first, last in _occurrences(unbroken.data, spelling):
                    found.append((unbroken.place(first), unbroken.place(last - 1) + 1))
        found.sort()
        joined: list[tuple[int, int]] = []
        for first, last in found:
            if joined and first <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        return joined

    def held_back(self, data: bytes) -> int:
        """How many of the last bytes may be the beginning of something to hide."""
        begun = max((_begun(data, spelling) for spelling in self._spellings), default=0)
        if self._encoded and _LINE_END.search(data, max(0, len(data) - self.reach)):
            unbroken = _Unbroken(data)
            size = max(_begun(unbroken.data, spelling) for spelling in self._encoded)
            begun = max(begun, len(data) - unbroken.place(len(unbroken.data) - size)) if size else begun
        return begun

    def hide_text(self, text: str) -> str:
        return self.hide(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


def _occurrences(data: bytes, spelling: bytes) -> Iterator[tuple[int, int]]:
    """In order; those that overlap, one after the other by the same step, as one: each search anew costs too much."""
    at = data.find(spelling)
    while at >= 0:
        first, following = at, data.find(spelling, at + 1)
        step = following - at
        if not 0 < step < len(spelling):
            yield first, first + len(spelling)
            at = following
            continue
        while data.startswith(spelling, following + step):
            following += step
        yield first, following + len(spelling)
        at = data.find(spelling, following + 1)


class _Unbroken:
    """Bytes without their line ends, and where each of them stood: programs break what they encode into lines."""

    def __init__(self, data: bytes) -> None:
        self.data = data.translate(None, b"\r\n")
        self._places = [found.start() - number for number, found in enumerate(_LINE_END.finditer(data))]

    def place(self, at: int) -> int:
        return at + bisect_right(self._places, at)


def _begun(data: bytes, spelling: bytes) -> int:
    end = data[-(len(spelling) - 1) :]
    at = end.find(spelling[:1])
    while at >= 0 and not spelling.startswith(end[at:]):
        at = end.find(spelling[:1], at + 1)
    return len(end) - at if at >= 0 else 0


def _spellings(value: str) -> set[bytes]:
    """The value, as it may stand in what a job prints; also without the blanks around it, which shells drop."""
    plain = value.encode()
    if len(plain) < LEAST_HIDDEN:
        return set()
    if len(plain) < LEAST_SPELLED:
        return {plain}
    lines = {text for line in value.splitlines() for text in (line, line.strip())}
    short = {each.encode() for each in {value.strip(), *lines} if len(each.encode()) >= LEAST_SPELLED}
    escaped = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    quoted = {quote(value), quote(value, safe=""), quote_plus(value)}
    lower = {re.sub("%..", lambda code: code[0].lower(), each) for each in quoted}
    return {plain} | short | {each.encode() for each in escaped | quoted | lower} | _encodings(value)


def _encodings(value: str) -> set[bytes]:
    texts = {each.encode() for each in (value, value.strip())}
    return {each for text in texts if len(text) >= LEAST_SPELLED for each in _encoded(text)}


def _encoded(plain: bytes) -> Iterator[bytes]:
    """As base64, alone or inside of something longer (user:password): then its first characters have a part of it."""
    for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
        yield alphabet(plain)
        yield alphabet(plain).rstrip(b"=")
        for before in range(3):
            whole = alphabet(b"\0" * before + plain)
            # Of the first and the last character some bits are those of their neighbours.
            first, last = (before * 8 + 5) // 6, (before + len(plain)) * 8 // 6
            yield whole[first:last]


@contextlib.contextmanager
def hidden_in_this_process(mask: Mask) -> Iterator[None]:
    """What code in this process prints by sys.stdout and sys.stderr, or logs, has the values hidden meanwhile."""
    out, err = _HidingStream(sys.stdout, mask), _HidingStream(sys.stderr, mask)
    with (
        hidden_in_log(mask.hide_text),
        contextlib.redirect_stdout(cast("TextIO", out)),
        contextlib.redirect_stderr(cast("TextIO", err)),
    ):
        try:
            yield
        finally:
            out.finish()
            err.finish()


class _HidingStream:
    """Stands for a text stream; holds back what may be the beginning of a value until more comes, or the end."""

    def __init__(self, stream: TextIO, mask: Mask) -> None:
        self._stream = stream
        self._mask = mask
        self._said = b""  # as much of it as the mask may look back at
        self._held = b""

    def write(self, text: str) -> int:
        self._held += text.encode("utf-8", "surrogatepass")
        self._say(len(self._held) - self._mask.held_back(self._held))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def finish(self) -> None:
        self._say(len(self._held))
        self._stream.flush()

    def _say(self, size: int) -> None:
        """The first so many of the held bytes."""
        known, before = self._said + self._held, len(self._said)
        self._stream.write(self._mask.hide(known, before, before + size).decode("utf-8", "replace"))
        self._said = known[max(0, before + size - self._mask.reach) : before + size]
        self._held = self._held[size:]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
