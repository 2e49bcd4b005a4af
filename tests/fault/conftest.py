"""Every fault test fails when it leaves a process behind, and shows the logs of its nodes when it fails."""

from collections.abc import Callable, Generator, Iterator

import pytest

from tests.support.processes import NodeProcess, nodes, nothing_left_behind
from tests.support.wire import Wire

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture
def start_node(request: pytest.FixtureRequest, database_url: str) -> Iterator[Callable[..., NodeProcess]]:
    """Starts `forgeflow master` processes on the test's database; keywords are `section__key`."""
    item: pytest.Item = request.node
    with nothing_left_behind(), nodes(show_logs=lambda: item.stash.get(FAILED, False)) as start:
        yield lambda **settings: start(database_url, **settings)


@pytest.fixture
def wire(database_url: str) -> Iterator[Wire]:
    """Ask for it before start_node: a node that cannot say farewell at the end takes its time."""
    with Wire(database_url) as opened:
        yield opened
