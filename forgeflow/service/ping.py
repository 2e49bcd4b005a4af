"""Whether a node lives: apart from the rest, for it is asked every few seconds by a process that has just started."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass

from forgeflow.config import Config
from forgeflow.store.nodes import NodeLease, node_leases
from forgeflow.store.probe import look


@dataclass(frozen=True, slots=True)
class Answer:
    """Who was asked for, and the leases that there are, the longest first."""

    asked: str
    leases: Sequence[NodeLease]

    @property
    def lives(self) -> bool:
        return any(lease.lease_seconds > 0 for lease in self.leases)


def ping(config: Config, name: str | None, *, within_seconds: float) -> Answer:
    """Ask for the node of that name, else of `worker.id`, else for any node on this host.

    The schema need not be this version's: a node that is about to be updated lives. Blocks for that long at most.
    Raises StoreUnavailable, SchemaMismatch without any schema, ConfigError without a usable URL.
    """
    name = name or config.worker.id or None
    hostname = None if name else socket.gethostname()
    leases = look(
        config,
        "ping",
        lambda connection: node_leases(connection, worker_id=name, hostname=hostname),
        within_seconds=within_seconds,
    )
    return Answer(f"is called {name}" if name else f"is on host {hostname}", leases)
