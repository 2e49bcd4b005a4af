"""When a worker has served long enough: limits of age, runs and memory, each optional."""

import os
from pathlib import Path

from forgeflow.master.children import Child

# What a child's limits are multiplied by, drawn once, so that workers that were forked together do not end together.
WEAR_FACTORS = (0.9, 1.1)

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def worn_out(child: Child, now: float) -> str | None:
    """Which limit of `worker.recycle_*` this worker has reached, in words; None when it may go on."""
    limits, factor = child.generation.config.worker, child.wear_factor
    if limits.recycle_age is not None and (age := now - child.forked_at) >= limits.recycle_age * factor:
        return f"it is {age:.0f} s old"
    if limits.recycle_runs is not None and child.runs >= limits.recycle_runs * factor:
        return f"it has begun {child.runs} runs"
    if limits.recycle_memory is not None and (size := resident_bytes(child.pid)) >= limits.recycle_memory * factor:
        return f"it takes {size // 1024**2} MiB"
    return None


def resident_bytes(pid: int) -> int:
    """Memory of one process, pages that it shares included; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
