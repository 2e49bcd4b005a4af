"""What an operator can learn from the server, also as a role that may not see everything."""

import uuid

import pytest

from forgeflow.config import Config
from forgeflow.errors import StoreUnavailable
from forgeflow.store.connection import Connection, connect, transaction
from forgeflow.store.nodes import node_leases, server_facts
from forgeflow.store.probe import look
from forgeflow.store.ticks import begin_term, find_leader, try_leadership
from tests.support.databases import FAST, config_for
from tests.support.waiting import wait_for
from tests.support.work import beat


def test_facts_of_the_server(connection: Connection) -> None:
    facts = server_facts(connection)
    assert facts.version_number == connection.info.server_version
    assert (facts.fsync, facts.synchronous_commit) == (FAST["fsync"], FAST["synchronous_commit"])
    assert (facts.database_left, facts.role_left) == (None, None)
    assert 100 < facts.server_left < 200


def test_each_connection_takes_one_of_each_limit(poor_role: str, connection: Connection) -> None:
    name = connection.info.dbname
    connection.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT 50'.encode())
    with connect(config_for(poor_role), "test") as poor:
        before = server_facts(poor)
        with connect(config_for(poor_role), "test"):
            after = server_facts(poor)
    assert (before.role_left, after.role_left) == (2, 1)
    assert before.database_left is not None
    assert after.database_left == before.database_left - 1
    assert after.server_left <= before.server_left - 1


def test_role_sees_how_many_transactions_it_cannot_see(connection: Connection, poor_role: str) -> None:
    with connect(config_for(poor_role), "test") as poor, connection.transaction():
        before = server_facts(poor).hidden_transactions
        connection.execute("SELECT pg_current_xact_id()")
        facts = server_facts(poor)
        assert facts.hidden_transactions > before
        assert facts.oldest_seconds is None


def test_oldest_transaction_is_found_with_its_process(config: Config, connection: Connection) -> None:
    with connect(config, "holder") as holder, transaction(holder):
        holder.execute("SELECT 1")
        facts = server_facts(connection)
        assert facts.oldest_pid == holder.info.backend_pid
        assert facts.oldest_application == "forgeflow:holder"
        assert facts.oldest_seconds is not None
        assert 0 <= facts.oldest_seconds < 30


def test_leader_is_found_by_its_lock(config: Config, connection: Connection) -> None:
    leader = find_leader(connection)
    assert (leader.is_led, leader.worker_id) == (False, None)
    with connect(config, "leader") as session:
        assert try_leadership(session)
        assert find_leader(connection).is_led
        begin_term(session, boot_id=uuid.uuid4(), worker_id="a")
        assert find_leader(connection).worker_id == "a"
        assert find_leader(session).is_led  # looking for it does not take it
    wait_for(lambda: not find_leader(connection).is_led, why="the server ends the session")
    assert (find_leader(connection).worker_id, find_leader(connection).term) == ("a", 1)


def test_what_looks_cannot_write(config: Config) -> None:
    def write(connection: Connection) -> None:
        with transaction(connection):
            beat(connection, "a")

    with pytest.raises(StoreUnavailable, match="read-only transaction"):
        look(config, "test", write, within_seconds=10)


def test_leases_are_found_by_name_and_host(connection: Connection) -> None:
    beat(connection, "a", hostname="x", lease_seconds=-5.0)
    beat(connection, "a", hostname="y", lease_seconds=60.0)
    beat(connection, "b", hostname="x", lease_seconds=30.0)

    def found(worker_id: str | None, hostname: str | None) -> list[tuple[str, str]]:
        rows = node_leases(connection, worker_id=worker_id, hostname=hostname)
        return [(row.worker_id, row.hostname) for row in rows]

    assert found(None, None) == [("a", "y"), ("b", "x"), ("a", "x")]
    assert found("a", None) == [("a", "y"), ("a", "x")]
    assert found(None, "x") == [("b", "x"), ("a", "x")]
    assert found("b", "y") == []
    last = node_leases(connection, worker_id="a", hostname="x")[0]
    assert -10 < last.lease_seconds <= -5
