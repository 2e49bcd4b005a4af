"""No job runs on after its lease could be taken, whoever is frozen or cut off."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from forgeflow.store import runs
from forgeflow.store.connection import Connection
from tests.support.processes import NodeProcess, children_of, descendants_of, processes_marked
from tests.support.waiting import wait_for
from tests.support.wire import Mode, Wire
from tests.support.work import Beacon, only_run, submit, wait_for_status

StartNode = Callable[..., NodeProcess]


@pytest.fixture
def beacon(tmp_path: Path) -> Beacon:
    return Beacon(tmp_path)


def lease_end(connection: Connection) -> float:
    """When the database would give the busy worker's runs away; wall clock of this machine."""
    row = connection.execute(
        "SELECT extract(epoch FROM w.lease_expires_at)::float8 FROM workers AS w"
        " JOIN queue AS q ON q.boot_id = w.boot_id AND q.child = w.child"
    ).fetchone()
    assert row
    return float(row[0])


def start_with_beacon(start_node: StartNode, connection: Connection, beacon: Beacon, **settings: str) -> NodeProcess:
    node = start_node(database__url=settings.pop("database__url"), **settings)
    node.wait_for_log("node ready")
    submit(connection, beacon.command, name="beacon")
    wait_for(beacon.is_lit)
    return node


def busy_worker(node: NodeProcess) -> int:
    (pid,) = [worker for worker in node.workers() if children_of(worker)]
    return pid


def wait_until_dark(beacon: Beacon, lease_end_at: float) -> None:
    """Wait past the end of the lease, which is a fact of the clock, and see that the job was dead before it."""
    wait_for(lambda: time.time() > lease_end_at + 0.3, why="the lease has passed")
    assert beacon.last_seen() < lease_end_at


def test_job_of_a_node_without_database_is_dead_before_its_lease_can_pass(
    wire: Wire, start_node: StartNode, connection: Connection, beacon: Beacon
) -> None:
    node = start_with_beacon(start_node, connection, beacon, database__url=wire.url)
    with wire.broken(Mode.HOLE):
        wait_until_dark(beacon, lease_end(connection))
    (run,) = runs.list_runs(connection, job_id=None, status=None, before=None, max_rows=5)
    assert run.failures == 0
    again = wait_for_status(connection, run.job_id, "succeeded")
    assert (again.output_head, again.failures) == ("again\n", 0)
    assert node.process.poll() is None


def test_job_of_a_frozen_worker_is_killed_by_the_master_before_its_lease_can_pass(
    wire: Wire, start_node: StartNode, connection: Connection, beacon: Beacon
) -> None:
    node = start_with_beacon(start_node, connection, beacon, database__url=wire.url)
    frozen = busy_worker(node)
    os.kill(frozen, signal.SIGSTOP)
    with wire.broken(Mode.HOLE):
        wait_until_dark(beacon, lease_end(connection))
    assert frozen not in node.workers()


def test_job_under_a_frozen_master_is_killed_by_its_worker_before_its_lease_can_pass(
    start_node: StartNode, connection: Connection, beacon: Beacon, database_url: str
) -> None:
    """Another node does what there is to do meanwhile; the master goes on when it wakes, and blames nobody."""
    longer = {"worker__lease_duration": "3s", "worker__fence_margin": "1500ms"}  # time to report before it passes
    node = start_with_beacon(start_node, connection, beacon, database__url=database_url, **longer)
    (idle,) = [pid for pid in node.workers() if pid != busy_worker(node)]
    (fenced,) = runs.list_runs(connection, job_id=None, status=None, before=None, max_rows=5)
    second = start_node()
    second.wait_for_log("node ready")
    node.signal(signal.SIGSTOP)
    try:
        end_at = lease_end(connection)
        assert executing_nodes(connection, [submit(connection, "true") for _ in range(4)], node, second) == {second}
        # Its signal ends the master's wait, when it wakes, before it has read what the living have said meanwhile.
        os.kill(idle, signal.SIGKILL)
        wait_until_dark(beacon, end_at)
        again = wait_for_status(connection, fenced.job_id, "succeeded")
    finally:
        node.signal(signal.SIGCONT)
    assert (again.output_head, again.failures) == ("again\n", 0)
    assert second.stop() == 0
    assert executing_nodes(connection, [submit(connection, "true") for _ in range(4)], node) == {node}
    assert "overran its budget" not in node.log_text()


def executing_nodes(connection: Connection, job_ids: list[UUID], *nodes: NodeProcess) -> set[NodeProcess]:
    """Who of the nodes has executed these jobs, each once, in the end."""
    done = [wait_for_status(connection, job_id, "succeeded") for job_id in job_ids]
    assert {(run.attempt, run.failures) for run in done} == {(1, 0)}
    return {node for node in nodes for run in done if str(run.worker_id).endswith(f"-{node.pid}")}


