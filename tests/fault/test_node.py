"""A node as it is: a master, its children, real jobs, real signals."""

import fcntl
import json
import os
import shlex
import signal
import uuid
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from forgeflow.service.lifecycle import cancel_job, trigger_job
from forgeflow.store import nodes, runs
from forgeflow.store.connection import Connection
from tests.support.processes import NodeProcess, children_of, descendants_of, ended, processes_marked, run_count, title
from tests.support.waiting import wait_for
from tests.support.work import only_run, submit, wait_for_status

StartNode = Callable[..., NodeProcess]


def marked(command: str = "sleep 60") -> tuple[str, str]:
    """A command whose processes can be found, and how."""
    marker = uuid.uuid4().hex
    return f"{command} # {marker}", marker


def test_submitted_job_runs_at_once_and_its_output_is_kept(start_node: StartNode, connection: Connection) -> None:
    start_node().wait_for_log("node ready")
    job_id = submit(connection, "echo hello from forgeflow; echo oops >&2")
    run = wait_for_status(connection, job_id, "succeeded")
    assert (run.output_head, run.exit_code, run.attempt) == ("hello from forgeflow\noops\n", 0, 1)


def test_master_opens_no_database_connection_and_no_thread(start_node: StartNode, connection: Connection) -> None:
    """Its sockets are the pair that signals wake it by and one link to each child, no more."""
    node = start_node()
    node.wait_for_log("leadership won")
    wait_for_status(connection, submit(connection, "true"), "succeeded")
    wait_for(lambda: len(children_of(node.pid)) == 4, why="courier, scheduler and two workers")
    assert len(os.listdir(f"/proc/{node.pid}/task")) == 1
    links = [os.readlink(f"/proc/{node.pid}/fd/{name}") for name in os.listdir(f"/proc/{node.pid}/fd")]
    assert len([link for link in links if link.startswith("socket:")]) == 2 + 4


