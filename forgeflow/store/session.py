"""Sessions of a node's processes: direct, on a primary, with this version's schema, or refused with a sentence."""

from forgeflow.config import Config
from forgeflow.errors import ConfigError, StoreUnavailable
from forgeflow.store.connection import Connection, connect
from forgeflow.store.nodes import session_facts
from forgeflow.store.schema import require_current


def open_session(config: Config, role: str) -> Connection:
    """A connection that leases and locks may be held over.

    A transaction pooler is refused for good: behind one, two sessions get the same advisory lock, and LISTEN hears
    nothing. A standby is only unavailable: it grants locks too, but it may be promoted, or the URL may lead to the
    primary the next time. Blocks as `connect` does.  Raises ConfigError, StoreUnavailable, SchemaMismatch.
    """
    connection = connect(config, role)
    try:
        facts = session_facts(connection)
        if facts.backend_pid != connection.info.backend_pid:
            raise ConfigError(
                "database.url leads through a transaction pooler, where locks and notifications get lost: "
                "schedulers and workers need a direct connection to PostgreSQL"
            )
        if facts.is_standby:
            raise StoreUnavailable(
                "the server is a standby, where nothing can be written: waiting for a primary; with several hosts in "
                "database.url add target_session_attrs=read-write"
            )
        require_current(connection)
    except BaseException:
        connection.close()
        raise
    return connection