def test_node_that_was_frozen_past_its_lease_kills_its_jobs_on_its_first_turn(
    start_node: StartNode, connection: Connection, beacon: Beacon, database_url: str
) -> None:
    """Nobody can fence while all are frozen; another node has the run meanwhile, and the old one's word is void."""
    node = start_with_beacon(start_node, connection, beacon, database__url=database_url)
    (run,) = runs.list_runs(connection, job_id=None, status=None, before=None, max_rows=5)
    jobs = descendants_of(busy_worker(node))
    tree = [node.pid, *descendants_of(node.pid)]
    for pid in tree:
        with contextlib.suppress(ProcessLookupError):  # the beacon sleeps for a moment at a time
            os.kill(pid, signal.SIGSTOP)
    try:
        second = start_node()
        second.wait_for_log("node ready")
        taken = wait_for_status(connection, run.job_id, "succeeded")
    finally:
        for pid in tree:
            with contextlib.suppress(ProcessLookupError):  # the master, awake already, may have ended it
                os.kill(pid, signal.SIGCONT)
    assert taken.attempt == 2
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in jobs), why="the old try is dead")
    assert only_run(connection, run.job_id) == taken


def test_job_that_may_continue_outlives_the_lease_and_its_late_result_is_dropped(
    wire: Wire, start_node: StartNode, connection: Connection, tmp_path: Path, database_url: str
) -> None:
    tmp_path.chmod(0o777)
    node = start_node(database__url=wire.url)
    node.wait_for_log("node ready")
    command = f"echo begun >> {tmp_path}/ledger; sleep 4; echo ended >> {tmp_path}/ledger"
    job_id = submit(connection, command, on_lease_loss="continue")
    wait_for((tmp_path / "ledger").exists)
    with wire.broken(Mode.HOLE):
        second = start_node(database__url=database_url)
        second.wait_for_log("node ready")
        wait_for(lambda: only_run(connection, job_id).attempt == 2, why="another node has the run")
    run = wait_for_status(connection, job_id, "succeeded")
    assert run.attempt == 2
    wait_for(lambda: (tmp_path / "ledger").read_text().count("ended") == 2, why="both tries went on to their end")
    # Either the late result meets the fence, or the worker is ended before: its row is gone.
    wait_for(lambda: "stale result dropped" in node.log_text() or "its lease was taken back" in node.log_text())
    assert only_run(connection, job_id) == run


