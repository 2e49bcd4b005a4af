"""Who a node is: its public name, and the id that is new at each start of its master."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Node:
    """`worker_id` may come back after a restart, `boot_id` never does; only the latter is part of the fence."""

    boot_id: UUID
    worker_id: str
    hostname: str
    machine: str  # where process ids mean the same: this boot of this kernel, and the namespace of its processes
    pid: int
    roles: tuple[str, ...]
    concurrency: int
    version: str
