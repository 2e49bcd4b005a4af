"""Durations as users write them. The lowest floor: imports nothing of ForgeFlow."""

import re
from datetime import timedelta

import durationpy

MAX_SECONDS = 366 * 86400.0

_DURATION = re.compile(r"([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h|d|w))+")


def in_seconds(text: str) -> float:
    """`30s`, `1m30s`, `250ms` in seconds; bare numbers are refused, for nobody knows the unit.  Raises ValueError."""
    if not _DURATION.fullmatch(text):
        raise ValueError("expected a duration such as 30s, 5m or 1h30m")
    try:
        return float(durationpy.from_str(text).total_seconds())
    except (durationpy.DurationError, OverflowError):
        return float("inf")


def read_duration(value: object) -> float:
    """A timedelta, a text such as `1h30m` or a number of seconds, in seconds, 0 to 366 days.  Raises ValueError."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str):
        seconds = in_seconds(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) if abs(value) <= MAX_SECONDS else float("inf")
    else:
        raise ValueError("expected a timedelta, a text such as 30s, 5m or 1h30m, or a number of seconds")
    if not 0 <= seconds <= MAX_SECONDS:
        raise ValueError("expected a duration of 0 to 366 days")
    return seconds