def test_tree_that_has_escaped_its_job_is_dead_before_the_lease_can_pass(
    wire: Wire, start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    beacon = Beacon(tmp_path, escapes=True)
    node = start_with_beacon(start_node, connection, beacon, database__url=wire.url)
    assert len(descendants_of(busy_worker(node))) >= 5, "the command, and four levels that have escaped it"
    with wire.broken(Mode.HOLE):
        wait_until_dark(beacon, lease_end(connection))
        assert processes_marked(str(tmp_path)) == []


def test_tree_that_may_continue_goes_on_past_the_lease_beside_one_that_is_killed(
    wire: Wire, start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    """Two workers of one node under the same outage; both trees have escaped their jobs."""
    (tmp_path / "killed").mkdir()
    (tmp_path / "going").mkdir()
    killed, going = Beacon(tmp_path / "killed", escapes=True), Beacon(tmp_path / "going", escapes=True)
    start_with_beacon(start_node, connection, killed, database__url=wire.url)
    submit(connection, going.command, on_lease_loss="continue")
    wait_for(going.is_lit)
    with wire.broken(Mode.HOLE):
        lease_end_at = lease_end(connection)
        wait_until_dark(killed, lease_end_at)
        wait_for(lambda: going.last_seen() > lease_end_at + 0.3, timeout_seconds=5.0, why="it goes on")


def test_short_outage_of_the_database_costs_no_job(
    wire: Wire, start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    node = start_node(database__url=wire.url, worker__lease_duration="6s")
    node.wait_for_log("node ready")
    job_id = submit(connection, f"touch {tmp_path}/begun; sleep 2; echo unharmed")
    wait_for((tmp_path / "begun").exists)
    with wire.broken(Mode.HOLE):
        node.wait_for_log("courier has no database")
    run = wait_for_status(connection, job_id, "succeeded")
    assert (run.output_head, run.attempt) == ("unharmed\n", 1)


def test_answer_lost_after_the_claim_returns_the_run_unbegun(
    wire: Wire, start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    """The claim commits, the worker never hears of it: the run comes back, and no try is charged."""
    tmp_path.chmod(0o777)
    node = start_node(database__url=wire.url, worker__concurrency="1")
    node.wait_for_log("node ready")
    submit(connection, f"touch {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done")
    wait_for((tmp_path / "begun").exists)
    lost = submit(connection, "echo done")
    with wire.broken(Mode.DEAF):
        (tmp_path / "go").touch()
        wait_for(lambda: only_run(connection, lost).status == "running", why="the turn has claimed it")
        node.wait_for_log("worker lost its connection")
    run = wait_for_status(connection, lost, "succeeded")
    assert (run.failures, run.output_head) == (0, "done\n")
    assert runs.list_attempts(connection, run_id=run.id) == []


def test_answer_lost_after_the_finish_is_no_second_execution(
    wire: Wire, start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    node = start_node(database__url=wire.url, worker__concurrency="1", worker__lease_duration="6s")
    node.wait_for_log("node ready")
    command = f"echo once >> {tmp_path}/ledger; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    job_id = submit(connection, command)
    wait_for((tmp_path / "ledger").exists)
    with wire.broken(Mode.DEAF):
        (tmp_path / "go").touch()
        run = wait_for_status(connection, job_id, "succeeded")
        node.wait_for_log("worker lost its connection")
    node.wait_for_log("stale result dropped")
    assert only_run(connection, job_id) == run
    assert (tmp_path / "ledger").read_text() == "once\n"


# A worker whose master freezes may begin runs for a while then, and for a long while not, before its lease passes.
LEASE, BEAT, MARGIN = 7.0, 2.2, 4.2
RUNNING_LOW = {
    "worker__concurrency": "1",
    "worker__lease_duration": f"{LEASE}s",
    "worker__heartbeat_interval": f"{BEAT}s",
    "worker__statement_deadline": "2s",
    "worker__fence_margin": f"{MARGIN}s",
}


def seconds_to_begin(connection: Connection) -> float:
    """How long the busy worker may still begin a run; negative when it may not."""
    return lease_end(connection) - MARGIN - time.time()


def start_with_two_jobs(
    start_node: StartNode, connection: Connection, folder: Path, url: str
) -> tuple[NodeProcess, UUID, UUID]:
    """A node whose worker executes the first job until `go` is there, and whose master is frozen between two beats."""
    folder.chmod(0o777)
    node = start_node(database__url=url, **RUNNING_LOW)
    node.wait_for_log("node ready")
    command = f"touch {folder}/begun; while [ ! -e {folder}/go ]; do sleep 0.02; done"
    first = submit(connection, command, on_lease_loss="continue")
    wait_for((folder / "begun").exists)
    second = submit(connection, "echo $FORGEFLOW_ATTEMPT")
    # Between two beats: the lease that the database knows is the one in the shared page.
    wait_for(lambda: LEASE - BEAT + 0.5 < lease_end(connection) - time.time() < LEASE - 0.3)
    node.signal(signal.SIGSTOP)
    return node, first, second


def test_run_is_not_claimed_on_a_lease_that_has_run_low(
    start_node: StartNode, connection: Connection, tmp_path: Path, database_url: str
) -> None:
    node, first, second = start_with_two_jobs(start_node, connection, tmp_path, database_url)
    try:
        wait_for(lambda: seconds_to_begin(connection) < -0.1)
        (tmp_path / "go").touch()
        wait_for_status(connection, first, "succeeded")
        # What claims is the very transaction that has finished the first one.
        assert (only_run(connection, second).status, only_run(connection, second).attempt) == ("pending", 0)
    finally:
        node.signal(signal.SIGCONT)
    run = wait_for_status(connection, second, "succeeded")
    assert (run.output_head, run.attempt, run.failures) == ("1\n", 1, 0)


def test_claimed_run_is_not_begun_on_a_lease_that_has_run_low_on_the_way(
    wire: Wire, start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    """The claim was sent in time, its answer comes too late: the run goes back untouched, and to another worker."""
    node, first, second = start_with_two_jobs(start_node, connection, tmp_path, wire.url)
    try:
        wait_for(lambda: seconds_to_begin(connection) < 1.0)
        with wire.late(60.0):
            (tmp_path / "go").touch()
            wait_for(lambda: only_run(connection, second).status == "running", why="the claim is committed")
            wait_for(lambda: seconds_to_begin(connection) < -0.1)
        node.wait_for_log("worker lost its connection", timeout_seconds=5.0)
    finally:
        node.signal(signal.SIGCONT)
    run = wait_for_status(connection, second, "succeeded")
    assert (run.output_head, run.attempt, run.failures) == ("2\n", 2, 0)
    assert runs.list_attempts(connection, run_id=run.id) == []
    assert only_run(connection, first).attempt == 1
