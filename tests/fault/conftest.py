"""Every fault test fails when it leaves a process behind."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.processes import NodeProcess, nodes, nothing_left_behind


@pytest.fixture
def start_node(database_url: str) -> Iterator[Callable[..., NodeProcess]]:
    """Starts `forgeflow master` processes on the test's database; keywords are `section__key`."""
    with nothing_left_behind(), nodes() as start:
        yield lambda **settings: start(database_url, **settings)
