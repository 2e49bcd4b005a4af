"""Logging of every process: one line an event on stderr, through structlog over the standard library.

Events are constant lower-case phrases, data are keywords. Control characters are escaped by both renderers, so a
job's name cannot forge a line.
"""

import logging
import re
import sys
from collections.abc import MutableMapping
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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
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
