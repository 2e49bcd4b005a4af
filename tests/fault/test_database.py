"""PostgreSQL may stop, restart, be full or be cut off at any time."""

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from forgeflow.embedded import EmbeddedServer, start_server, stop_server
from forgeflow.service.lifecycle import trigger_job
from forgeflow.store import runs
from forgeflow.store.connection import Connection, connect
from tests.fault.test_leadership import assert_each_second_once
from tests.support.databases import config_for, make_database, make_template
from tests.support.processes import NodeProcess, children_of, nodes, nothing_left_behind, run_count, title
from tests.support.waiting import wait_for
from tests.support.wire import Mode, Wire
from tests.support.work import only_run, refuse, submit, wait_for_status

StartNode = Callable[..., NodeProcess]


class OwnServer:
    """A server of these tests' own, which they may stop; `new_database` gives each of them a database on it.

    What was committed outlives its end, though not a crash of the machine.
    """

    def __init__(self, state: Path) -> None:
        self._state = state
        self.pids: set[int] = set()
        self.server = self._start()
        self._template = make_template(self.server.url)
        self.url = ""

    def _start(self) -> EmbeddedServer:
        server = start_server(self._state, max_connections=30, settings={"fsync": "off", "full_page_writes": "off"})
        self.pids.add(server.pid)
        return server

    def new_database(self) -> None:
        self.url = make_database(self.server.url, template=self._template)

    def connect(self) -> Connection:
        return connect(config_for(self.url), "test")

    def restart(self, number: int) -> None:
        """End it with that signal, and start it again; the URL stays the same."""
        os.kill(self.server.pid, number)
        stop_server(self.server)
        self.server = self._start()


@pytest.fixture(scope="module")
def own_server() -> Iterator[OwnServer]:
    state = Path(tempfile.mkdtemp(prefix="forgeflow-own-"))
    state.chmod(0o755)
    server = OwnServer(state)
    try:
        yield server
    finally:
        stop_server(server.server)
        shutil.rmtree(state, ignore_errors=True)


@pytest.fixture
def own(own_server: OwnServer) -> OwnServer:
    own_server.new_database()
    return own_server


@pytest.fixture
def start_on(own: OwnServer) -> Iterator[Callable[..., NodeProcess]]:
    with nothing_left_behind(ignore=own.pids), nodes() as start:
        yield lambda **settings: start(own.url, **settings)


def events(node: NodeProcess) -> list[tuple[str, str]]:
    told = (json.loads(line) for line in node.log_text().splitlines() if line.startswith("{"))
    return [(entry.get("role", "master"), entry["event"]) for entry in told]


def test_database_stopped_for_long_leaves_the_master_answering(
    own: OwnServer, start_on: StartNode, tmp_path: Path
) -> None:
    """Every process of the server is frozen: connections hang, and only our own deadlines end the waits."""
    node = start_on()
    node.wait_for_log("node ready")
    frozen = [own.server.pid, *children_of(own.server.pid)]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        node.wait_for_log("courier has no database")
        victim = node.child("courier")
        os.kill(victim, signal.SIGKILL)
        asked_at = time.monotonic()
        wait_for(lambda: victim not in children_of(node.pid), why="the master reaps")
        node.signal(signal.SIGTERM)
        node.wait_for_log('"phase": "draining"')
        assert time.monotonic() - asked_at < 4.0  # promised: 1 s
        assert node.wait() == 0
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)


def test_restart_of_the_database_loses_no_run_and_costs_one_line_per_change(
    own: OwnServer, start_on: StartNode
) -> None:
    node = start_on()
    node.wait_for_log("leadership won")
    with own.connect() as connection:
        job_id = submit(connection, "true", paused=True)
        for _ in range(50):
            trigger_job(connection, job_id)
    own.restart(signal.SIGINT)
    node.wait_for_log("courier has the database again")
    node.wait_for_log("scheduler has the database again")
    with own.connect() as connection:
        wait_for(lambda: run_count(runs.count_runs(connection)) == {"succeeded": 50})
        wait_for_status(connection, submit(connection, "true"), "succeeded")
    told = events(node)
    for role in ("courier", "scheduler"):
        assert told.count((role, f"{role} has no database")) == 1
        assert told.count((role, f"{role} has the database again")) == 1


