"""The functions that the bench's runs call: nothing, and saying when they were called."""

import time
from pathlib import Path

import forgeflow


@forgeflow.job(name="noop")
def noop() -> None:
    """Return at once."""


@forgeflow.job(name="stamp")
def stamp(path: str) -> None:
    """Write the time of the call, in nanoseconds since 1970, into that pipe."""
    now = time.time_ns()
    Path(path).write_text(f"{now}\n")
