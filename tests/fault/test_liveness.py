"""A child that overruns the budget it announced is ended and replaced; nothing else makes it wedged."""

import os
import signal
from collections.abc import Callable
from functools import partial

from forgeflow.store import runs
from forgeflow.store.connection import Connection
from tests.support.processes import NodeProcess, children_of, title
from tests.support.waiting import wait_for
from tests.support.work import only_run, submit, wait_for_status

StartNode = Callable[..., NodeProcess]


def has_another(node: NodeProcess, role: str, before: int) -> bool:
    return any(title(pid).startswith(f"forgeflow: {role}") and pid != before for pid in children_of(node.pid))


def test_run_of_a_wedged_worker_is_charged_and_its_worker_killed(start_node: StartNode, connection: Connection) -> None:
    """Frozen, with a live master that renews its lease: only the budget of its run ends it."""
    node = start_node()
    node.wait_for_log("node ready")
    job_id = submit(connection, "sleep 60", timeout_seconds=0.2, max_attempts=1)
    worker = wait_for(lambda: next((pid for pid in node.workers() if children_of(pid)), 0))
    os.kill(worker, signal.SIGSTOP)
    run = wait_for_status(connection, job_id, "dead")
    assert (run.error_type, run.failures) == ("wedged", 1)
    assert run.error == "its worker was killed: the run overran its timeout and could not be stopped"
    node.wait_for_log("child overran its budget")
    assert worker not in node.workers()


def test_aborted_worker_leaves_a_traceback_in_the_log(start_node: StartNode, connection: Connection) -> None:
    node = start_node()
    wait_for(lambda: connection.execute("SELECT count(*) FROM workers").fetchone() == (2,))
    victim = node.workers()[0]
    os.kill(victim, signal.SIGABRT)
    node.wait_for_log("Fatal Python error: Aborted")
    node.wait_for_log("forgeflow/worker/loop.py")
    wait_for(lambda: len(node.workers()) == 2 and victim not in node.workers())


def test_frozen_courier_is_replaced_before_a_lease_can_pass(start_node: StartNode, connection: Connection) -> None:
    node = start_node(worker__lease_duration="6s")
    node.wait_for_log("node ready")
    job_id = submit(connection, "sleep 5; echo unharmed")
    wait_for_status(connection, job_id, "running")
    frozen = node.child("courier")
    os.kill(frozen, signal.SIGSTOP)
    wait_for(partial(has_another, node, "courier", frozen))
    run = wait_for_status(connection, job_id, "succeeded")
    assert (run.output_head, run.attempt) == ("unharmed\n", 1)


def test_frozen_scheduler_is_replaced_and_ticks_go_on(start_node: StartNode, connection: Connection) -> None:
    node = start_node(database__connect_timeout="1s")
    node.wait_for_log("leadership won")
    frozen = node.child("scheduler")
    os.kill(frozen, signal.SIGSTOP)
    job_id = submit(connection, "true", cron_expr="* * * * * *")
    node.wait_for_log("leadership won", count=2)
    wait_for(lambda: runs.list_runs(connection, job_id=job_id, status="succeeded", before=None, max_rows=1))
    assert frozen not in children_of(node.pid)


def test_idle_worker_that_was_frozen_shortly_goes_on(start_node: StartNode, connection: Connection) -> None:
    """Stopped and continued within its budget it is not wedged, and keeps its place."""
    node = start_node(worker__concurrency="1")
    node.wait_for_log("node ready")
    (worker,) = node.workers()
    os.kill(worker, signal.SIGSTOP)
    job_id = submit(connection, "true")
    node.signal(signal.SIGUSR2)
    node.wait_for_log('"child"')
    assert only_run(connection, job_id).status == "pending"
    os.kill(worker, signal.SIGCONT)
    wait_for_status(connection, job_id, "succeeded")
    assert node.workers() == [worker]


def test_unknown_child_of_the_master_is_ended_and_means_nothing(start_node: StartNode, connection: Connection) -> None:
    """An orphan of a dead worker that exits with the code of a failed boot must not stop the node."""
    node = start_node()
    node.wait_for_log("node ready")
    job_id = submit(connection, "(setsid sh -c 'sleep 0.5; exit 3' &) ; kill -9 $PPID", max_attempts=1)
    run = wait_for_status(connection, job_id, "dead")
    assert run.error_type == "crashed"
    assert node.process.poll() is None
    wait_for_status(connection, submit(connection, "true"), "succeeded")