@pytest.mark.parametrize("rounds", [8, pytest.param(300, marks=pytest.mark.proof)])
def test_sessions_ended_at_random_lose_no_run(start_node: StartNode, connection: Connection, rounds: int) -> None:
    node = start_node(worker__concurrency="3")
    node.wait_for_log("node ready")
    job_id = submit(connection, "sleep 0.0$(($$ % 10))", paused=True, max_attempts=50)
    total = rounds * 10
    for _ in range(total):
        trigger_job(connection, job_id)
    for _ in range(rounds):
        done = run_count(runs.count_runs(connection)).get("succeeded", 0)
        wait_for(lambda: run_count(runs.count_runs(connection)).get("succeeded", 0) > done or done == total)  # noqa: B023
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'forgeflow:%'"
            " AND pid <> pg_backend_pid() AND application_name <> 'forgeflow:test' ORDER BY random() LIMIT 2"
        )
    wait_for(lambda: run_count(runs.count_runs(connection)) == {"succeeded": total}, timeout_seconds=120)
    row = connection.execute("SELECT max(failures) FROM finished_runs").fetchone()
    assert row == (0,), "a lost session is no failure of the job"


def take_all_slots(url: str, hoard: ExitStack) -> None:
    for _ in range(100):
        hoard.enter_context(psycopg.connect(url))


def test_exhausted_connections_do_not_stop_the_beat(own: OwnServer, start_on: StartNode) -> None:
    """A node that is connected keeps its sessions, and with them its leases; others wait."""
    node = start_on()
    node.wait_for_log("leadership won")
    with own.connect() as connection, ExitStack() as hoard:
        wait_for(lambda: connection.execute("SELECT count(*) FROM workers").fetchone() == (2,))
        job_id = submit(connection, "sleep 3; echo unharmed")
        wait_for_status(connection, job_id, "running")
        with pytest.raises(psycopg.OperationalError, match=r"slots|too many"):
            take_all_slots(own.url, hoard)
        run = wait_for_status(connection, job_id, "succeeded")
        assert (run.output_head, run.attempt) == ("unharmed\n", 1)
        assert node.process.poll() is None


def test_cut_wire_is_noticed_and_healed(wire: Wire, start_node: StartNode, connection: Connection) -> None:
    """Black holes, not closed connections: nothing tells the node but its own deadlines."""
    node = start_node(database__url=wire.url, database__connect_timeout="1s")
    node.wait_for_log("leadership won")
    for number in range(2):
        with wire.broken(Mode.HOLE):
            node.wait_for_log("courier has no database", count=number + 1)
        node.wait_for_log("courier has the database again", count=number + 1)
        wait_for_status(connection, submit(connection, "true"), "succeeded")


def test_latency_makes_a_node_slower_and_nothing_else(
    wire: Wire, start_node: StartNode, connection: Connection
) -> None:
    """Every answer is 200 ms late; the intervals are a tenth of the defaults, but the tests' own would be too short."""
    tenth = {"worker__lease_duration": "3s", "worker__heartbeat_interval": "1s", "worker__statement_deadline": "900ms"}
    node = start_node(database__url=wire.url, **tenth)
    node.wait_for_log("leadership won")
    with wire.late(0.2):
        submit(connection, "true", name="cron", cron_expr="* * * * * *")
        job_ids = [submit(connection, "sleep 3; echo unharmed"), *(submit(connection, "true") for _ in range(4))]
        for job_id in job_ids:
            assert wait_for_status(connection, job_id, "succeeded").attempt == 1
        assert_each_second_once(connection)
    for trouble in ("has no database", "lost its connection", "child died", "killed", "fenced"):
        assert trouble not in node.log_text()


def test_slow_lock_on_the_queue_at_the_stop_charges_nobody(start_node: StartNode, connection: Connection) -> None:
    """The worker cannot report in time that we interrupted its run; that is no failure of the job either."""
    node = start_node()
    node.wait_for_log("node ready")
    job_id = submit(connection, "sleep 60", max_attempts=1)
    wait_for_status(connection, job_id, "running")
    with connection.transaction():
        connection.execute("LOCK TABLE queue IN ACCESS EXCLUSIVE MODE")
        node.signal(signal.SIGQUIT)
        node.wait_for_log("worker lost its connection")
    assert node.wait() == 0
    assert (only_run(connection, job_id).status, only_run(connection, job_id).failures) == ("pending", 0)


