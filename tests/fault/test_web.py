"""The web process under signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.processes import children_of
from tests.support.waiting import wait_for
from tests.support.web import free_port


def worker_just_forked(pid: int, log: Path) -> int:
    """Before it has come far, so without a pause between two looks."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if "Listening at" in log.read_text() and (found := children_of(pid)):
            return found[0]
    raise AssertionError(log.read_text())


def test_worker_that_was_just_forked_hears_the_order_to_stop(database_url: str, tmp_path: Path) -> None:
    """It has no handlers yet, and is told only once."""
    environment = os.environ | {
        "FORGEFLOW_DATABASE_URL": database_url,
        "FORGEFLOW_LISTEN_ADDR": f"127.0.0.1:{free_port()}",
        "FORGEFLOW_SERVER_WORKERS": "1",
    }
    log = tmp_path / "log"
    with log.open("w") as sink:
        process = subprocess.Popen([sys.executable, "-m", "forgeflow.cli", "web"], env=environment, stderr=sink)
    try:
        worker = worker_just_forked(process.pid, log)
        os.kill(worker, signal.SIGSTOP)
        process.terminate()
        pending = f"ShdPnd:\t{1 << signal.SIGTERM - 1:016x}"
        wait_for(lambda: pending in Path(f"/proc/{worker}/status").read_text(), why="the order to stop")
        os.kill(worker, signal.SIGCONT)
        assert process.wait(timeout=10) == 0
    finally:
        for pid in (*children_of(process.pid), process.pid):
            if process.poll() is None:
                os.kill(pid, signal.SIGKILL)
        process.wait()
