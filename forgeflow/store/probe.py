"""A look at a database that may hang, without hanging with it."""

import threading
from collections.abc import Callable
from typing import TypeVar

from forgeflow.config import Config
from forgeflow.errors import StoreUnavailable
from forgeflow.store.connection import Connection, connect

T = TypeVar("T")


def look(config: Config, role: str, action: Callable[[Connection], T], *, within_seconds: float) -> T:
    """What `action` returns, over a connection of its own whose transactions are read-only.

    Everything ends within that time, for which neither the resolver of names nor a list of addresses has a deadline:
    so it is a thread that waits, and that is left behind when it does not come back. For commands that end soon.
    Raises StoreUnavailable, ConfigError, and what `action` raises.
    """
    returned: list[T] = []
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            returned.append(_look(config, role, action))
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread that asked
            raised.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(within_seconds)
    if raised:
        raise raised[0]
    if not returned:
        raise StoreUnavailable(f"no answer from the database within {within_seconds:g} s")
    return returned[0]


def _look(config: Config, role: str, action: Callable[[Connection], T]) -> T:
    connection = connect(config, role)
    try:
        connection.read_only = True
        return action(connection)
    finally:
        connection.close()
