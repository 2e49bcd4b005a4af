"""Statements about nodes and their workers: leases, beats, the dead."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from forgeflow.store.connection import Connection
from forgeflow.store.statements import execute, fetch_all, fetch_one


@dataclass(frozen=True, slots=True)
class Beat:
    """The children whose lease was renewed."""

    children: list[int]


@dataclass(frozen=True, slots=True)
class WorkerKey:
    boot_id: UUID
    child: int


@dataclass(frozen=True, slots=True)
class ExpiredWorkers:
    """The workers whose lease has passed by that reading of the database's clock, in seconds since the epoch."""

    clock_seconds: float
    boot_ids: list[UUID]
    children: list[int]

    def owners(self) -> list[WorkerKey]:
        return [WorkerKey(boot_id, child) for boot_id, child in zip(self.boot_ids, self.children, strict=True)]


@dataclass(frozen=True, slots=True)
class AheadNode:
    """A node whose last heartbeat is in the future: the clock was set back after it."""

    boot_id: UUID
    heartbeat_at: datetime
    lease_seconds: float


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node as the API shows it; `running` counts its runs, `workers` its living worker processes."""

    boot_id: UUID
    worker_id: str
    hostname: str
    pid: int
    roles: list[str]
    concurrency: int
    version: str
    started_at: datetime
    heartbeat_at: datetime
    is_alive: bool
    workers: int
    running: int
    is_leader: bool


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """Who serves this session, and whether that server is a standby."""

    backend_pid: int
    is_standby: bool


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """How the server keeps a commit, and what is left of it; None: no limit, or no such transaction."""

    version_number: int
    fsync: str
    synchronous_commit: str
    server_left: int
    database_left: int | None
    role_left: int | None
    oldest_seconds: float | None
    oldest_pid: int | None
    oldest_application: str | None
    hidden_transactions: int


@dataclass(frozen=True, slots=True)
class NodeLease:
    """What a node's lease has left, in seconds by the database's clock; below 0 once it has passed."""

    worker_id: str
    hostname: str
    pid: int
    lease_seconds: float


@dataclass(frozen=True, slots=True)
class RivalNode:
    """Another node of the same name."""

    boot_id: UUID
    hostname: str
    machine: str
    pid: int
    heartbeat_at: datetime
    is_alive: bool


@dataclass(frozen=True, slots=True)
class _WorkerId:
    worker_id: str


def register_worker(
    connection: Connection,
    *,
    boot_id: UUID,
    child: int,
    worker_id: str,
    lease_seconds: float,
    catalogue: str,
    functions: Sequence[str],
) -> None:
    """A row and a lease for a worker; it claims runs of these functions, which `catalogue` stands for, and of none."""
    parameters = {
        "catalogue": catalogue,
        "functions": list(functions),
        "boot_id": boot_id,
        "child": child,
        "worker_id": worker_id,
        "lease_seconds": lease_seconds,
    }
    execute(connection, "nodes/register_worker", parameters)


def beat_node(
    connection: Connection,
    *,
    boot_id: UUID,
    worker_id: str,
    hostname: str,
    machine: str,
    pid: int,
    roles: Sequence[str],
    concurrency: int,
    version: str,
    children: Sequence[int],
    lease_seconds: float,
) -> Beat:
    """Renew the leases of `children` for `lease_seconds` from now on.  Never waits for a claim."""
    parameters = {
        "boot_id": boot_id,
        "worker_id": worker_id,
        "hostname": hostname,
        "machine": machine,
        "pid": pid,
        "roles": list(roles),
        "concurrency": concurrency,
        "version": version,
        "children": list(children),
        "lease_seconds": lease_seconds,
    }
    beat = fetch_one(connection, "nodes/beat_node", Beat, parameters)
    assert beat
    return beat


def delete_worker(connection: Connection, *, boot_id: UUID, child: int, only_expired: bool) -> str | None:
    """Its worker_id, None without such a row; waits for its claim in flight.  First half of `runs.recover_worker`."""
    parameters = {"boot_id": boot_id, "child": child, "only_expired": only_expired}
    row = fetch_one(connection, "nodes/delete_worker", _WorkerId, parameters)
    return row.worker_id if row else None


def expired_workers(connection: Connection, *, max_rows: int) -> ExpiredWorkers:
    expired = fetch_one(connection, "nodes/expired_workers", ExpiredWorkers, {"max_rows": max_rows})
    assert expired
    return expired


def ahead_nodes(connection: Connection) -> list[AheadNode]:
    return fetch_all(connection, "nodes/ahead_nodes", AheadNode)


def expire_node(connection: Connection, *, boot_id: UUID, heartbeat_at: datetime) -> str | None:
    """End the leases of a node that has not beaten since; its worker_id, None when it has."""
    row = fetch_one(connection, "nodes/expire_node", _WorkerId, {"boot_id": boot_id, "heartbeat_at": heartbeat_at})
    return row.worker_id if row else None


def session_facts(connection: Connection) -> SessionFacts:
    facts = fetch_one(connection, "nodes/session_facts", SessionFacts)
    assert facts
    return facts


def server_facts(connection: Connection) -> ServerFacts:
    facts = fetch_one(connection, "nodes/server_facts", ServerFacts)
    assert facts
    return facts


def node_leases(connection: Connection, *, worker_id: str | None, hostname: str | None) -> list[NodeLease]:
    """Of the nodes with that name and host, None for any; the longest first."""
    return fetch_all(connection, "nodes/node_leases", NodeLease, {"worker_id": worker_id, "hostname": hostname})


def rival_nodes(connection: Connection, *, worker_id: str, boot_id: UUID) -> list[RivalNode]:
    return fetch_all(connection, "nodes/rival_nodes", RivalNode, {"worker_id": worker_id, "boot_id": boot_id})


def node_workers(connection: Connection, *, boot_id: UUID) -> list[WorkerKey]:
    return fetch_all(connection, "nodes/node_workers", WorkerKey, {"boot_id": boot_id})


def delete_node(connection: Connection, *, boot_id: UUID) -> None:
    execute(connection, "nodes/delete_node", {"boot_id": boot_id})


def delete_stale_nodes(connection: Connection) -> list[str]:
    """The names of the nodes that were forgotten."""
    return [row.worker_id for row in fetch_all(connection, "nodes/delete_stale_nodes", _WorkerId)]


def list_nodes(connection: Connection) -> list[NodeRow]:
    return fetch_all(connection, "nodes/list_nodes", NodeRow)
