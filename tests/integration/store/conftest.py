"""What several store tests ask for."""

from collections.abc import Iterator

import pytest

from forgeflow.config import Config
from forgeflow.store.connection import Connection, connect


@pytest.fixture
def second(config: Config) -> Iterator[Connection]:
    """A second session."""
    opened = connect(config, "second")
    yield opened
    opened.close()
