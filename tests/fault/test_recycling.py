"""Workers that are replaced because they are old or large, without a hole; and runs that take too much memory."""

import sys
from collections.abc import Callable

import pytest

from forgeflow.service.lifecycle import trigger_job
from forgeflow.store import runs
from forgeflow.store.connection import Connection
from tests.support.processes import NodeProcess, children_of, run_count, title
from tests.support.waiting import wait_for
from tests.support.work import submit, wait_for_status

StartNode = Callable[..., NodeProcess]


def ready_workers(node: NodeProcess) -> list[int]:
    """Those that wait for work, or do it; one that still boots says neither."""
    return [pid for pid in node.workers() if {"idle", "run"} & set(title(pid).split())]


@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.proof)])
def test_worker_is_replaced_after_its_runs(start_node: StartNode, connection: Connection, count: int) -> None:
    """Short jobs on workers that end all the time: each is executed once."""
    node = start_node(worker__recycle_runs="10")
    node.wait_for_log("node ready")
    job = submit(connection, "true", paused=True)
    before = set(node.workers())
    for _ in range(count):
        trigger_job(connection, job)
    wait_for(lambda: run_count(runs.count_runs(connection)) == {"succeeded": count}, timeout_seconds=120)
    row = connection.execute("SELECT sum(attempt), sum(failures) FROM finished_runs").fetchone()
    assert row == (count, 0)
    wait_for(lambda: not before & set(node.workers()))
    assert "child died" not in node.log_text()


def test_workers_of_one_age_are_replaced_one_at_a_time_and_never_missed(
    start_node: StartNode, connection: Connection
) -> None:
    node = start_node(worker__concurrency="4", worker__recycle_age="2s")
    node.wait_for_log("node ready")
    wait_for(lambda: len(ready_workers(node)) == 4)
    first = set(node.workers())
    fewest, most = 4, 4

    def all_are_new() -> bool:
        nonlocal fewest, most
        # One that is told to go leaves, and says so by its title, only when another one is ready.
        fewest, most = min(fewest, len(ready_workers(node))), max(most, len(node.workers()))
        return not first & set(node.workers())

    wait_for(all_are_new, timeout_seconds=30)
    assert (fewest, most) == (4, 5)
    wait_for_status(connection, submit(connection, "true"), "succeeded")
    assert "child died" not in node.log_text()


def test_worker_that_grew_is_replaced(start_node: StartNode, connection: Connection) -> None:
    """Every worker is larger than that at once, so they are replaced for ever, and jobs are executed all the same."""
    node = start_node(worker__recycle_memory="1M", worker__concurrency="1")
    node.wait_for_log("worker is to be replaced", count=3)
    assert "it takes" in node.log_text()
    wait_for_status(connection, submit(connection, "true"), "succeeded")


def test_busy_worker_is_replaced_when_its_run_has_ended(start_node: StartNode, connection: Connection) -> None:
    node = start_node(worker__concurrency="1", worker__recycle_age="1s")
    job_id = submit(connection, "sleep 3; echo unharmed")
    node.wait_for_log("worker is to be replaced", count=2)
    run = wait_for_status(connection, job_id, "succeeded")
    assert (run.attempt, run.output_head) == (1, "unharmed\n")


def test_titles_tell_role_slot_generation_and_run(start_node: StartNode, connection: Connection) -> None:
    node = start_node(worker__concurrency="1", worker__id="alpha")
    node.wait_for_log("node ready")
    job_id = submit(connection, "sleep 60")
    run = wait_for_status(connection, job_id, "running")
    wait_for(lambda: any(str(run.id) in title(pid) for pid in node.workers()))
    titles = sorted(title(pid) for pid in children_of(node.pid))
    assert titles == [
        "forgeflow: courier 1 of alpha generation 1",
        "forgeflow: scheduler 2 of alpha generation 1",
        f"forgeflow: worker 3 of alpha generation 1 slot 0 run {run.id}",
    ]
    assert title(node.pid) == "forgeflow: master alpha"


def test_run_that_takes_too_much_memory_is_ended_and_charged(start_node: StartNode, connection: Connection) -> None:
    """In a process of its own session, that nobody but the process table knows."""
    node = start_node(executor__shell__memory_limit="200M")
    node.wait_for_log("node ready")
    hog = "import signal; x = bytearray(300 << 20); signal.pause()"
    run = wait_for_status(
        connection,
        submit(connection, f"setsid {sys.executable} -c '{hog}' & wait", max_attempts=1),
        "dead",
    )
    assert (run.error_type, run.failures) == ("memory", 1)
    assert run.error
    assert "more than executor.shell.memory_limit" in run.error
    modest = "import time; x = bytearray(100 << 20); time.sleep(1.5)"
    assert wait_for_status(connection, submit(connection, f"{sys.executable} -c '{modest}'"), "succeeded").attempt == 1
