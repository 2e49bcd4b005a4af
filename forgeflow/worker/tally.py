"""The log of runs that are so short that a line for each would cost more than they do."""

import structlog

from forgeflow.process.clock import boottime

log = structlog.get_logger()

_EVERY_SECONDS = 1.0


class Tally:
    """Counts runs, and tells of them in one line a second at most."""

    def __init__(self) -> None:
        self._runs = 0
        self._seconds = 0.0
        self._since = boottime()

    def note(self, runs: int, seconds: float) -> None:
        """So many have ended, and took so long together."""
        self._runs += runs
        self._seconds += seconds
        if boottime() - self._since >= _EVERY_SECONDS:
            self.tell()

    def tell(self) -> None:
        """Of what was not told yet."""
        if self._runs:
            log.info("short runs ended", runs=self._runs, duration_seconds=round(self._seconds, 3))
        self._runs, self._seconds, self._since = 0, 0.0, boottime()
