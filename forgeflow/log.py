"""Logging of every process: one line an event on stderr, through structlog over the standard library.

Events are constant lower-case phrases, data are keywords. Control characters are escaped by both renderers, so a
job's name cannot forge a line.
"""

import logging
import os
import re
import select
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog

from forgeflow.config import Log

_PLAIN = re.compile(r"[\w./:@%+,-]+", re.ASCII)


def _word(value: object) -> str:
    """A value that a person can read and no terminal obeys: bare when it is plain, else quoted and escaped."""
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if _PLAIN.fullmatch(text) else repr(text)


def _escaped(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]


def render_line(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    """`2026-05-01T12:00:00.123456Z info run finished run_id=81 status=succeeded`, a traceback indented below."""
    head = [str(event.pop(name, "")) for name in ("timestamp", "level")]
    name, trace = str(event.pop("event", "")), str(event.pop("exception", ""))
    line = " ".join([*head, _escaped(name), *(f"{key}={_word(value)}" for key, value in event.items())])
    return "\n".join([line, *(f"    {_escaped(below)}" for below in trace.split("\n") if trace)])


def _head_first(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    head = {name: event.pop(name) for name in ("timestamp", "level", "event") if name in event}
    return {**head, **event}


def _renderers(style: str) -> list[Any]:
    if style == "console" or (style == "auto" and sys.stderr.isatty()):
        return [render_line]
    return [_head_first, structlog.processors.JSONRenderer()]


# What is done with each line before it goes out; nothing but while a run has secrets.
_hide: Callable[[str], str] = str


@contextmanager
def hidden_in_log(hide: Callable[[str], str]) -> Iterator[None]:
    """Every line that this process logs meanwhile goes through `hide`."""
    global _hide
    _hide = hide
    try:
        yield
    finally:
        _hide = str


class PatientHandler(logging.Handler):
    """Writes whole lines to stderr and never waits: a reader that is stuck must not stop a master from fencing.

    A pipe that poll calls writable takes 4096 bytes without blocking (PIPE_BUF), so longer lines go in parts. What
    does not go out is counted, and the count is told when the reader takes lines again.
    """

    _PART_BYTES = 4096

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        line = _hide(self.format(record)) + "\n"
        if self._dropped and self._write(f"forgeflow: {self._dropped} log lines dropped, nobody read them\n"):
            self._dropped = 0
        if not self._write(line):
            self._dropped += 1

    def _write(self, text: str) -> bool:
        """Whether all of it went out."""
        data = text.encode("utf-8", "backslashreplace")
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        try:
            for start in range(0, len(data), self._PART_BYTES):
                ready = poll.poll(0)
                if not ready or not ready[0][1] & select.POLLOUT:
                    return False
                os.write(self._descriptor, data[start : start + self._PART_BYTES])
        except OSError:  # closed, or its reader is gone
            return False
        return True


def set_up_logging(settings: Log) -> None:
    """Send everything, the records of libraries too, to stderr in the configured form.  Call it once per process."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            *_renderers(settings.format),
        ],
    )
    handler = PatientHandler(sys.stderr.fileno())
    handler.setFormatter(formatter)
    # What psycopg warns of while a connection breaks, our own errors say once.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
