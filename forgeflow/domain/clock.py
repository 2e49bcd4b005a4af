"""Another machine's wall clock, watched with our own clock that is never set."""

from dataclasses import dataclass


@dataclass(slots=True)
class ClockWatch:
    """Notices that the watched clock was set, by more than `tolerance` seconds between two readings.

    A reading lies somewhere between our question and its answer, so a slow answer is no step.
    """

    tolerance: float
    _low: float = float("-inf")
    _high: float = float("inf")
    _has_read: bool = False

    def read(self, seconds: float, *, asked_at: float, heard_at: float) -> float | None:
        """By how many seconds the clock was set since the last reading, at least; 0.0 for not; None at the first."""
        low, high = seconds - heard_at, seconds - asked_at
        step = max(0.0, low - self._high) + min(0.0, high - self._low)
        is_first, self._has_read = not self._has_read, True
        self._low, self._high = low, high
        if is_first:
            return None
        return step if abs(step) > self.tolerance else 0.0
