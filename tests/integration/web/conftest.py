"""One web process and one database for all of these tests; each begins with empty tables."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.support.databases import drop_database, make_database
from tests.support.web import WebServer, empty_tables, open_database, web_server


@pytest.fixture(scope="package")
def web_database(server_url: str, template: str) -> Iterator[str]:
    url = make_database(server_url, template=template)
    yield url
    drop_database(server_url, url)


@pytest.fixture(scope="package")
def web_process(web_database: str) -> Iterator[WebServer]:
    with web_server(web_database) as server:
        yield server
        assert "Traceback" not in server.log.read_text()


@pytest.fixture(scope="package")
def tables(web_database: str) -> Iterator[psycopg.Connection[Any]]:
    with open_database(web_database) as opened:
        yield opened


@pytest.fixture
def rows(tables: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """The database, empty."""
    empty_tables(tables)
    return tables


@pytest.fixture
def web(web_process: WebServer, rows: psycopg.Connection[Any]) -> WebServer:
    """The web process, over an empty database."""
    assert rows
    return web_process
