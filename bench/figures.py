"""What this version costs on this machine: figures to note, no targets.

`make figures` starts an embedded server (durable, as users have it) and one node, and prints a table. Each figure
says how it was taken. Read them beside each other, not as rates of your machine.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from uuid import UUID

from forgeflow.embedded import start_server, stop_server
from forgeflow.service.jobs import submit_job
from forgeflow.service.lifecycle import trigger_job
from forgeflow.service.requests import read_job_request
from forgeflow.store import nodes, runs
from forgeflow.store.connection import Connection, connect
from forgeflow.store.schema import migrate
from tests.support.databases import config_for
from tests.support.processes import NodeProcess, children_of, title
from tests.support.waiting import wait_for

WORKERS = 4
DRAIN = 2000
LATENCIES = 300
IDLE_SECONDS = 20.0

# The intervals that users have, not those of the tests.
SETTINGS: dict[str, Any] = {
    "worker__lease_duration": "30s",
    "worker__heartbeat_interval": "10s",
    "worker__statement_deadline": "5s",
    "worker__recovery_interval": "5s",
    "worker__kill_grace": "10s",
    "scheduler__campaign_interval": "5s",
    "scheduler__tick": "1s",
    "log__level": "warning",
    "worker__concurrency": str(WORKERS),
}


def make_job(connection: Connection, command: str, *, paused: bool) -> UUID:
    body = {"name": "figure", "executor": "shell", "payload": {"command": command}, "paused": paused}
    return submit_job(connection, read_job_request(body), source="cli").job.id


def pending_and_running(connection: Connection) -> int:
    row = connection.execute("SELECT count(*) FROM queue").fetchone()
    return int(row[0]) if row else 0


def measure_drain(connection: Connection, url: str) -> str:
    """Runs that wait before the node starts; from the first start of one to the last end."""
    job_id = make_job(connection, "true", paused=True)
    for _ in range(DRAIN):
        runs.enqueue_run(connection, job_id=job_id, trigger="manual")
    node = NodeProcess(url, log_to=None, **SETTINGS)
    try:
        wait_for(lambda: pending_and_running(connection) == 0, timeout_seconds=300)
    finally:
        node.stop()
    row = connection.execute(
        "SELECT extract(epoch FROM max(finished_at) - min(started_at))::float8 FROM finished_runs WHERE job_id = %s",
        [job_id],
    ).fetchone()
    assert row
    return f"{DRAIN / row[0]:.0f} runs/s ({DRAIN} × `true`, {WORKERS} workers)"


def measure_latency(connection: Connection) -> tuple[str, str]:
    """Idle workers; from before the submitting call to the claim, and to the first line of the job."""
    job_id = make_job(connection, "date +%s.%N", paused=True)
    to_start, to_line = [], []
    for _ in range(LATENCIES):
        began = time.time()
        run_id = trigger_job(connection, job_id).id
        wait_for(lambda run_id=run_id: is_finished(connection, run_id), timeout_seconds=30)  # type: ignore[misc]
        run = runs.get_run(connection, run_id=run_id)
        assert run
        assert run.started_at
        to_start.append((run.started_at.timestamp() - began) * 1000)
        to_line.append((float(run.output_head) - began) * 1000)
    return describe(to_start), describe(to_line)


def is_finished(connection: Connection, run_id: UUID) -> bool:
    run = runs.get_run(connection, run_id=run_id)
    return run is not None and run.finished_at is not None


def describe(milliseconds: list[float]) -> str:
    ordered = sorted(milliseconds)
    return f"p50 {statistics.median(ordered):.1f} ms, p99 {ordered[int(len(ordered) * 0.99) - 1]:.1f} ms"


def measure_idle(connection: Connection) -> str:
    """Statements of all other sessions, by the server's own count, while nothing is to be done."""
    query = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'"
    connection.execute("SELECT pg_stat_statements_reset()")
    time.sleep(IDLE_SECONDS)
    row = connection.execute(query).fetchone()
    assert row
    return f"{float(row[0]) / IDLE_SECONDS:.2f} statements/s ({WORKERS} workers, {IDLE_SECONDS:g} s)"


def pss_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.partition("\nPss:")[2].split()[0]) / 1024


def measure_memory(node: NodeProcess) -> dict[str, str]:
    """Proportional set size, after the drains, by role."""
    found: dict[str, list[float]] = {"master": [pss_mib(node.pid)]}
    for pid in children_of(node.pid):
        found.setdefault(title(pid).split()[1], []).append(pss_mib(pid))
    return {f"PSS of {role}": f"{statistics.mean(sizes):.1f} MiB" for role, sizes in found.items()}


def main() -> None:
    state = Path(tempfile.mkdtemp(prefix="forgeflow-figures-"))
    state.chmod(0o755)
    server = start_server(state, settings={"shared_preload_libraries": "pg_stat_statements"})
    try:
        config = config_for(server.url)
        with connect(config, "figures") as connection:
            migrate(connection, config)
            connection.execute("CREATE EXTENSION pg_stat_statements")
            rows = {"shell runs": measure_drain(connection, server.url)}
            node = NodeProcess(server.url, log_to=None, **SETTINGS)
            try:
                wait_for(lambda: any(one.workers == WORKERS for one in nodes.list_nodes(connection)))
                rows["submit to claim"], rows["submit to first line of the job"] = measure_latency(connection)
                rows["idle node"] = measure_idle(connection)
                rows |= measure_memory(node)
            finally:
                node.stop()
        sys.stdout.write("".join(f"{name:34} {value}\n" for name, value in rows.items()))
    finally:
        stop_server(server)
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    os.environ.pop("FORGEFLOW_DATABASE_URL", None)
    main()
