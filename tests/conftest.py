"""Fixtures that every kind of test may ask for."""

import os
import signal
from collections.abc import Iterator

import pytest

from forgeflow.config import Config
from forgeflow.embedded import EmbeddedServer
from forgeflow.store.connection import Connection, connect
from tests.support.databases import config_for, drop_database, make_database, make_template, test_server

# Whoever starts the tests with nohup, or in the background of a script, has every process they start ignore these.
for number, usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

# The tests decide every setting themselves.
for name in [name for name in os.environ if name.startswith("FORGEFLOW_") and "_TEST_" not in name]:
    del os.environ[name]


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedServer]:
    with test_server() as started:
        yield started


@pytest.fixture(scope="session")
def server_url(postgres: EmbeddedServer) -> str:
    return postgres.url


@pytest.fixture(scope="session")
def template(server_url: str) -> Iterator[str]:
    name = make_template(server_url)
    yield name
    drop_database(server_url, f"dbname={name}")


@pytest.fixture
def database_url(server_url: str, template: str) -> Iterator[str]:
    """An empty, migrated database of the test's own."""
    url = make_database(server_url, template=template)
    yield url
    drop_database(server_url, url)


@pytest.fixture
def config(database_url: str) -> Config:
    return config_for(database_url)


@pytest.fixture
def connection(config: Config) -> Iterator[Connection]:
    opened = connect(config, "test")
    yield opened
    opened.close()