def test_killed_worker_is_replaced_and_its_run_succeeds_on_the_second_try(
    start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    node = start_node()
    node.wait_for_log("node ready")
    first = tmp_path / "first"
    job_id = submit(connection, f"test -e {first} && exit 0; touch {first}; sleep 60")
    wait_for(first.exists)
    (victim,) = [worker for worker in node.workers() if children_of(worker)]
    os.kill(victim, signal.SIGKILL)
    run = wait_for_status(connection, job_id, "succeeded")
    assert (run.attempt, run.failures) == (2, 1)
    (attempt,) = runs.list_attempts(connection, run_id=run.id)
    assert (attempt.error_type, attempt.error, attempt.charged) == ("crashed", "its worker died: signal 9", True)
    wait_for(lambda: len(node.workers()) == 2)
    assert victim not in node.workers()


def test_tree_of_a_killed_worker_is_gone_before_its_run_starts_again(
    start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    """A daemon that left session and group and ignores TERM; the second try looks for it."""
    tmp_path.chmod(0o777)
    node = start_node()
    node.wait_for_log("node ready")
    tell = f"echo $BASHPID > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid"
    daemon = f"trap '' TERM HUP; {tell}; sleep 60; sleep 60"
    again = f"kill -0 $(cat {tmp_path}/pid) && exit 9; exit 0"
    command = f"if [ -e {tmp_path}/pid ]; then {again}; fi; (setsid bash -c {shlex.quote(daemon)} &); sleep 60"
    job_id = submit(connection, command)
    wait_for((tmp_path / "pid").exists)
    (victim,) = [worker for worker in node.workers() if descendants_of(worker)]
    os.kill(victim, signal.SIGKILL)
    run = wait_for_status(connection, job_id, "succeeded")
    assert run.attempt == 2


def test_deep_tree_of_a_killed_worker_is_gone_before_its_run_starts_again(
    start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    """Forty sessions deep: each round of killing uncovers the next level, and the recovery has to wait for the last."""
    tmp_path.chmod(0o777)
    node = start_node()
    node.wait_for_log("node ready")
    nest = tmp_path / "nest"
    nest.write_text(
        f"#!/bin/sh\necho $$ >> {tmp_path}/pids\n[ $1 = 0 ] || setsid {nest} $(($1 - 1)) &\nsleep 60\nsleep 60\n"
    )
    nest.chmod(0o755)
    again = f"for pid in $(cat {tmp_path}/pids); do kill -0 $pid 2>/dev/null && exit 9; done; exit 0"
    job_id = submit(connection, f"if [ -e {tmp_path}/pids ]; then {again}; fi; {nest} 40", max_attempts=2)
    wait_for(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 41)
    (victim,) = [worker for worker in node.workers() if descendants_of(worker)]
    os.kill(victim, signal.SIGKILL)
    assert wait_for_status(connection, job_id, "succeeded").attempt == 2


def test_term_lets_a_running_job_finish(start_node: StartNode, connection: Connection) -> None:
    node = start_node()
    node.wait_for_log("node ready")
    job_id = submit(connection, "sleep 1; echo finished")
    wait_for_status(connection, job_id, "running")
    assert node.stop() == 0
    run = only_run(connection, job_id)
    assert (run.status, run.output_head) == ("succeeded", "finished\n")
    assert nodes.list_nodes(connection) == []
    assert connection.execute("SELECT count(*) FROM workers").fetchone() == (0,)


def test_term_starts_nothing_new_and_repeated_is_nothing(start_node: StartNode, connection: Connection) -> None:
    node = start_node(worker__concurrency="1")
    node.wait_for_log("node ready")
    first = submit(connection, "sleep 1")
    wait_for_status(connection, first, "running")
    second = submit(connection, "echo never here")
    for _ in range(3):
        node.signal(signal.SIGTERM)
    assert node.wait() == 0
    assert (only_run(connection, first).status, only_run(connection, second).status) == ("succeeded", "pending")


@pytest.mark.parametrize("how", ["quit", "second interrupt", "drain timeout"])
def test_hard_stop_hands_running_jobs_back_uncharged(start_node: StartNode, connection: Connection, how: str) -> None:
    node = start_node(worker__drain_timeout="1s" if how == "drain timeout" else "1h")
    node.wait_for_log("node ready")
    command, marker = marked("trap '' TERM; sleep 60; sleep 60")
    job_id = submit(connection, command)
    wait_for_status(connection, job_id, "running")
    wait_for(lambda: processes_marked(marker))
    if how == "quit":
        node.signal(signal.SIGQUIT)
    elif how == "drain timeout":
        node.signal(signal.SIGTERM)
    else:
        node.signal(signal.SIGINT)
        node.wait_for_log('"phase": "draining"')
        # The second one counts when a second has passed: keep pressing.
        wait_for(partial(has_ended_by, node, signal.SIGINT))
    assert node.wait() == 0
    run = only_run(connection, job_id)
    assert (run.status, run.failures, run.attempt) == ("pending", 0, 1)
    (attempt,) = runs.list_attempts(connection, run_id=run.id)
    assert (attempt.error_type, attempt.charged) == ("interrupted", False)
    assert not processes_marked(marker)


def has_ended_by(node: NodeProcess, number: int) -> bool:
    node.signal(number)
    return node.process.poll() is not None


def has_another(node: NodeProcess, role: str, before: int) -> bool:
    return any(title(pid).startswith(f"forgeflow: {role}") and pid != before for pid in children_of(node.pid))


def test_killed_courier_and_scheduler_are_replaced(start_node: StartNode, connection: Connection) -> None:
    node = start_node()
    node.wait_for_log("node ready")
    node.wait_for_log("leadership won")
    for role in ("courier", "scheduler"):
        before = node.child(role)
        os.kill(before, signal.SIGKILL)
        wait_for(partial(has_another, node, role, before))
    node.wait_for_log("leadership won", count=2)
    job_id = submit(connection, "true")
    wait_for_status(connection, job_id, "succeeded")


def test_killed_master_takes_everything_with_it_and_another_node_takes_over(
    start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    """With nothing above it that cleans up: its workers end what their jobs have started, one that is frozen, too."""
    tmp_path.chmod(0o777)
    first = start_node()
    first.wait_for_log("node ready")
    tree = f"(setsid sh -c 'trap \"\" TERM; echo $$ > {tmp_path}/daemon; sleep 60' &); trap '' TERM; sleep 60"
    command = f"[ -e {tmp_path}/go ] && exit 0; touch {tmp_path}/$FORGEFLOW_RUN_ID; {tree}"
    job_ids = [submit(connection, command) for _ in range(2)]
    wait_for(lambda: (tmp_path / "daemon").exists() and len(list(tmp_path.iterdir())) == 3)
    tree_pids = [first.pid, *descendants_of(first.pid)]
    os.kill(first.workers()[0], signal.SIGSTOP)
    (tmp_path / "go").touch()
    second = start_node()
    second.wait_for_log("node ready")
    first.signal(signal.SIGKILL)
    first.wait()
    wait_for(lambda: all(map(ended, tree_pids)), timeout_seconds=4.0, why="nothing of it is left")
    for job_id in job_ids:
        run = wait_for_status(connection, job_id, "succeeded")
        assert run.attempt == 2
        (attempt,) = runs.list_attempts(connection, run_id=run.id)
        assert (attempt.error_type, run.failures) == ("lost", 1)
    wait_for(lambda: len(nodes.list_nodes(connection)) == 1, why="the dead node is forgotten")


def test_job_that_is_being_stopped_when_its_master_dies_gets_no_more_grace(
    start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    """It has been told to end, and takes its time; its worker has none to give any more, though the lease is long."""
    tmp_path.chmod(0o777)
    node = start_node(worker__kill_grace="60s", worker__lease_duration="60s")
    node.wait_for_log("node ready")
    submit(connection, f"trap 'touch {tmp_path}/told' TERM; while :; do sleep 0.05; done", timeout_seconds=1)
    wait_for((tmp_path / "told").exists)
    tree = [node.pid, *descendants_of(node.pid)]
    node.signal(signal.SIGKILL)
    node.wait()
    wait_for(lambda: all(map(ended, tree)), timeout_seconds=10.0, why="nothing of it is left")


def test_idle_workers_wake_on_submission(start_node: StartNode, connection: Connection) -> None:
    """With beats and polls far apart only a notification can be the reason."""
    node = start_node(
        worker__lease_duration="5m",
        worker__heartbeat_interval="90s",
        worker__poll_interval="80s",
        worker__recovery_interval="80s",
        worker__concurrency="3",
    )
    node.wait_for_log("node ready")
    wait_for(lambda: len(node.workers()) == 3)
    for _ in range(5):
        job_ids = [submit(connection, "true") for _ in range(3)]
        for job_id in job_ids:
            wait_for_status(connection, job_id, "succeeded")


def test_retry_is_found_without_a_poll(start_node: StartNode, connection: Connection) -> None:
    node = start_node(
        worker__lease_duration="5m",
        worker__heartbeat_interval="90s",
        worker__poll_interval="80s",
        worker__recovery_interval="80s",
        retry__base="300ms",
        retry__cap="300ms",
    )
    node.wait_for_log("node ready")
    job_id = submit(connection, "exit 3", max_attempts=3)
    run = wait_for_status(connection, job_id, "dead")
    assert (run.attempt, run.failures, run.exit_code, run.error) == (3, 3, 3, "exit code 3")


def test_lost_listening_session_is_made_anew(start_node: StartNode, connection: Connection) -> None:
    node = start_node()
    node.wait_for_log("node ready")
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'forgeflow:courier%'"
    )
    node.wait_for_log("courier has no database")
    job_id = submit(connection, "true")
    wait_for_status(connection, job_id, "succeeded")


def test_workers_that_lost_their_sessions_are_replaced_and_no_run_is_lost(
    start_node: StartNode, connection: Connection
) -> None:
    node = start_node()
    node.wait_for_log("node ready")
    job_id = submit(connection, "sleep 1; echo done")
    wait_for_status(connection, job_id, "running")
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'forgeflow:%'"
        " AND pid <> pg_backend_pid()"
    )
    run = wait_for_status(connection, job_id, "succeeded")
    assert (run.attempt, run.output_head) == (1, "done\n")


def test_cancelled_job_is_stopped_while_it_runs(start_node: StartNode, connection: Connection) -> None:
    node = start_node()
    node.wait_for_log("node ready")
    command, marker = marked("trap '' TERM; sleep 60; sleep 60")
    job_id = submit(connection, command)
    wait_for(lambda: processes_marked(marker))
    cancel_job(connection, job_id)
    run = wait_for_status(connection, job_id, "cancelled")
    assert (run.error_type, run.failures) == ("cancelled", 0)
    assert not processes_marked(marker)


def test_cron_with_seconds_and_zone_fires_each_tick_once(start_node: StartNode, connection: Connection) -> None:
    start_node(server__roles="scheduler worker").wait_for_log("leadership won")
    job_id = submit(connection, "true", cron_expr="* * * * * *", timezone="Asia/Kolkata")
    wait_for(lambda: len(runs.list_runs(connection, job_id=job_id, status="succeeded", before=None, max_rows=9)) >= 4)
    rows = connection.execute(
        "SELECT tick_at, run_id FROM ticks WHERE job_id = %s ORDER BY tick_at", [job_id]
    ).fetchall()
    seconds = [int(tick.timestamp()) for tick, _ in rows]
    assert seconds == list(range(seconds[0], seconds[0] + len(seconds)))
    assert len({run_id for _, run_id in rows}) == len(rows)


def test_run_at_fires_once(start_node: StartNode, connection: Connection) -> None:
    start_node().wait_for_log("leadership won")
    row = connection.execute("SELECT to_char(now() + interval '1 s', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')").fetchone()
    assert row
    job_id = submit(connection, "true", run_at=row[0])
    run = wait_for_status(connection, job_id, "succeeded")
    assert run.trigger == "once"
    assert run.started_at
    assert run.started_at >= run.scheduled_for


def test_second_node_leads_when_the_leader_stops(start_node: StartNode, connection: Connection) -> None:
    first = start_node(server__roles="scheduler", scheduler__campaign_interval="1h")
    first.wait_for_log("leadership won")
    second = start_node(server__roles="scheduler", scheduler__campaign_interval="1h")
    wait_for(lambda: len(nodes.list_nodes(connection)) == 2)
    wait_for(
        lambda: (
            connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%leader%' OR query LIKE '%try_advisory%'"
            ).fetchone()
            != (0,)
        )
    )
    assert first.stop() == 0
    second.wait_for_log("leadership won")


def test_node_without_workers_runs_nothing(start_node: StartNode, connection: Connection) -> None:
    node = start_node(server__roles="scheduler")
    node.wait_for_log("leadership won")
    job_id = submit(connection, "true")
    assert node.workers() == []
    assert only_run(connection, job_id).status == "pending"


def test_crash_loop_backs_off_and_term_is_still_answered(start_node: StartNode, connection: Connection) -> None:
    connection.execute("ALTER TABLE schema_migrations RENAME TO hidden")
    node = start_node()
    assert node.wait() == 3
    assert "node cannot go on" in node.log_text()
    assert "forgeflow migrate" in node.log_text()
    assert node.log_text().count('"child died"') <= 12


def courier_deaths(node: NodeProcess) -> dict[int, datetime]:
    """How-manieth death in a row → when it was told."""
    told = [json.loads(line) for line in node.log_text().splitlines() if line.startswith("{") and line.endswith("}")]
    return {
        entry["deaths"]: datetime.fromisoformat(entry["timestamp"])
        for entry in told
        if entry["event"] == "child died" and entry["role"] == "courier"
    }


def test_child_that_fails_right_after_it_was_ready_is_forked_ever_more_slowly(
    start_node: StartNode, connection: Connection
) -> None:
    node = start_node()
    node.wait_for_log("node ready")
    connection.execute("ALTER TABLE queue RENAME TO hidden")
    deaths = wait_for(lambda: courier_deaths(node) if 4 in courier_deaths(node) else None, timeout_seconds=30)
    assert deaths
    assert (deaths[4] - deaths[1]).total_seconds() > 0.125 + 0.25 + 0.5
    connection.execute("ALTER TABLE hidden RENAME TO queue")
    wait_for_status(connection, submit(connection, "true"), "succeeded", timeout_seconds=40)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGPIPE])
