"""HUP: a new generation, proved before it takes over, and nothing lost on the way."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from psycopg.conninfo import make_conninfo

from forgeflow.service.lifecycle import trigger_job
from forgeflow.store import nodes, runs
from forgeflow.store.connection import Connection, connect
from tests.support.databases import config_for, drop_database, make_database
from tests.support.processes import NodeProcess, children_of, run_count, title
from tests.support.waiting import wait_for
from tests.support.work import only_run, submit, wait_for_status

StartNode = Callable[..., NodeProcess]


@pytest.fixture
def node(start_node: StartNode, tmp_path: Path) -> NodeProcess:
    """Its configuration is in a file."""
    tmp_path.chmod(0o777)
    started = start_node(config_file=tmp_path / "forgeflow.ini")
    started.wait_for_log("node ready")
    wait_for(lambda: len(idle_workers(started)) == 2)
    return started


def idle_workers(node: NodeProcess) -> list[int]:
    return [pid for pid in node.workers() if title(pid).endswith("idle")]


def generations(node: NodeProcess) -> list[str]:
    """What each child's title says, in words such as `worker 2`."""
    words = [title(pid).split() for pid in children_of(node.pid)]
    return sorted(f"{each[1]} {each[each.index('generation') + 1]}" for each in words if "generation" in each)


def reload(node: NodeProcess, **settings: str) -> None:
    """Returns when the new configuration holds; its children may not all be there yet."""
    before = node.log_text().count("configuration reloaded")
    node.configure(**settings)
    node.signal(signal.SIGHUP)
    node.wait_for_log("configuration reloaded", count=before + 1)


def test_reload_replaces_every_process_and_running_jobs_end_in_peace(
    node: NodeProcess, connection: Connection, tmp_path: Path
) -> None:
    running = submit(connection, f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo unharmed")
    wait_for_status(connection, running, "running")
    before = children_of(node.pid)
    reload(node)
    wait_for(lambda: "worker 2" in generations(node))
    quick = wait_for_status(connection, submit(connection, "true"), "succeeded")
    assert only_run(connection, running).status == "running"
    assert (quick.attempt, quick.failures) == (1, 0)
    (tmp_path / "go").touch()
    run = wait_for_status(connection, running, "succeeded")
    assert (run.attempt, run.output_head) == (1, "unharmed\n")
    wait_for(lambda: generations(node) == ["courier 2", "scheduler 2", "worker 2", "worker 2"])
    wait_for(lambda: not set(before) & set(children_of(node.pid)), why="a child on its way out has no title any more")
    assert "child died" not in node.log_text()
    assert node.stop() == 0


def reload_whole(node: NodeProcess, generation: int, **settings: str) -> None:
    """Returns when no child of the generation before is left."""
    reload(node, **settings)
    wait_for(lambda: {each.split()[1] for each in generations(node)} == {str(generation)})


def test_reload_makes_new_settings_hold(node: NodeProcess, connection: Connection) -> None:
    reload_whole(node, 2, executor__shell__workdir="/tmp")
    assert wait_for_status(connection, submit(connection, "pwd"), "succeeded").output_head == "/tmp\n"
    reload_whole(node, 3, executor__shell__workdir="/usr", worker__heartbeat_interval="590ms")
    assert wait_for_status(connection, submit(connection, "pwd"), "succeeded").output_head == "/usr\n"


def test_reload_changes_the_number_of_workers(node: NodeProcess, connection: Connection) -> None:
    reload(node, worker__concurrency="4")
    wait_for(lambda: generations(node) == ["courier 2", "scheduler 2", *["worker 2"] * 4])
    wait_for(lambda: [each.concurrency for each in nodes.list_nodes(connection)] == [4])
    reload(node, worker__concurrency="1")
    wait_for(lambda: generations(node) == ["courier 3", "scheduler 3", "worker 3"])
    reload(node, server__roles="worker")
    wait_for(lambda: generations(node) == ["courier 4", "worker 4"])
    assert node.stop() == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[worker\nconcurrency = 2\n", "expected a [section]"),
        ("[worker]\nconcurency = 2\n", "did you mean concurrency?"),
        ("[worker]\n", "no database is configured"),
        ("[database]\nurl = postgresql:///x\n[worker]\nheartbeat_interval = 20s\n", "heartbeat_interval is 20s"),
        ("[worker]\nconcurrency = 2\nhunter2@db/x = 3\n", "a line of [worker] is no setting"),
        ("# " + "x" * 2_000_000, "longer than 1 MiB"),
        (None, "does not exist"),
    ],
    ids=["syntax", "unknown key", "no database", "intervals", "no key", "huge", "missing"],
)
def test_broken_file_changes_nothing_and_says_why(
    node: NodeProcess, connection: Connection, text: str | None, reason: str
) -> None:
    assert node.config_file
    before = children_of(node.pid)
    if text is None:
        node.config_file.unlink()
    else:
        node.config_file.write_text(text)
    node.signal(signal.SIGHUP)
    node.wait_for_log("reload failed")
    assert reason in node.log_text()
    assert "Traceback" not in node.log_text()
    wait_for_status(connection, submit(connection, "true"), "succeeded")
    assert children_of(node.pid) == before
    reload(node)
    wait_for(lambda: generations(node) == ["courier 2", "scheduler 2", "worker 2", "worker 2"])


