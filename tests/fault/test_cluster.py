"""`make cluster` and `make chaos`, as a user has them: real fleets; nothing of them may be left."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fault.test_up import Up, descendants
from tests.support.commands import BARE
from tests.support.databases import INTERVALS
from tests.support.processes import ended, environment_name, nothing_left_behind
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**BARE, **{environment_name(name): value for name, value in INTERVALS.items()}}


@contextmanager
def cluster(database_url: str, folder: Path) -> Iterator[Up]:
    fleet = Up(folder)
    fleet.out, fleet.log = folder / "out", folder / "log"
    with nothing_left_behind(), fleet.out.open("wb") as out, fleet.log.open("wb") as log:
        fleet.process = subprocess.Popen(
            [sys.executable, "-m", "bench.cluster", "--listen", f"127.0.0.1:{fleet.port}"],
            cwd=ROOT,
            env={**ENVIRONMENT, "FORGEFLOW_DATABASE_URL": database_url},
            stdout=out,
            stderr=log,
        )
        try:
            wait_for(lambda: fleet.process.poll() is not None or "fleet is up" in fleet.out.read_text(), why="greeting")
            assert fleet.process.poll() is None, fleet.log.read_text()
            yield fleet
        finally:
            if fleet.process.poll() is None:
                fleet.kill()


def test_killed_node_of_a_cluster_stays_dead_with_all_it_started(database_url: str, tmp_path: Path) -> None:
    """Also what has escaped from its job; the others go on, and in the end all of them stop."""
    tmp_path.chmod(0o777)
    with cluster(database_url, tmp_path) as fleet:
        pids = {
            name: int(pid) for name, pid in re.findall(r"^  (\S+) +pid (\d+)$", fleet.out.read_text(), re.MULTILINE)
        }
        assert set(pids) == {"scheduler", "worker-1", "worker-2", "worker-3"}
        mark = tmp_path / "escaped"
        fleet.submit(f"[ -e {mark} ] || setsid sh -c 'echo $$ > {mark}; exec sleep 1000' & sleep 1000")
        escaped = int(wait_for(lambda: mark.exists() and mark.read_text().strip()))
        run = fleet.call("/api/runs?status=running")["items"][0]
        tree = [pids[run["worker_id"]], *descendants(pids[run["worker_id"]])]
        assert escaped in tree
        os.kill(tree[0], signal.SIGKILL)
        wait_for(lambda: all(map(ended, tree)), why="the end of the whole node")
        wait_for(lambda: f'"service died; it stays dead", "service": "{run["worker_id"]}"' in fleet.log.read_text())
        assert fleet.runs_a_job()
        assert len([pid for pid in descendants(fleet.process.pid) if pid in pids.values()]) == 3
        fleet.process.send_signal(signal.SIGQUIT)
        assert fleet.end() == 0
        assert fleet.out.read_text().endswith("ForgeFlow has stopped.\n")


def test_chaos_proves_that_a_dead_nodes_run_goes_on_elsewhere(server_url: str) -> None:
    """`server_url` is asked for so that its server is not taken for one of ours."""
    before = set(Path(tempfile.gettempdir()).glob("forgeflow-chaos-*"))
    with nothing_left_behind():
        done = subprocess.run(
            [sys.executable, "-m", "bench.chaos"],
            cwd=ROOT,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ("its lease has passed", "attempt 2", "succeeded", "no overlap"):
        assert line in done.stdout
    assert set(Path(tempfile.gettempdir()).glob("forgeflow-chaos-*")) <= before
