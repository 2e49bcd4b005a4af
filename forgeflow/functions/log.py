"""What a function says of its work."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from forgeflow.errors import InvalidInput

Level = Literal["debug", "info", "warn", "error"]


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One thing that a function said; `data` are its own fields, whatever values they have."""

    level: Level
    message: str
    data: Mapping[str, Any]
    cron_name: str


class CronLog:
    """Gives each entry the name of its function and hands it on.

    Fields come as a mapping, `log.info("Sent", {"rows": 3})`, or as keywords, `log.info("Sent", rows=3)`; given both,
    the keywords win. Each method raises InvalidInput when the second argument is no mapping.
    """

    def __init__(self, cron_name: str, write: Callable[[LogEntry], None]) -> None:
        self._cron_name = cron_name
        self._write = write

    def debug(self, message: str, data: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        self._add("debug", message, data, fields)

    def info(self, message: str, data: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        self._add("info", message, data, fields)

    def warn(self, message: str, data: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        self._add("warn", message, data, fields)

    warning = warn

    def error(self, message: str, data: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        self._add("error", message, data, fields)

    def _add(self, level: Level, message: str, data: Mapping[str, Any] | None, fields: Mapping[str, Any]) -> None:
        given: object = {} if data is None else data
        if not isinstance(given, Mapping):
            raise InvalidInput(f'log.{level}: expected a mapping such as {{"rows": 3}}, or keywords, after the message')
        self._write(LogEntry(level, str(message), {**given, **fields}, self._cron_name))
