"""A server that is a standby, and nobody streams to it; the last test promotes it."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from forgeflow.embedded import EmbeddedServer
from forgeflow.store.connection import connect
from tests.support.commands import run
from tests.support.databases import config_for, standby_server
from tests.support.processes import NodeProcess, nothing_left_behind
from tests.support.work import submit, wait_for_status


@pytest.fixture(scope="module")
def standby() -> Iterator[EmbeddedServer]:
    with standby_server() as server:
        yield server


def test_doctor_and_ping_fail_on_it(standby: EmbeddedServer, tmp_path: Path) -> None:
    code, output, _ = run(tmp_path, "doctor", FORGEFLOW_DATABASE_URL=standby.url)
    assert code == 1
    assert "failed   primary: the server is a standby, where nothing can be written\n" in output
    assert "ok       schema:" in output
    assert run(tmp_path, "ping", FORGEFLOW_DATABASE_URL=standby.url)[0] == 1


def test_node_is_refused_with_a_sentence_until_it_is_promoted(standby: EmbeddedServer) -> None:
    """A standby grants the leader's lock, too."""
    with nothing_left_behind(ignore={standby.pid}):
        node = NodeProcess(standby.url)
        try:
            node.wait_for_log("the server is a standby")
            assert "leadership won" not in node.log_text()
            with psycopg.connect(standby.url, autocommit=True) as direct:
                direct.execute("SELECT pg_promote()")
            node.wait_for_log("leadership won", timeout_seconds=30)
            with connect(config_for(standby.url), "test") as connection:
                wait_for_status(connection, submit(connection, "true"), "succeeded")
        finally:
            node.stop()
