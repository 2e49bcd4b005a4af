"""Which runs have lines of their own in the log, and one line for the others.

Two lines for each of thousands of runs a second would cost more than the runs do.
"""

import logging

import structlog

from forgeflow.process.clock import boottime

log = structlog.get_logger()

_EVERY_SECONDS = 1.0
_MAX_TOLD = 10


class Tally:
    """The first ten runs that begin in a second are told one by one; the others are counted."""

    def __init__(self) -> None:
        self._since = boottime()
        self._told = 0
        self._counted = 0
        self.is_told = False  # of the run that began last: so its end will be, too

    def admits(self) -> bool:
        """Whether the run that begins now has lines of its own; always when the log has each step."""
        if boottime() - self._since >= _EVERY_SECONDS:
            self.tell()
            self._since, self._told = boottime(), 0
        self._told += 1
        self.is_told = self._told <= _MAX_TOLD or logging.getLogger().isEnabledFor(logging.DEBUG)
        return self.is_told

    def count(self) -> None:
        """A run that was not told, and whose end was not either."""
        self._counted += 1

    def tell(self) -> None:
        """Of the counted ones; called once a second while there are any, and when there is nothing more to do."""
        if self._counted:
            log.info("short runs succeeded", runs=self._counted)
        self._counted = 0