def test_long_lock_costs_no_lease_and_no_finished_result(start_node: StartNode, connection: Connection) -> None:
    """One job's row is held, one run of it has ended, another one's worker is dead: the rest of the node goes on."""
    node = start_node(worker__concurrency="3", worker__lease_duration="3s", worker__heartbeat_interval="1s")
    node.wait_for_log("node ready")
    held = submit(connection, "sleep 1; exit 7", max_attempts=1)
    killed = submit(connection, "sleep 60", name="killed", max_attempts=2)
    innocent = submit(connection, "sleep 8; echo unharmed")
    for job_id in (held, killed, innocent):
        wait_for_status(connection, job_id, "running")
    row = connection.execute(
        "SELECT w.child FROM workers AS w JOIN queue AS q ON q.boot_id = w.boot_id AND q.child = w.child"
        " WHERE q.job_id = %s",
        [killed],
    ).fetchone()
    assert row
    (victim,) = [pid for pid in node.workers() if f"worker {row[0]} " in title(pid)]
    with connection.transaction():
        connection.execute("SELECT FROM jobs WHERE id = ANY (%s) FOR UPDATE", [[held, killed]])
        os.kill(victim, signal.SIGKILL)
        node.wait_for_log("worker lost its connection")
        wait_for(lambda: only_run(connection, innocent).status == "succeeded", timeout_seconds=30)
    run = wait_for_status(connection, held, "dead")
    assert (run.exit_code, run.error_type) == (7, "failed")
    assert only_run(connection, innocent).attempt == 1
    wait_for(lambda: only_run(connection, killed).attempt == 2, why="the dead worker's run was handed back")


def busy_workers(node: NodeProcess) -> list[int]:
    return [pid for pid in node.workers() if " run " in title(pid)]


def test_long_lock_and_many_dead_workers_cost_no_lease(start_node: StartNode, connection: Connection) -> None:
    """Each recovery waits for the lock as long as it may; together they take longer than a lease."""
    node = start_node(
        worker__concurrency="7",
        worker__lease_duration="3s",
        worker__heartbeat_interval="950ms",
        worker__statement_deadline="900ms",
    )
    node.wait_for_log("node ready")
    job_id = submit(connection, "[ $FORGEFLOW_ATTEMPT = 1 ] && sleep 60; exit 0", paused=True)
    for _ in range(6):
        trigger_job(connection, job_id)
    wait_for(lambda: run_count(runs.count_runs(connection)) == {"running": 6})
    wait_for(lambda: len(busy_workers(node)) == 6, why="the claimed are begun")
    victims = busy_workers(node)
    innocent = submit(connection, "sleep 6; echo unharmed")
    wait_for_status(connection, innocent, "running")
    with connection.transaction():
        connection.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", [job_id])
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: only_run(connection, innocent).status != "running")
    assert (only_run(connection, innocent).status, only_run(connection, innocent).attempt) == ("succeeded", 1)
    wait_for(lambda: run_count(runs.count_runs(connection)) == {"succeeded": 7})
    assert "overran its budget" not in node.log_text()


def test_refused_output_does_not_keep_a_run_from_ending(start_node: StartNode, connection: Connection) -> None:
    refuse(connection, "NEW.output_head LIKE '%poison%'")
    node = start_node(worker__concurrency="1")
    node.wait_for_log("node ready")
    run = wait_for_status(connection, submit(connection, "echo poison"), "succeeded")
    assert (run.attempt, run.failures, run.output_bytes) == (1, 0, 7)
    assert "the database refused what the job printed" in run.output_head
    assert "this one not" in node.log_text()
    assert "child died" not in node.log_text()


