"""Dead workers and dead nodes: their runs execute elsewhere, soon, and once."""

import contextlib
import os
import random
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from forgeflow.service.lifecycle import trigger_job
from forgeflow.store import runs
from forgeflow.store.connection import Connection
from tests.support.processes import NodeProcess, children_of, descendants_of, run_count
from tests.support.scenario import make_worker
from tests.support.waiting import wait_for
from tests.support.wire import Wire
from tests.support.work import submit, wait_for_status

StartNode = Callable[..., NodeProcess]

# The test's intervals: lease 2 s, recovery 0.5 s. Bounds are four times what is promised; a hang is red.
LEASE, RECOVERY = 2.0, 0.5


def second_try_after(
    connection: Connection, ledger: Path, kill: Callable[[], None], *, timeout_seconds: float
) -> float:
    """Seconds from the kill to the first line of the second try."""
    killed_at = time.time()
    kill()
    wait_for(lambda: len(ledger.read_text().splitlines()) >= 2, timeout_seconds=timeout_seconds)
    return float(ledger.read_text().splitlines()[1]) - killed_at


def ledger_job(connection: Connection, ledger: Path) -> None:
    """The first try hangs, the second one ends."""
    ledger.parent.chmod(0o777)
    submit(connection, f"date +%s.%N >> {ledger}; [ $FORGEFLOW_ATTEMPT = 1 ] && sleep 60; exit 0")
    wait_for(lambda: ledger.exists() and ledger.read_text())


def test_killed_workers_run_executes_elsewhere_within_the_bound(
    start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    node = start_node(worker__concurrency="3")
    node.wait_for_log("node ready")
    for number in range(5):
        ledger = tmp_path / f"ledger-{number}"
        ledger_job(connection, ledger)
        (victim,) = [pid for pid in node.workers() if children_of(pid)]
        taken = second_try_after(connection, ledger, lambda: os.kill(victim, signal.SIGKILL), timeout_seconds=2.0)  # noqa: B023
        assert taken < 2.0
        wait_for(lambda: not any(children_of(pid) for pid in node.workers()))


def test_killed_nodes_runs_execute_elsewhere_within_the_bound(
    start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    first = start_node()
    first.wait_for_log("node ready")
    ledger = tmp_path / "ledger"
    ledger_job(connection, ledger)
    jobs = [pid for worker in first.workers() for pid in descendants_of(worker)]
    start_node().wait_for_log("node ready")

    def kill_all() -> None:
        first.signal(signal.SIGKILL)
        first.wait()
        for pid in jobs:  # what is above a master does: `forgeflow up`, systemd
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    assert second_try_after(connection, ledger, kill_all, timeout_seconds=4 * (LEASE + RECOVERY + 1))


def test_poisonous_job_is_dead_after_its_tries_and_others_go_on(start_node: StartNode, connection: Connection) -> None:
    node = start_node()
    node.wait_for_log("node ready")
    poison = submit(connection, "kill -9 $PPID; sleep 60", max_attempts=3)
    others = [submit(connection, "true") for _ in range(10)]
    run = wait_for_status(connection, poison, "dead")
    assert (run.failures, run.attempt, run.error_type) == (3, 3, "crashed")
    for job_id in others:
        wait_for_status(connection, job_id, "succeeded")


def test_many_workers_killed_at_once_are_all_replaced(start_node: StartNode, connection: Connection) -> None:
    """Their ends arrive as one signal; every turn reaps until nothing is left."""
    node = start_node(worker__concurrency="16")
    wait_for(lambda: connection.execute("SELECT count(*) FROM workers").fetchone() == (16,))
    before = set(node.workers())
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(set(node.workers()) - before) == 16)
    wait_for(lambda: connection.execute("SELECT count(*) FROM workers").fetchone() == (16,), why="old rows are gone")
    wait_for_status(connection, submit(connection, "true"), "succeeded")


@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=pytest.mark.proof)])
def test_workers_killed_at_random_under_load_lose_no_run(
    start_node: StartNode, connection: Connection, tmp_path: Path, kills: int
) -> None:
    """Every run ends, none by two hands at once: the ledger's lines of a run never overlap."""
    tmp_path.chmod(0o777)
    rounds = random.Random(7)
    node = start_node(worker__concurrency="4")
    node.wait_for_log("node ready")
    command = (
        f'echo "start $FORGEFLOW_RUN_ID $FORGEFLOW_ATTEMPT $(date +%s%N)" >> {tmp_path}/ledger;'
        " sleep 0.0$(($$ % 10));"
        f' echo "end $FORGEFLOW_RUN_ID $FORGEFLOW_ATTEMPT $(date +%s%N)" >> {tmp_path}/ledger'
    )
    job_id = submit(connection, command, paused=True, max_attempts=100)
    total = kills * 12
    for _ in range(total):
        trigger_job(connection, job_id)
    for _ in range(kills):
        done = run_count(runs.count_runs(connection)).get("succeeded", 0)
        wait_for(lambda: run_count(runs.count_runs(connection)).get("succeeded", 0) > done or done == total)  # noqa: B023
        alive = node.workers()
        if alive:
            os.kill(rounds.choice(alive), signal.SIGKILL)
    wait_for(lambda: run_count(runs.count_runs(connection)) == {"succeeded": total}, timeout_seconds=120)
    lines = [line.split() for line in (tmp_path / "ledger").read_text().splitlines()]
    starts = [(run, attempt) for kind, run, attempt, _ in lines if kind == "start"]
    assert len(starts) == len(set(starts)), "an attempt was executed twice"
    by_run: dict[str, list[tuple[int, str]]] = {}
    for kind, run, _, at in lines:
        by_run.setdefault(run, []).append((int(at), kind))
    for events in by_run.values():
        kinds = [kind for _, kind in sorted(events)]
        assert "end end" not in " ".join(kinds)
    assert len(by_run) == total


def test_recovery_of_others_waits_a_beat_after_a_reconnect(start_node: StartNode, connection: Connection) -> None:
    """After an outage every lease may have passed; the living must be able to renew theirs first."""
    first = start_node()
    first.wait_for_log("node ready")
    job_id = submit(connection, "sleep 2; echo unharmed")
    wait_for_status(connection, job_id, "running")
    second = start_node()
    second.wait_for_log("node ready")
    connection.execute("UPDATE workers SET lease_expires_at = now() - interval '1 s'")
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'forgeflow:courier%'"
    )
    run = wait_for_status(connection, job_id, "succeeded")
    assert (run.attempt, run.output_head) == (1, "unharmed\n")


def test_recovery_of_many_over_a_slow_wire_keeps_the_living_alive(
    wire: Wire, start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    """It takes longer than the courier's budget, and than a lease; beats go between, and nobody is wedged."""
    tmp_path.chmod(0o777)
    node = start_node(server__roles="worker", worker__concurrency="1", database__url=wire.url)
    node.wait_for_log("node ready")
    job_id = submit(connection, f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo unharmed")
    wait_for_status(connection, job_id, "running")
    with connection.transaction():
        boot_id = uuid.uuid4()
        for child in range(12):
            make_worker(connection, boot_id=boot_id, child=child, lease=0.001)
    with wire.late(0.06):
        wait_for(lambda: connection.execute("SELECT count(*) FROM workers").fetchone() == (1,))
        (tmp_path / "go").touch()
        run = wait_for_status(connection, job_id, "succeeded")
    assert (run.output_head, run.attempt) == ("unharmed\n", 1)
    assert "overran its budget" not in node.log_text()
