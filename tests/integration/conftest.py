"""Fixtures for tests on a real PostgreSQL."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.commands import SECRET
from tests.support.databases import drop_database, make_database


@pytest.fixture
def empty_database(server_url: str) -> Iterator[str]:
    url = make_database(server_url)
    yield url
    drop_database(server_url, url)


@pytest.fixture
def poor_role(server_url: str, database_url: str) -> Iterator[str]:
    """A role that may read, and may have three connections; the URL with it."""
    name = f"ff_poor_{uuid.uuid4().hex[:8]}"
    role = sql.Identifier(name)
    database = sql.Identifier(str(conninfo_to_dict(database_url)["dbname"]))
    with psycopg.connect(database_url, autocommit=True) as direct:
        direct.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} CONNECTION LIMIT 3").format(role, sql.Literal(SECRET)))
        direct.execute(sql.SQL("GRANT USAGE ON SCHEMA forgeflow TO {}").format(role))
        direct.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA forgeflow TO {}").format(role))
        direct.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, role))
        yield make_conninfo(database_url, user=name, password=SECRET)
        direct.execute(sql.SQL("DROP OWNED BY {}").format(role))
        direct.execute(sql.SQL("DROP ROLE {}").format(role))
