"""Leadership: a session advisory lock, and the settings that make a frozen leader lose it."""

import contextlib
from dataclasses import dataclass

import structlog

from forgeflow.config import Config
from forgeflow.domain.node import Node
from forgeflow.errors import StoreUnavailable
from forgeflow.store import session as store_session
from forgeflow.store import ticks
from forgeflow.store.connection import Connection
from forgeflow.store.listener import listen
from forgeflow.store.ticks import limit_idle_session

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Leadership:
    """Held as long as its session lives."""

    connection: Connection
    term: int


def open_session(config: Config, node: Node) -> Connection:
    """A session to campaign with; it hears of resignations.  Raises StoreUnavailable, SchemaMismatch."""
    connection = store_session.open_session(config, f"scheduler:{node.worker_id}")
    listen(connection, f"{config.database.schema_name}_leader")
    return connection


def campaign(connection: Connection, config: Config, node: Node) -> Leadership | None:
    """Try to become leader over this session; None: somebody else leads.  Waits for nobody.

    The server ends a leader's session that says nothing for 6 s, or longer where ticks or deadlines are long: a frozen
    process keeps its TCP connection, and would lead for ever; one whose answer is late must keep its lock.
    """
    if not ticks.try_leadership(connection):
        return None
    tick, deadline = config.scheduler.tick, config.worker.statement_deadline
    limit_idle_session(connection, idle_seconds=max(6.0, 4 * tick, deadline + 2 * tick))
    term = ticks.begin_term(connection, boot_id=node.boot_id, worker_id=node.worker_id)
    log.info("leadership won", term=term, worker_id=node.worker_id)
    return Leadership(connection, term)


def resign(leadership: Leadership) -> None:
    """Give the lock up and tell the standbys, who campaign at once; the session is closed.

    A database that does not answer is no trouble: it frees the lock when it notices that the session is gone.
    """
    with contextlib.suppress(StoreUnavailable):
        ticks.resign_leadership(leadership.connection)
    leadership.connection.close()
    log.info("leadership resigned", term=leadership.term)
