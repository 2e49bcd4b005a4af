"""How long it takes until the work of what died goes on elsewhere: `make takeover`.

The intervals are those of the tests: lease 2 s, heartbeat 0.6 s, recovery 0.5 s, campaign 0.5 s, no wait between
tries. Each figure is from the kill to the first line that the next try, or the next tick, leaves.
"""

import contextlib
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from forgeflow.embedded import start_server, stop_server
from forgeflow.process.tree import Strays, become_subreaper
from forgeflow.store.connection import Connection, connect
from forgeflow.store.schema import migrate
from tests.support.databases import config_for
from tests.support.processes import NodeProcess, children_of, descendants_of
from tests.support.waiting import wait_for
from tests.support.work import submit

KILLED_WORKERS = 30
KILLED_NODES = 5
LEADERS = 5
FROZEN_LEADERS = 2


class Ledger:
    """A job whose first try hangs and whose second one ends; each try writes the time it began."""

    def __init__(self, connection: Connection, folder: Path, number: int) -> None:
        self._file = folder / f"ledger-{number}"
        submit(connection, f"date +%s.%N >> {self._file}; [ $FORGEFLOW_ATTEMPT = 1 ] && sleep 100; exit 0")
        wait_for(lambda: len(self._lines()) == 1)

    def _lines(self) -> list[str]:
        return self._file.read_text().split() if self._file.exists() else []

    def second_try_after(self, killed_at: float) -> float:
        wait_for(lambda: len(self._lines()) == 2, timeout_seconds=60)
        return float(self._lines()[1]) - killed_at


def measure_workers(connection: Connection, url: str, folder: Path) -> list[float]:
    node = NodeProcess(url, worker__concurrency="3")
    node.wait_for_log("node ready")
    found = []
    for number in range(KILLED_WORKERS):
        ledger = Ledger(connection, folder, number)
        (victim,) = [pid for pid in node.workers() if children_of(pid)]
        killed_at = time.time()
        os.kill(victim, signal.SIGKILL)
        found.append(ledger.second_try_after(killed_at))
        wait_for(lambda: not any(children_of(pid) for pid in node.workers()) and len(node.workers()) == 3)
    node.stop()
    return found


def measure_nodes(connection: Connection, url: str, folder: Path) -> list[float]:
    """The master, its workers with it, and what their jobs started, as a service manager does."""
    standby = NodeProcess(url, server__roles="worker", worker__concurrency="1")
    standby.wait_for_log("node ready")
    found = []
    for number in range(KILLED_NODES):
        os.kill(standby.pid, signal.SIGSTOP)
        frozen = children_of(standby.pid)
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        node = NodeProcess(url, worker__concurrency="1")
        node.wait_for_log("node ready")
        ledger = Ledger(connection, folder, 1000 + number)
        for pid in [*frozen, standby.pid]:
            os.kill(pid, signal.SIGCONT)
        jobs = descendants_of(node.pid)
        killed_at = time.time()
        node.signal(signal.SIGKILL)
        node.wait()
        for pid in jobs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        found.append(ledger.second_try_after(killed_at))
    standby.stop()
    return found


def measure_leaders(connection: Connection, url: str, strike: Callable[[NodeProcess], None], times: int) -> list[float]:
    """From the strike to the next tick that another leader has made a run of; ticks come every second."""
    job_id = submit(connection, "true", cron_expr="* * * * * *")
    found = []
    for _ in range(times):
        leader = NodeProcess(url, server__roles="scheduler")
        leader.wait_for_log("leadership won")
        standby = NodeProcess(url, server__roles="scheduler")
        wait_for(lambda: len(children_of(standby.pid)) == 2)  # noqa: B023
        before = term(connection)
        struck_at = time.time()
        strike(leader)
        found.append(wait_for(lambda: first_tick_after(connection, before), timeout_seconds=60) - struck_at)  # noqa: B023
        for node in (leader, standby):
            if node.process.poll() is None:
                node.signal(signal.SIGCONT)
                for pid in children_of(node.pid):
                    os.kill(pid, signal.SIGCONT)
                node.stop()
    connection.execute("UPDATE jobs SET status = 'cancelled', next_run_at = NULL WHERE id = %s", [job_id])
    return found


def term(connection: Connection) -> int:
    row = connection.execute("SELECT term FROM leader").fetchone()
    assert row
    return int(row[0])


def first_tick_after(connection: Connection, before: int) -> float:
    """When the first tick of a later term was fired, 0 while there is none; the old leader's node may win again."""
    row = connection.execute(
        "SELECT coalesce(extract(epoch FROM min(fired_at)), 0)::float8 FROM ticks WHERE term > %s", [before]
    ).fetchone()
    assert row
    return float(row[0])


def kill_scheduler(node: NodeProcess) -> None:
    os.kill(node.child("scheduler"), signal.SIGKILL)


def freeze_scheduler(node: NodeProcess) -> None:
    os.kill(node.child("scheduler"), signal.SIGSTOP)


def terminate(node: NodeProcess) -> None:
    node.signal(signal.SIGTERM)


def line(name: str, seconds: list[float]) -> str:
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, round(len(ordered) * 0.95))]
    return f"{name:52} median {statistics.median(ordered):.2f} s, p95 {p95:.2f} s (n={len(ordered)})\n"


def main() -> None:
    become_subreaper()
    folder = Path(tempfile.mkdtemp(prefix="forgeflow-takeover-"))
    folder.chmod(0o777)
    server = start_server(folder)
    try:
        config = config_for(server.url)
        with connect(config, "takeover") as connection:
            migrate(connection, config)
            rows = [
                line("worker killed → its run elsewhere", measure_workers(connection, server.url, folder)),
                line("node killed → its run elsewhere (lease 2 s)", measure_nodes(connection, server.url, folder)),
                line("leader killed → next tick", measure_leaders(connection, server.url, kill_scheduler, LEADERS)),
                line("leader stopped → next tick", measure_leaders(connection, server.url, terminate, LEADERS)),
                line(
                    "leader frozen → next tick",
                    measure_leaders(connection, server.url, freeze_scheduler, FROZEN_LEADERS),
                ),
            ]
        sys.stdout.write("".join(rows))
    finally:
        Strays().kill_until_none({server.pid})
        stop_server(server)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