def test_refused_error_does_not_keep_a_run_from_ending(start_node: StartNode, connection: Connection) -> None:
    for table in ("finished_runs", "attempts"):
        connection.execute(f"ALTER TABLE {table} ADD CONSTRAINT mild CHECK (error NOT LIKE '%code 3%')")
    node = start_node(worker__concurrency="1")
    node.wait_for_log("node ready")
    run = wait_for_status(connection, submit(connection, "exit 3", max_attempts=2), "dead")
    assert (run.attempt, run.failures, run.exit_code, run.error_type) == (2, 2, 3, "failed")
    assert "the database refused the error as it was" in (run.error or "")
    assert "child died" not in node.log_text()


def test_refused_output_does_not_keep_a_late_report_from_ending(start_node: StartNode, connection: Connection) -> None:
    """The session is lost meanwhile, so the worker reports over a new one."""
    refuse(connection, "NEW.output_head LIKE '%poison%'")
    node = start_node(worker__concurrency="1")
    node.wait_for_log("node ready")
    job_id = submit(connection, "echo poison; sleep 1")
    wait_for_status(connection, job_id, "running")
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'forgeflow:worker%'"
    )
    run = wait_for_status(connection, job_id, "succeeded")
    assert (run.attempt, run.output_bytes) == (1, 7)
    wait_for_status(connection, submit(connection, "true"), "succeeded")


def test_refused_tick_of_one_job_does_not_stop_others(start_node: StartNode, connection: Connection) -> None:
    node = start_node(server__roles="scheduler")
    node.wait_for_log("leadership won")
    refused = submit(connection, "true", cron_expr="* * * * * *")
    good = submit(connection, "true", cron_expr="* * * * * *")
    refuse(connection, f"NEW.job_id = '{refused}'", "queue")
    before = len(ticks_of(connection, refused))
    wait_for(lambda: len(ticks_of(connection, good)) > 3)
    node.wait_for_log("ticks of a job refused")
    assert len(ticks_of(connection, refused)) <= before + 1
    connection.execute("DROP TRIGGER refuse ON queue")
    wait_for(lambda: len(ticks_of(connection, refused)) > before + 3)
    for job_id in (good, refused):
        seconds = ticks_of(connection, job_id)
        assert seconds == list(range(seconds[0], seconds[0] + len(seconds)))
    assert node.log_text().count("ticks of a job refused") == 1
    assert "child died" not in node.log_text()


def ticks_of(connection: Connection, job_id: UUID) -> list[int]:
    rows = connection.execute(
        "SELECT extract(epoch FROM tick_at)::bigint FROM ticks WHERE job_id = %s ORDER BY tick_at", [job_id]
    ).fetchall()
    return [int(row[0]) for row in rows]


def test_refused_result_uses_up_the_tries(start_node: StartNode, connection: Connection) -> None:
    refuse(connection, "NEW.status = 'succeeded'")
    node = start_node(worker__concurrency="1", retry__base="10ms")
    node.wait_for_log("node ready")
    run = wait_for_status(connection, submit(connection, "echo done", max_attempts=2), "dead", timeout_seconds=30)
    assert (run.attempt, run.failures, run.error_type) == (2, 2, "refused")


def test_refused_recovery_does_not_stop_others(start_node: StartNode, connection: Connection) -> None:
    refuse(connection, "NEW.status = 'dead'")
    node = start_node(worker__concurrency="2")
    node.wait_for_log("node ready")
    poison = submit(connection, "kill -9 $PPID; sleep 60", max_attempts=1)
    node.wait_for_log("recovery refused")
    job_id = submit(connection, "[ $FORGEFLOW_ATTEMPT = 1 ] && kill -9 $PPID && sleep 60; echo done", max_attempts=2)
    wait_for_status(connection, job_id, "succeeded", timeout_seconds=30)
    assert node.log_text().count("recovery refused") == 1
    connection.execute("DROP TRIGGER refuse ON finished_runs")
    wait_for_status(connection, poison, "dead")


def test_server_that_takes_no_writes_is_waited_for(own: OwnServer, start_on: StartNode) -> None:
    node = start_on()
    node.wait_for_log("leadership won")
    with own.connect() as connection:
        connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        connection.execute("SELECT pg_reload_conf()")
        node.wait_for_log("has no database")
        connection.execute("SET default_transaction_read_only = off")
        connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
        connection.execute("SELECT pg_reload_conf()")
        wait_for_status(connection, submit(connection, "true"), "succeeded", timeout_seconds=40)
    assert "Traceback" not in node.log_text()
