"""LISTEN and what comes of it; the only statements without a file, for a channel is an identifier."""

from psycopg import Notify, sql

from forgeflow.store.connection import Connection, translated


def listen(connection: Connection, channel: str) -> None:
    """Hear the channel from now on; the connection must stay in autocommit."""
    with translated():
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))


def prove_listening(connection: Connection, channel: str, word: str) -> None:
    """Send ourselves a word: when it comes back, notifications do reach this session."""
    with translated():
        connection.execute(sql.SQL("NOTIFY {}, {}").format(sql.Identifier(channel), sql.Literal(word)))


def take_notifications(connection: Connection) -> list[Notify]:
    """What has come, without duplicates of the same word.  Never blocks.  Raises StoreUnavailable."""
    with translated():
        found = {(notify.channel, notify.payload): notify for notify in connection.notifies(timeout=0)}
    return list(found.values())
