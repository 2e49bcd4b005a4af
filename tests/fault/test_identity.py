"""Nodes of one name: the dead one is taken over, the living one is respected."""

import signal
from collections.abc import Callable

from forgeflow.store import nodes, runs
from forgeflow.store.connection import Connection
from tests.support.processes import NodeProcess, kill_tree
from tests.support.waiting import wait_for
from tests.support.work import submit, wait_for_status

StartNode = Callable[..., NodeProcess]


def test_restarted_node_of_the_same_name_takes_its_old_runs_back_at_once(
    start_node: StartNode, connection: Connection
) -> None:
    """With a lease of minutes only the name can be the reason."""
    slow = {"worker__lease_duration": "5m", "worker__heartbeat_interval": "90s"}
    first = start_node(worker__id="alpha", **slow)
    first.wait_for_log("node ready")
    job_id = submit(connection, "[ $FORGEFLOW_ATTEMPT = 1 ] && sleep 60; exit 0")
    wait_for_status(connection, job_id, "running")
    first.signal(signal.SIGSTOP)  # its workers die without a word, and it does not tell of them
    for worker in first.workers():
        kill_tree(worker)
    first.signal(signal.SIGKILL)
    first.wait()
    second = start_node(worker__id="alpha", **slow)
    second.wait_for_log("old node of this name taken over")
    run = wait_for_status(connection, job_id, "succeeded")
    assert (run.attempt, run.failures) == (2, 1)
    (attempt,) = runs.list_attempts(connection, run_id=run.id)
    assert attempt.error_type == "lost"
    assert [node.worker_id for node in nodes.list_nodes(connection)] == ["alpha"]


def test_second_node_of_a_living_name_is_refused(start_node: StartNode, connection: Connection) -> None:
    first = start_node(worker__id="alpha")
    first.wait_for_log("node ready")
    wait_for(lambda: nodes.list_nodes(connection))
    second = start_node(worker__id="alpha")
    assert second.wait() == 78
    assert "another living node is called alpha" in second.log_text()
    assert "FORGEFLOW_WORKER_ID" in second.log_text()
    wait_for_status(connection, submit(connection, "true"), "succeeded")
    assert first.process.poll() is None


def test_node_of_the_name_of_a_lost_one_elsewhere_waits_for_its_lease(
    start_node: StartNode, connection: Connection
) -> None:
    """Whether a machine that is silent still lives, nobody here can know before its lease has passed."""
    connection.execute(
        "INSERT INTO nodes (boot_id, worker_id, hostname, machine, pid, roles, concurrency, version, lease_expires_at)"
        " VALUES (gen_random_uuid(), 'alpha', 'a-host', 'a-machine', 1, '{worker}', 1, '0', now() + interval '1 hour')"
    )
    node = start_node(worker__id="alpha")
    node.wait_for_log("has a lease")
    assert "node ready" not in node.log_text()
    connection.execute("UPDATE nodes SET lease_expires_at = now() WHERE hostname = 'a-host'")
    node.wait_for_log("node ready")
    wait_for_status(connection, submit(connection, "true"), "succeeded")


def test_living_node_in_another_namespace_of_processes_is_not_taken_for_dead(
    start_node: StartNode, connection: Connection
) -> None:
    """Two containers of one host name: neither sees the other's processes, and the first one's run goes on."""
    first = start_node(worker__id="twin", worker__lease_duration="20s", worker__heartbeat_interval="6s")
    first.wait_for_log("node ready")
    job_id = submit(connection, "sleep 2; echo unharmed")
    wait_for_status(connection, job_id, "running")
    connection.execute("UPDATE nodes SET machine = 'another namespace', pid = 1")
    second = start_node(worker__id="twin")
    second.wait_for_log("has a lease")
    run = wait_for_status(connection, job_id, "succeeded")
    assert (run.attempt, run.output_head) == (1, "unharmed\n")
    second.signal(signal.SIGQUIT)
    assert second.wait() == 0
