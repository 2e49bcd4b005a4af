"""LISTEN and what comes of it; the only statements without a file, for a channel is an identifier."""

from collections.abc import Callable

from psycopg import Notify, sql
from psycopg import errors as pg

from forgeflow.errors import StoreError
from forgeflow.store.connection import Connection, translated


def listen(connection: Connection, channel: str) -> None:
    """Hear the channel from now on; the connection must stay in autocommit."""
    with translated():
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))


def tell(send: Callable[[], object]) -> bool:
    """Send a notification, in autocommit; False when PostgreSQL's queue of them is full, and nobody will hear it.

    One session of anybody's that listens and sits in a transaction is enough for that. What is told is found by the
    next heartbeat, and by polling, as well: so it must stop nobody.
    """
    try:
        send()
    except StoreError as error:
        if not isinstance(error.__cause__, pg.ProgramLimitExceeded):
            raise
        return False
    return True


def prove_listening(connection: Connection, channel: str, word: str) -> bool:
    """Send ourselves a word: when it comes back, notifications do reach this session.  False as `tell`."""

    def send() -> None:
        with translated():
            connection.execute(sql.SQL("NOTIFY {}, {}").format(sql.Identifier(channel), sql.Literal(word)))

    return tell(send)


def take_notifications(connection: Connection) -> list[Notify]:
    """What has come, without duplicates of the same word.  Never blocks.  Raises StoreUnavailable."""
    with translated():
        found = {(notify.channel, notify.payload): notify for notify in connection.notifies(timeout=0)}
    return list(found.values())
