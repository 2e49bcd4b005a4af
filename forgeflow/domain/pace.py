"""How many runs a worker may hold at once, so that none waits for long behind another.

All times are seconds. Source: design of batches, README "What a worker holds".
"""

# A result is out, and a run that waits behind a long one handed back, so long after its batch began.
WINDOW_SECONDS = 0.05
# Between two runs a batch is over sooner, so that only a run longer than the rest of the window is met by its end.
BATCH_SECONDS = 0.04


class Pace:
    """The recent mean duration of a worker's runs, and how many of them fit into one batch."""

    def __init__(self) -> None:
        self._mean_seconds: float | None = None

    def note(self, seconds: float, runs: int) -> None:
        """`runs` took so long together; what is recent counts for half, and none says nothing."""
        if not runs:
            return
        latest = seconds / runs
        self._mean_seconds = latest if self._mean_seconds is None else (self._mean_seconds + latest) / 2

    @property
    def is_quick(self) -> bool:
        """Whether more than one fits into a batch."""
        return self._mean_seconds is not None and 2 * self._mean_seconds <= BATCH_SECONDS

    def size(self, at_most: int) -> int:
        """How many runs to ask for next, 1 to `at_most`: one while nothing is known, and of anything slow."""
        if self._mean_seconds is None:
            return 1
        if self._mean_seconds * at_most <= BATCH_SECONDS:
            return at_most
        return max(1, int(BATCH_SECONDS / self._mean_seconds))