def test_pipe_instead_of_a_file_does_not_hang_the_master(node: NodeProcess, connection: Connection) -> None:
    assert node.config_file
    node.config_file.unlink()
    os.mkfifo(node.config_file)
    node.signal(signal.SIGHUP)
    node.wait_for_log("is a pipe; expected a file")
    wait_for_status(connection, submit(connection, "true"), "succeeded")
    assert node.stop() == 0


@pytest.mark.parametrize("setting", ["executor__shell__workdir", "executor__shell__shell"])
def test_shell_that_cannot_start_a_command_is_not_taken_on(
    node: NodeProcess, connection: Connection, setting: str
) -> None:
    """Every run would be charged for it."""
    before = children_of(node.pid)
    node.configure(**{setting: "/nonexistent"})
    node.signal(signal.SIGHUP)
    node.wait_for_log("reload failed")
    assert "is /nonexistent, which" in node.log_text()
    wait_for_status(connection, submit(connection, "true"), "succeeded")
    assert children_of(node.pid) == before


def test_name_of_the_node_cannot_change(node: NodeProcess) -> None:
    before = children_of(node.pid)
    node.configure(worker__id="another")
    node.signal(signal.SIGHUP)
    node.wait_for_log("worker.id cannot change")
    assert children_of(node.pid) == before


@pytest.fixture
def empty_database(server_url: str) -> Iterator[str]:
    url = make_database(server_url)
    yield url
    drop_database(server_url, url)


def test_generation_that_cannot_boot_changes_nothing(
    node: NodeProcess, connection: Connection, empty_database: str
) -> None:
    """Its database has no schema."""
    before = children_of(node.pid)
    node.configure(database__url=empty_database)
    node.signal(signal.SIGHUP)
    node.wait_for_log("reload failed")
    assert "its first courier died: exit code 3" in node.log_text()
    wait_for_status(connection, submit(connection, "true"), "succeeded")
    assert children_of(node.pid) == before


def test_generation_that_hangs_changes_nothing(node: NodeProcess, connection: Connection, database_url: str) -> None:
    """Its database does not answer, and the worker waits for it, as it must."""
    before = children_of(node.pid)
    nowhere = make_conninfo(database_url, host="127.0.0.1", port=1)
    node.configure(database__url=nowhere, worker__spawn_timeout="1s")
    node.signal(signal.SIGHUP)
    node.wait_for_log("reload failed")
    assert "its first courier was not ready in time" in node.log_text()
    wait_for_status(connection, submit(connection, "true"), "succeeded")
    wait_for(lambda: children_of(node.pid) == before)


def test_new_database_is_followed_and_running_jobs_report_to_the_old_one(
    node: NodeProcess, connection: Connection, server_url: str, template: str
) -> None:
    """Longer than a lease: the old worker must be beaten for where it is registered, until it has ended."""
    running = submit(connection, "sleep 3; echo unharmed")
    wait_for_status(connection, running, "running")
    url = make_database(server_url, template=template)
    try:
        reload(node, database__url=url)
        with connect(config_for(url), "test") as elsewhere:
            wait_for_status(elsewhere, submit(elsewhere, "true"), "succeeded")
            assert only_run(connection, running).status == "running"
            run = wait_for_status(connection, running, "succeeded")
            assert (run.attempt, run.output_head) == (1, "unharmed\n")
            wait_for(lambda: generations(node) == ["courier 2", "scheduler 2", "worker 2", "worker 2"])
            wait_for_status(elsewhere, submit(elsewhere, "true"), "succeeded")
        assert node.stop() == 0
    finally:
        drop_database(server_url, url)


