"""Fixtures for whoever tests functions with pytest, which loads this wherever ForgeFlow is installed.

So it imports next to nothing: a fixture imports what it needs when a test asks for it.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg_pool import ConnectionPool

    from forgeflow.testing.context import TestCronContextBuilder


@pytest.fixture
def cron_ctx() -> "Callable[[str], TestCronContextBuilder]":
    """A builder by the name of a function: `cron_ctx("report").as_catch_up().build()`."""
    from forgeflow.testing.context import TestCronContext

    return TestCronContext.builder


@pytest.fixture(scope="session")
def forgeflow_server() -> Iterator[str]:
    """The URL of a PostgreSQL of this session's own, of its superuser; it needs the extra `embedded`, or Debian's."""
    from forgeflow.testing.server import temporary_server

    with temporary_server() as server:
        yield server.url


@pytest.fixture
def forgeflow_pool(forgeflow_server: str) -> "Iterator[ConnectionPool[Connection[tuple[Any, ...]]]]":
    """A pool, 4 connections at most, of an empty database of the test's own, for `with_pool`."""
    from psycopg_pool import ConnectionPool

    from forgeflow.testing.server import drop_database, make_database

    url = make_database(forgeflow_server)
    try:
        with ConnectionPool(url, min_size=0, max_size=4, open=False) as pool:
            yield pool
    finally:
        drop_database(forgeflow_server, url)
