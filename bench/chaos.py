"""The proof that a dead node's work goes on elsewhere: `make chaos`.

Starts a fleet (bench/cluster.py) with a state folder and a port of its own, submits a slow job, kills the node that
the API says has it, and follows the run to its end on another node. The job keeps a ledger, a line every tenth of a
second, in which two tries at the same time would show. The intervals are the defaults, or those of the environment.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.cluster import WORKERS, living_nodes
from forgeflow.cli.exits import exit_with
from forgeflow.config import Config, load_config
from forgeflow.process.tree import Strays, become_subreaper
from tests.support.processes import kill_tree
from tests.support.storm import has_overlap
from tests.support.waiting import wait_for
from tests.support.web import free_port

LINES = 10
JOB_SECONDS = 2.0
BOOT_SECONDS = 60.0
STOP_SECONDS = 30.0
# What a busy machine may add to what is promised.
SLACK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """A running `make cluster`, as its user sees it."""

    address: str
    folder: Path

    @property
    def ledger(self) -> Path:
        return self.folder / "job" / "ledger"

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body else None
        with urllib.request.urlopen(self.address + path, data, timeout=10) as response:
            return json.load(response)

    def submit(self) -> str:
        """A job whose first try is never done in time, and whose next one is; the id of its run."""
        line = f'echo "$FORGEFLOW_ATTEMPT $(date +%s.%N)" >> {self.ledger}'
        unfinished = f"[ $FORGEFLOW_ATTEMPT = 1 ] || [ $i -lt {LINES} ]"
        command = f"i=0; while {unfinished}; do {line}; i=$((i + 1)); sleep 0.1; done; echo survived"
        body = {"name": "slow", "executor": "shell", "timeout_seconds": 120, "payload": {"command": command}}
        return str(self.call("/api/jobs", body)["latest_run_id"])

    def run(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call(f"/api/runs/{run_id}")
        return found

    def ledger_lines(self) -> list[tuple[float, int, str]]:
        if not self.ledger.exists():
            return []
        rows = [line.split() for line in self.ledger.read_text().splitlines()]
        return [(float(at), int(attempt), "line") for attempt, at in rows]


@contextlib.contextmanager
def running_fleet() -> Iterator[Fleet]:
    """Start a fleet, and stop it in the end, with all that it has left; its log is shown when not all is well."""
    folder = Path(tempfile.mkdtemp(prefix="forgeflow-chaos-"))
    folder.chmod(0o755)
    (folder / "job").mkdir()
    (folder / "job").chmod(0o777)
    address = f"127.0.0.1:{free_port()}"
    environment = {name: value for name, value in os.environ.items() if name != "FORGEFLOW_DATABASE_URL"}
    command = [sys.executable, "-m", "bench.cluster", "--listen", address, "--data-dir", str(folder / "state")]
    out, log = folder / "out", folder / "log"
    with out.open("wb") as stdout, log.open("wb") as stderr:
        # A session of its own: Ctrl-C is for us, who stop it in order.
        process = subprocess.Popen(command, env=environment, stdout=stdout, stderr=stderr, start_new_session=True)
    try:
        wait_for(
            lambda: "A fleet is up" in out.read_text() or process.poll() is not None,
            timeout_seconds=BOOT_SECONDS,
            why="the fleet starts",
        )
        assert process.poll() is None, "the fleet did not start"
        yield Fleet(f"http://{address}", folder)
    except BaseException:
        sys.stderr.write(log.read_text())
        raise
    finally:
        stop(process)
        Strays().kill_until_none()
        shutil.rmtree(folder, ignore_errors=True)


def stop(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGKILL):
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
            return


def prove(fleet: Fleet, config: Config) -> None:
    """Raises AssertionError with a sentence when the run does not go on elsewhere, in time and alone."""
    run_id = fleet.submit()
    first = wait_for(lambda: running(fleet, run_id, attempt=1), why="a node takes the job")
    wait_for(fleet.ledger_lines, why="the job writes its ledger")
    victim = first["worker_id"]
    killed_at = time.time()
    count = kill_tree(living_nodes(fleet.address)[victim])
    tell(0.0, f"{victim}, which has the run, is killed: {count} processes")

    lease_at = instant(fleet.run(run_id)["lease_expires"])
    wait_for(lambda: time.time() >= lease_at, timeout_seconds=config.worker.lease_duration + 1)
    tell(lease_at - killed_at, "its lease has passed")
    deadline = time.monotonic() + bound_seconds(config)
    second = wait_for(
        lambda: running(fleet, run_id, attempt=2),
        timeout_seconds=round(deadline - time.monotonic()),
        why="another node takes the run over",
    )
    handed_back_at = instant(second["attempts"][0]["ended_at"])
    tell(handed_back_at - killed_at, "the run is handed back")
    tell(instant(second["started_at"]) - killed_at, f"taken over by {second['worker_id']}, attempt 2")
    assert second["worker_id"] in {*WORKERS} - {victim}, f"{second['worker_id']} took it over, of all nodes"
    assert handed_back_at >= lease_at, "it was handed back before the lease had passed"

    last = wait_for(
        lambda: finished(fleet, run_id), timeout_seconds=max(0.0, deadline - time.monotonic()), why="the run ends"
    )
    tell(instant(last["finished_at"]) - killed_at, f"ended on {last['worker_id']}: {last['status']}")
    assert (last["status"], last["attempt"]) == ("succeeded", 2), f"it ended {last['status']}: {last['error']}"
    check_ledger(fleet.ledger_lines())


def check_ledger(lines: list[tuple[float, int, str]]) -> None:
    counts = [sum(attempt == number for _, attempt, _ in lines) for number in (1, 2)]
    assert not has_overlap(lines), "the first attempt went on beside the second one"
    assert counts[1] == LINES, f"the second attempt wrote {counts[1]} lines, expected {LINES}"
    sys.stdout.write(
        f"ledger: {counts[0]} line{'s' * (counts[0] != 1)} of attempt 1, then {counts[1]} of attempt 2, no overlap\n"
    )


def bound_seconds(config: Config) -> float:
    """From the end of the lease: who looks for it, the wait before the next try, the job."""
    worker = config.worker
    return worker.recovery_interval + config.retry.base + JOB_SECONDS + SLACK_SECONDS


def running(fleet: Fleet, run_id: str, *, attempt: int) -> dict[str, Any]:
    """The run while that attempt of it executes, or after; nothing before."""
    found = fleet.run(run_id)
    return found if found["status"] != "pending" and found["attempt"] == attempt else {}


def finished(fleet: Fleet, run_id: str) -> dict[str, Any]:
    found = fleet.run(run_id)
    return found if found["finished_at"] else {}


def instant(text: str) -> float:
    """Seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def tell(seconds: float, what: str) -> None:
    sys.stdout.write(f"{seconds:7.2f} s  {what}\n")
    sys.stdout.flush()


def interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    signal.signal(signal.SIGTERM, interrupt)
    become_subreaper()
    config = load_config(None)
    try:
        with running_fleet() as fleet:
            sys.stdout.write(f"a fleet of {1 + len(WORKERS)} nodes: {fleet.address}\n")
            prove(fleet, config)
    except (AssertionError, OSError) as error:
        sys.stderr.write(f"chaos: not as promised: {str(error).partition('; last value')[0]}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    sys.stdout.write("A dead node's run went on elsewhere, once, and nothing is left of the fleet.\n")
    return 0


if __name__ == "__main__":
    exit_with(main)