def test_old_courier_that_dies_after_a_move_is_replaced(
    node: NodeProcess, connection: Connection, server_url: str, template: str, tmp_path: Path
) -> None:
    """The new one renews leases elsewhere: without one of its own the old worker would lose its run."""
    running = submit(connection, f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo unharmed")
    wait_for_status(connection, running, "running")
    url = make_database(server_url, template=template)
    try:
        reload(node, database__url=url)
        wait_for(lambda: generations(node).count("worker 2") == 2)
        (old,) = [pid for pid in children_of(node.pid) if "courier" in title(pid) and "generation 1" in title(pid)]
        os.kill(old, signal.SIGKILL)
        row = connection.execute("SELECT max(lease_expires_at) FROM workers").fetchone()
        assert row
        wait_for(lambda: lease_goes_beyond(connection, row[0]), why="the lease is renewed by another one")
        (tmp_path / "go").touch()
        run = wait_for_status(connection, running, "succeeded")
        assert (run.attempt, run.output_head) == (1, "unharmed\n")
        wait_for(lambda: generations(node) == ["courier 2", "scheduler 2", "worker 2", "worker 2"])
        assert node.stop() == 0
        assert connection.execute("SELECT count(*) FROM nodes").fetchone() == (0,)
    finally:
        drop_database(server_url, url)


def lease_goes_beyond(connection: Connection, instant: object) -> bool:
    """By more than a lease: nobody took it for granted."""
    row = connection.execute(
        "SELECT max(lease_expires_at) > %s::timestamptz + interval '3 s' FROM workers", [instant]
    ).fetchone()
    return bool(row and row[0])


def test_scarce_connections_cost_a_reload_no_run(
    start_node: StartNode, connection: Connection, server_url: str, database_url: str, tmp_path: Path
) -> None:
    """The new courier gets none while the old workers live; until then the old one renews the new worker's lease."""
    role = f"poor_{uuid4().hex[:12]}"
    connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'poor' CONNECTION LIMIT 5 IN ROLE CURRENT_USER")
    tmp_path.chmod(0o777)
    url = make_conninfo(database_url, user=role, password="poor")
    node = start_node(config_file=tmp_path / "forgeflow.ini", database__url=url)
    try:
        node.wait_for_log("node ready")
        gated = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
        job_ids = [submit(connection, gated) for _ in range(3)]
        for job_id in job_ids[:2]:
            wait_for_status(connection, job_id, "running")
        reload(node)
        wait_for_status(connection, job_ids[2], "running")
        row = connection.execute("SELECT max(lease_expires_at) FROM workers").fetchone()
        assert row
        wait_for(lambda: lease_goes_beyond(connection, row[0]))
        (tmp_path / "go").touch()
        for job_id in job_ids:
            assert wait_for_status(connection, job_id, "succeeded").attempt == 1
        assert node.stop() == 0
    finally:
        node.stop()
        connection.execute(f"DROP ROLE {role}")


def test_new_database_with_a_living_node_of_our_name_changes_nothing(
    node: NodeProcess, start_node: StartNode, connection: Connection, server_url: str, template: str, tmp_path: Path
) -> None:
    url = make_database(server_url, template=template)
    try:
        twin = start_node(database__url=url, worker__id="twin")
        twin.wait_for_log("node ready")
        ours = start_node(config_file=tmp_path / "twin.ini", worker__id="twin")
        ours.wait_for_log("node ready")
        wait_for(lambda: len(idle_workers(ours)) == 2)
        before = children_of(ours.pid)
        ours.configure(database__url=url)
        ours.signal(signal.SIGHUP)
        ours.wait_for_log("reload failed")
        assert "another living node is called twin" in ours.log_text()
        wait_for(lambda: children_of(ours.pid) == before)
        assert twin.stop() == 0
    finally:
        drop_database(server_url, url)


class Census:
    """The most workers that were seen at once, looked at as often as possible."""

    def __init__(self, node: NodeProcess) -> None:
        self.most = 0
        self._node = node
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._count)

    def _count(self) -> None:
        while not self._is_over.is_set():
            self.most = max(self.most, len(self._node.workers()))

    def __enter__(self) -> "Census":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def test_reloads_that_come_together_are_one_more(node: NodeProcess, connection: Connection) -> None:
    """20 HUPs in half a second under load: no run lost or charged, and never more than one worker too many."""
    job = submit(connection, "sleep 0.05", paused=True)
    for _ in range(60):
        trigger_job(connection, job)
    pause = threading.Event()
    with Census(node) as census:
        for _ in range(20):
            node.signal(signal.SIGHUP)
            pause.wait(0.025)
        wait_for(lambda: run_count(runs.count_runs(connection)) == {"succeeded": 60}, timeout_seconds=40)
        node.wait_for_log("configuration reloaded")
        wait_for(lambda: len(generations(node)) == 4 and len({each.split()[1] for each in generations(node)}) == 1)
    assert census.most <= 3
    assert node.log_text().count("configuration reloaded") < 20
    row = connection.execute("SELECT count(*), sum(attempt), sum(failures) FROM finished_runs").fetchone()
    assert row == (60, 60, 0)
    assert "child died" not in node.log_text()


