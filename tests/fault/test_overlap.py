"""Overlap with real workers: runs of one job that must not go on side by side, whatever ends them."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from forgeflow.service.lifecycle import trigger_job
from forgeflow.store.connection import Connection
from tests.support.processes import NodeProcess, children_of
from tests.support.waiting import wait_for
from tests.support.work import submit

StartNode = Callable[..., NodeProcess]


def statuses(connection: Connection, job_id: UUID) -> list[str]:
    rows = connection.execute("SELECT status FROM runs WHERE job_id = %s ORDER BY scheduled_for", [job_id]).fetchall()
    return [status for (status,) in rows]


def marks(ledger: Path) -> list[str]:
    return ledger.read_text().split() if ledger.exists() else []


def test_crash_frees_the_queued_run(start_node: StartNode, connection: Connection, tmp_path: Path) -> None:
    """Its tries used up by crashes of its workers, the first run makes way for the one that waits."""
    tmp_path.chmod(0o777)
    ledger, go = tmp_path / "ledger", tmp_path / "go"
    node = start_node(worker__concurrency="3", retry__base="100ms", retry__cap="100ms")
    node.wait_for_log("node ready")
    job_id = submit(
        connection,
        f"echo begin >> {ledger}; test -e {go} || sleep 60; echo end >> {ledger}",
        paused=True,
        overlap="queue",
        max_attempts=2,
    )
    trigger_job(connection, job_id)
    wait_for(lambda: marks(ledger) == ["begin"], why="the first run goes on")
    trigger_job(connection, job_id)
    for tries in (1, 2):
        wait_for(lambda tries=tries: len(marks(ledger)) == tries, why="the next try")  # type: ignore[misc]
        (victim,) = wait_for(lambda: [pid for pid in node.workers() if children_of(pid)], why="a busy worker")
        if tries == 2:
            go.touch()
        os.kill(victim, signal.SIGKILL)
    wait_for(lambda: statuses(connection, job_id) == ["dead", "succeeded"], why="the second run's end")
    assert marks(ledger) == ["begin", "begin", "begin", "end"]


def test_running_job_is_stopped_and_replaced(start_node: StartNode, connection: Connection, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    ledger, go = tmp_path / "ledger", tmp_path / "go"
    node = start_node(worker__concurrency="3")
    node.wait_for_log("node ready")
    job_id = submit(
        connection,
        f"trap 'echo stopped >> {ledger}; exit 1' TERM; echo begin >> {ledger}; "
        f"test -e {go} || {{ sleep 60 & wait; }}; echo end >> {ledger}",
        paused=True,
        overlap="replace",
    )
    trigger_job(connection, job_id)
    wait_for(lambda: marks(ledger) == ["begin"], why="the first run goes on")
    go.touch()
    trigger_job(connection, job_id)
    wait_for(lambda: statuses(connection, job_id) == ["cancelled", "succeeded"], why="the second run's end")
    assert marks(ledger) == ["begin", "stopped", "begin", "end"], "one after the other"
