"""Logging of every process: one line an event on stderr, through structlog over the standard library.

Events are constant lower-case phrases, data are keywords. Control characters in data are escaped by both
renderers, so a job's name cannot forge a line.
"""

import logging
import sys
from typing import Any

import structlog

from forgeflow.config import Log


def _renderer(style: str) -> Any:
    if style == "console" or (style == "auto" and sys.stderr.isatty()):
        return structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"], drop_missing=True)
    return structlog.processors.JSONRenderer()


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
            _renderer(settings.format),
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