def test_many_reloads_over_long_jobs_pile_nothing_up(node: NodeProcess, connection: Connection) -> None:
    """100 HUPs in a second while both workers are busy: three workers at most, and both jobs end."""
    busy = [submit(connection, "sleep 4; echo unharmed") for _ in range(2)]
    for job_id in busy:
        wait_for_status(connection, job_id, "running")
    pause = threading.Event()
    with Census(node) as census:
        for _ in range(100):
            node.signal(signal.SIGHUP)
            pause.wait(0.01)
        for job_id in busy:
            run = wait_for_status(connection, job_id, "succeeded")
            assert (run.attempt, run.output_head) == (1, "unharmed\n")
        wait_for(lambda: len(generations(node)) == 4 and len({each.split()[1] for each in generations(node)}) == 1)
    assert census.most == 3


def test_term_during_a_reload_wins(node: NodeProcess, connection: Connection, database_url: str) -> None:
    """The first worker of the new generation is still waiting for its database."""
    running = submit(connection, "sleep 1; echo unharmed")
    wait_for_status(connection, running, "running")
    node.configure(database__url=make_conninfo(database_url, host="127.0.0.1", port=1))
    node.signal(signal.SIGHUP)
    node.wait_for_log("courier has no database")
    assert node.stop() == 0
    assert only_run(connection, running).output_head == "unharmed\n"


def test_reload_while_every_worker_is_busy_waits_for_room(
    node: NodeProcess, connection: Connection, tmp_path: Path
) -> None:
    """After the first reload three workers live, all busy; the second one comes when one of them has ended."""
    busy = [submit(connection, f"while [ ! -e {tmp_path}/go-{n} ]; do sleep 0.02; done") for n in range(3)]
    for job_id in busy[:2]:
        wait_for_status(connection, job_id, "running")
    reload(node)
    wait_for_status(connection, busy[2], "running")
    with Census(node) as census:
        node.configure(executor__shell__workdir="/tmp")
        node.signal(signal.SIGHUP)
        node.wait_for_log("reload waits until a worker ends")
        assert node.log_text().count("configuration reloaded") == 1
        (tmp_path / "go-0").touch()
        node.wait_for_log("configuration reloaded", count=2)
        for number in (1, 2):
            (tmp_path / f"go-{number}").touch()
        for job_id in busy:
            assert wait_for_status(connection, job_id, "succeeded").attempt == 1
        wait_for(lambda: generations(node) == ["courier 3", "scheduler 3", "worker 3", "worker 3"])
    assert census.most == 3


def test_reload_of_a_scheduler_only_node_hands_leadership_over(
    start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    node = start_node(config_file=tmp_path / "forgeflow.ini", server__roles="scheduler")
    node.wait_for_log("leadership won")
    submit(connection, "true", cron_expr="* * * * * *")
    wait_for(lambda: ticks(connection))
    reload(node)
    wait_for(lambda: generations(node) == ["courier 2", "scheduler 2"])
    before = len(ticks(connection))
    wait_for(lambda: len(ticks(connection)) > before + 1)
    seconds = ticks(connection)
    assert seconds == list(range(seconds[0], seconds[0] + len(seconds)))
    assert node.log_text().count("leadership won") == 2


def ticks(connection: Connection) -> list[int]:
    rows = connection.execute("SELECT extract(epoch FROM tick_at)::bigint FROM ticks ORDER BY tick_at").fetchall()
    return [int(row[0]) for row in rows]


def test_reload_mends_a_node_that_found_no_database(
    start_node: StartNode, connection: Connection, database_url: str, tmp_path: Path
) -> None:
    """It has not even got its name yet, so nothing but its courier lives."""
    nowhere = make_conninfo(database_url, host="127.0.0.1", port=1)
    node = start_node(config_file=tmp_path / "forgeflow.ini", database__url=nowhere)
    node.wait_for_log("courier has no database")
    reload(node, database__url=database_url)
    wait_for_status(connection, submit(connection, "true"), "succeeded")
    wait_for(lambda: generations(node) == ["courier 2", "scheduler 2", "worker 2", "worker 2"])


@pytest.mark.parametrize("reloads", [5, pytest.param(200, marks=pytest.mark.proof)])
def test_many_reloads_leave_memory_and_descriptors_flat(node: NodeProcess, reloads: int) -> None:
    def descriptors() -> int:
        return len(os.listdir(f"/proc/{node.pid}/fd"))

    def memory() -> int:
        return int(Path(f"/proc/{node.pid}/statm").read_text().split()[1]) * 4

    def settle(generation: int) -> None:
        reload(node)
        wait_for(
            lambda: (
                generations(node)
                == [f"{role} {generation}" for role in ("courier", "scheduler")] + [f"worker {generation}"] * 2
            )
        )

    for number in range(3):
        settle(2 + number)
    before = descriptors(), memory()
    for number in range(reloads):
        settle(5 + number)
    wait_for(lambda: descriptors() <= before[0], why="nothing is open that was not before")
    assert memory() - before[1] < 1024, "KiB"
