"""`doctor` and `ping` beside real nodes, and on servers that hang, or behind poolers."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forgeflow.embedded import EmbeddedServer
from forgeflow.errors import StoreUnavailable
from forgeflow.store.connection import Connection
from forgeflow.store.nodes import session_facts
from forgeflow.store.probe import look
from tests.support.commands import run
from tests.support.databases import config_for
from tests.support.processes import NodeProcess
from tests.support.waiting import wait_for
from tests.support.wire import Mode, Wire

StartNode = Callable[..., NodeProcess]
# What a command may take beside the deadlines that it has.
SLACK_SECONDS = 5.0


def test_ping_and_doctor_see_a_real_node_live_and_stop(
    start_node: StartNode, tmp_path: Path, database_url: str
) -> None:
    node = start_node(worker__id="web-1")
    node.wait_for_log("leadership won")
    wait_for(lambda: len(node.workers()) == 2)
    own = {"FORGEFLOW_DATABASE_URL": database_url, "FORGEFLOW_WORKER_ID": "web-1"}
    anybody = {"FORGEFLOW_DATABASE_URL": database_url}
    for variables in (own, anybody):
        code, output, _ = run(tmp_path, "ping", **variables)
        assert code == 0
        assert output.startswith("node web-1 (host ")
        assert f"pid {node.pid}) lives: its lease has " in output
    assert run(tmp_path, "ping", "--node", "web-2", **own)[:2] == (1, "no node is called web-2\n")
    wait_for(lambda: "2 on 1 node: web-1 (2)" in run(tmp_path, "doctor", **own)[1], why="both workers")
    code, output, _ = run(tmp_path, "doctor", **own)
    assert code == 0
    assert "ok       leader: web-1 leads, term 1\n" in output
    assert "ok       nodes: 1 node living, no lease has passed\n" in output
    assert "this node needs 0 more, for it lives\n" in output
    courier = node.child("courier")  # which would forget the node, once its lease has passed
    node.signal(signal.SIGSTOP)
    os.kill(courier, signal.SIGSTOP)
    wait_for(lambda: run(tmp_path, "ping", **own)[0] == 1, why="the lease passes")
    assert "warning  nodes: 0 nodes living; the lease has passed of web-1" in run(tmp_path, "doctor", **own)[1]
    os.kill(courier, signal.SIGCONT)
    node.signal(signal.SIGCONT)
    wait_for(lambda: run(tmp_path, "ping", **own)[0] == 0, why="the node beats again")
    assert node.stop() == 0
    assert run(tmp_path, "ping", **own)[:2] == (1, "no node is called web-1\n")


def test_ping_is_fast_enough_for_a_health_check(tmp_path: Path, database_url: str) -> None:
    def seconds() -> float:
        begun = time.monotonic()
        assert run(tmp_path, "ping", FORGEFLOW_DATABASE_URL=database_url)[0] == 1
        return time.monotonic() - begun

    wait_for(lambda: seconds() < 1.0, why="ping ends in less than a second")  # measured: 0.3 s


@pytest.fixture
def stopped_server(postgres: EmbeddedServer) -> Iterator[str]:
    """The URL of a server that was told to stand still, so that its socket is open, and nobody answers."""
    os.kill(postgres.pid, signal.SIGSTOP)
    try:
        yield postgres.url
    finally:
        os.kill(postgres.pid, signal.SIGCONT)


def test_stopped_server_is_69_in_time(tmp_path: Path, stopped_server: str) -> None:
    assert_both_give_up(tmp_path, stopped_server)


def test_black_hole_is_69_in_time(tmp_path: Path, database_url: str) -> None:
    with Wire(database_url) as wire, wire.broken(Mode.HOLE):
        assert_both_give_up(tmp_path, wire.url)


def assert_both_give_up(folder: Path, url: str) -> None:
    begun = time.monotonic()
    code, output, complaint = run(folder, "ping", "--timeout", "700ms", FORGEFLOW_DATABASE_URL=url)
    assert time.monotonic() - begun < 0.7 + SLACK_SECONDS
    assert (code, output) == (69, "")
    assert complaint == "forgeflow: no answer from the database within 0.7 s\n"
    begun = time.monotonic()
    patience = {"FORGEFLOW_DATABASE_URL": url, "FORGEFLOW_DATABASE_CONNECT_TIMEOUT": "2s"}
    code, output, _ = run(folder, "doctor", **patience)
    assert time.monotonic() - begun < 2.0 + SLACK_SECONDS
    assert code == 69
    assert "failed   database: cannot connect to the database: connection timeout expired\n" in output
    assert "cure: See whether the server hangs" in output
    assert "time zones:" in output


def test_server_that_stops_answering_between_checks_is_69_in_time(
    tmp_path: Path, database_url: str, connection: Connection
) -> None:
    """The check of the schema waits for a lock; while it does, the wire goes dead."""

    def go_dead() -> None:
        wait_for(lambda: waiting_sessions(connection) > 0, why="doctor waits")
        wire.set_mode(Mode.HOLE)

    with Wire(database_url) as wire, connection.transaction():
        connection.execute("LOCK TABLE schema_migrations")
        end = threading.Thread(target=go_dead)
        end.start()
        begun = time.monotonic()
        code, output, _ = run(tmp_path, "doctor", FORGEFLOW_DATABASE_URL=wire.url)
        assert time.monotonic() - begun < SLACK_SECONDS
        end.join()
    assert code == 69
    assert "ok       direct connection:" in output
    assert "failed   database: the database did not answer: no answer from the database within 0.5 s\n" in output
    assert "schema" not in output
    assert "time zones:" in output


def waiting_sessions(connection: Connection) -> int:
    row = connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
    assert row
    return int(row[0])


def test_look_ends_in_time_whatever_its_connection_waits_for(database_url: str) -> None:
    """Here each wait has a minute; a resolver of names has no deadline at all."""

    def hang(connection: Connection) -> None:
        connection.deadline_seconds = 60.0
        with wire.broken(Mode.HOLE):
            session_facts(connection)

    with Wire(database_url) as wire:
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"no answer from the database within 0\.5 s"):
            look(config_for(wire.url), "test", hang, within_seconds=0.5)
        assert time.monotonic() - begun < SLACK_SECONDS


def test_pooler_fails_and_hides_nothing_else(pooler: str, tmp_path: Path) -> None:
    code, output, _ = run(tmp_path, "doctor", FORGEFLOW_DATABASE_URL=pooler)
    assert code == 1
    assert "failed   direct connection: database.url leads through a transaction pooler" in output
    assert output.count("failed   ") == 1
    assert "ok       connections:" in output
    assert "schema" not in output


@pytest.mark.parametrize("pooler", ["extra_float_digits"], indirect=True)
def test_pooler_that_refuses_our_settings_is_named(pooler: str, tmp_path: Path) -> None:
    code, output, _ = run(tmp_path, "doctor", FORGEFLOW_DATABASE_URL=pooler)
    assert code == 69
    assert "unsupported startup parameter" in output
    assert "cure: This is a pooler: let database.url lead to PostgreSQL itself" in output
