"""Waiting for conditions, never for time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], *, timeout_seconds: float = 20.0, why: str = "") -> T:
    """The first true value of `condition`, asked again every 20 ms; AssertionError when there is none in time."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_seconds:g} s: {why or condition}; last value {value!r}")
        time.sleep(0.02)