def test_signals_that_mean_no_end_change_nothing(start_node: StartNode, connection: Connection, number: int) -> None:
    node = start_node()
    node.wait_for_log("node ready")
    wait_for(lambda: len(children_of(node.pid)) == 4)
    before = children_of(node.pid)
    for pid in (node.pid, *before):
        os.kill(pid, number)
    wait_for_status(connection, submit(connection, "true"), "succeeded")
    assert children_of(node.pid) == before or number == signal.SIGUSR2
    assert node.stop() == 0


def test_closed_pipe_on_stderr_stops_no_fork(start_node: StartNode, connection: Connection, database_url: str) -> None:
    reading, writing = os.pipe()
    node = start_node(log_to=writing)
    os.close(writing)
    wait_for(lambda: connection.execute("SELECT count(*) FROM workers").fetchone() == (2,))
    os.close(reading)
    before = set(node.workers())
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(set(node.workers()) - before) == 2)
    wait_for_status(connection, submit(connection, "true"), "succeeded")
    assert node.stop() == 0


def test_full_pipe_on_stderr_does_not_stop_the_node(start_node: StartNode, connection: Connection) -> None:
    """A log consumer that is stuck: jobs go on, leases too, TERM is answered."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    node = start_node(log_to=writing)
    os.close(writing)
    job_id = submit(connection, "true", paused=True)
    for _ in range(60):
        trigger_job(connection, job_id)
    wait_for(lambda: run_count(runs.count_runs(connection)) == {"succeeded": 60})
    assert node.stop() == 0
    os.close(reading)


def test_worker_whose_row_was_deleted_is_ended_and_its_run_goes_on_elsewhere(
    start_node: StartNode, connection: Connection
) -> None:
    node = start_node()
    node.wait_for_log("node ready")
    command, marker = marked()
    job_id = submit(connection, command)
    wait_for(lambda: processes_marked(marker))
    connection.execute("DELETE FROM workers AS w USING queue AS q WHERE q.boot_id = w.boot_id AND q.child = w.child")
    node.wait_for_log("its lease was taken back")
    wait_for(lambda: not processes_marked(marker) or only_run(connection, job_id).attempt > 1)


def test_database_that_is_away_at_start_is_waited_for(
    start_node: StartNode, connection: Connection, server_url: str
) -> None:
    with psycopg.connect(server_url, autocommit=True) as other:
        name = sql.Identifier(connection.info.dbname)
        other.execute(sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS false").format(name))
        node = start_node()
        node.wait_for_log("courier has no database")
        assert node.process.poll() is None
        other.execute(sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS true").format(name))
    node.wait_for_log("node ready")
    job_id = submit(connection, "true")
    wait_for_status(connection, job_id, "succeeded")


def test_ten_workers_of_two_nodes_execute_each_run_once(
    start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    """The jobs keep the ledger themselves: a line for each execution."""
    total = 300
    tmp_path.chmod(0o777)
    job_id = submit(connection, f'echo "$FORGEFLOW_RUN_ID" >> {tmp_path}/ledger', paused=True)
    for _ in range(total):
        trigger_job(connection, job_id)
    for _ in range(2):
        start_node(worker__concurrency="5")
    wait_for(lambda: run_count(runs.count_runs(connection)) == {"succeeded": total}, timeout_seconds=60)
    lines = (tmp_path / "ledger").read_text().split()
    assert len(lines) == len(set(lines)) == total


def test_jobs_are_told_which_run_they_are(start_node: StartNode, connection: Connection) -> None:
    start_node().wait_for_log("node ready")
    job_id = submit(connection, "env | grep ^FORGEFLOW_ | sort", name="a name")
    run = wait_for_status(connection, job_id, "succeeded")
    told = dict(line.split("=", 1) for line in run.output_head.splitlines())
    assert told.pop("FORGEFLOW_SCHEDULED_FOR").endswith("Z")
    assert int(told.pop("FORGEFLOW_PROGRESS_FD")) < 10  # what shells can write to
    assert told == {
        "FORGEFLOW_RUN_ID": str(run.id),
        "FORGEFLOW_ATTEMPT": "1",
        "FORGEFLOW_JOB_ID": str(job_id),
        "FORGEFLOW_JOB_NAME": "a name",
        "FORGEFLOW_TIMEZONE": "UTC",
        "FORGEFLOW_IS_CATCH_UP": "false",
    }


def test_kernel_that_needs_memory_takes_a_job_first_and_the_master_last(
    start_node: StartNode, connection: Connection
) -> None:
    node = start_node(worker__concurrency="1")
    score = "cat /proc/self/oom_score_adj"
    for _ in range(2):  # the worker's own score is what it was before the first job
        run = wait_for_status(connection, submit(connection, score), "succeeded")
        scores = [int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in (node.pid, *node.workers())]
        assert [*scores, int(run.output_head)] == [int(Path("/proc/self/oom_score_adj").read_text()), 500, 800]
