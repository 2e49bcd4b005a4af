"""Every signal in every phase, and limits of the system: no run is lost."""

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from forgeflow.service.lifecycle import trigger_job
from forgeflow.store import runs
from forgeflow.store.connection import Connection
from tests.support.processes import NodeProcess, children_of, run_count
from tests.support.waiting import wait_for
from tests.support.work import only_run, submit, wait_for_status

StartNode = Callable[..., NodeProcess]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1])
@pytest.mark.parametrize("phase", ["starting", "idle", "running", "draining"])
def test_every_signal_in_every_phase_loses_no_run(
    start_node: StartNode, connection: Connection, number: int, phase: str
) -> None:
    node = start_node(worker__concurrency="1")
    job_id = None
    if phase == "starting":
        node.wait_for_log("node started")
    else:
        node.wait_for_log("node ready")
        if phase != "idle":
            job_id = submit(connection, "sleep 0.5; echo done")
            wait_for_status(connection, job_id, "running")
        if phase == "draining":
            node.signal(signal.SIGTERM)
            node.wait_for_log('"phase": "draining"')
    node.signal(number)
    if phase != "draining" and number in (signal.SIGHUP, signal.SIGUSR1):
        node.wait_for_log("node ready")
        node.signal(signal.SIGTERM)
    assert node.wait() == 0
    if job_id:
        run = only_run(connection, job_id)
        expected = "pending" if number == signal.SIGQUIT else "succeeded"
        assert (run.status, run.failures) == (expected, 0)
    assert connection.execute("SELECT count(*) FROM workers").fetchone() == (0,)


def test_hundreds_of_signals_do_not_hide_a_term(start_node: StartNode, connection: Connection) -> None:
    node = start_node()
    node.wait_for_log("node ready")
    for _ in range(500):
        node.signal(signal.SIGHUP)
        node.signal(signal.SIGUSR1)
    node.signal(signal.SIGTERM)
    assert node.wait() == 0


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.proof)])
def test_storm_of_signals_with_a_slow_reader_of_the_log_stops_nothing(
    start_node: StartNode, connection: Connection, count: int
) -> None:
    """The log goes into a pipe that is read a line at a time, now and then; handlers must not write into it."""
    reading, writing = os.pipe()
    node = start_node(log_to=writing, worker__concurrency="1")
    os.close(writing)
    job_id = submit(connection, "sleep 2; echo unharmed")
    wait_for_status(connection, job_id, "running")
    kinds = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD, signal.SIGWINCH, signal.SIGCONT)
    for number in range(count):
        node.signal(kinds[number % len(kinds)])
        if number % 100 == 0:
            os.read(reading, 200)
    run = wait_for_status(connection, job_id, "succeeded")
    assert (run.attempt, run.output_head) == (1, "unharmed\n")
    wait_for_status(connection, submit(connection, "true"), "succeeded")
    assert node.stop() == 0
    os.close(reading)


def test_term_to_every_process_at_once_lets_jobs_finish(start_node: StartNode, connection: Connection) -> None:
    """As a service manager does that knows no better: twice to the master, once to each child."""
    node = start_node()
    node.wait_for_log("node ready")
    job_id = submit(connection, "sleep 1; echo done")
    wait_for_status(connection, job_id, "running")
    node.signal(signal.SIGTERM)
    node.signal(signal.SIGTERM)
    for pid in children_of(node.pid):
        os.kill(pid, signal.SIGTERM)
    assert node.wait() == 0
    assert only_run(connection, job_id).output_head == "done\n"


def limit(node: NodeProcess, what: int, soft: int) -> None:
    resource.prlimit(node.pid, what, (soft, resource.prlimit(node.pid, what)[1]))


def test_out_of_descriptors_is_survived(start_node: StartNode, connection: Connection) -> None:
    """The master cannot open a link for a new child; it goes on with those it has, and recovers by itself."""
    node = start_node()
    node.wait_for_log("leadership won")
    wait_for(lambda: connection.execute("SELECT count(*) FROM workers").fetchone() == (2,))
    before = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)[0]
    limit(node, resource.RLIMIT_NOFILE, len(list(Path(f"/proc/{node.pid}/fd").iterdir())) - 1)
    victim = node.workers()[0]
    os.kill(victim, signal.SIGKILL)
    node.wait_for_log("fork failed")
    wait_for_status(connection, submit(connection, "true"), "succeeded")
    limit(node, resource.RLIMIT_NOFILE, before)
    wait_for(lambda: len(node.workers()) == 2)
    assert node.log_text().count("fork failed") < 20


def test_worker_out_of_descriptors_costs_no_job_a_try(start_node: StartNode, connection: Connection) -> None:
    """It cannot open the pipe for the output: the job is not to blame, and is tried again, not too often."""
    node = start_node(worker__concurrency="1")
    node.wait_for_log("node ready")
    wait_for_status(connection, submit(connection, "true"), "succeeded")
    (worker,) = node.workers()
    before = resource.prlimit(worker, resource.RLIMIT_NOFILE)
    resource.prlimit(worker, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{worker}/fd")), before[1]))
    job_id = submit(connection, "echo done", max_attempts=1)
    node.wait_for_log('"error_type": "not_started"', count=2)
    resource.prlimit(worker, resource.RLIMIT_NOFILE, before)
    run = wait_for_status(connection, job_id, "succeeded")
    assert (run.failures, run.output_head) == (0, "done\n")
    assert run.attempt < 12
    assert node.workers() == [worker]


def test_drain_under_load_loses_and_charges_no_run(start_node: StartNode, connection: Connection) -> None:
    """Nodes come and go while runs wait: every run succeeds at its first try, whoever handed it back unbegun."""
    job_id = submit(connection, "sleep 0.0$(($$ % 10))", paused=True)
    total = 120
    for _ in range(total):
        trigger_job(connection, job_id)
    for _ in range(3):
        node = start_node(worker__concurrency="3")
        done = run_count(runs.count_runs(connection)).get("succeeded", 0)
        wait_for(lambda: run_count(runs.count_runs(connection)).get("succeeded", 0) > done + 10)  # noqa: B023
        assert node.stop() == 0
    start_node(worker__concurrency="3")
    wait_for(lambda: run_count(runs.count_runs(connection)) == {"succeeded": total})
    row = connection.execute("SELECT max(failures), max(interruptions) FROM finished_runs").fetchone()
    assert row == (0, 0)
