"""What several store tests ask for."""

from collections.abc import Iterator

import pytest

from forgeflow.config import Config
from forgeflow.store.connection import Connection, connect
from tests.support.databases import drop_database, make_database


@pytest.fixture(scope="module")
def module_database(server_url: str, template: str) -> Iterator[str]:
    """One database for a module whose tests are many and alike: it overrides `database_url` with this."""
    url = make_database(server_url, template=template)
    yield url
    drop_database(server_url, url)


@pytest.fixture
def second(config: Config) -> Iterator[Connection]:
    """A second session."""
    opened = connect(config, "second")
    yield opened
    opened.close()
