"""The clock for durations and deadlines inside one machine."""

import time


def boottime() -> float:
    """Seconds on CLOCK_BOOTTIME: the same in all processes of a machine, goes on through suspend, never set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
