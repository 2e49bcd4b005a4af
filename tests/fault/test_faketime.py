"""Wall clocks that are wrong, or are set: a node's, which must not matter, and the server's, which schedules follow.

Here the clock of whole processes is another one; `test_clock` sets the one that ForgeFlow's statements see.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta

import psycopg
import pytest

from forgeflow.service.lifecycle import trigger_job
from forgeflow.store.connection import Connection
from tests.support.faketime import FakedClock, faked_clock, find_library, server_with
from tests.support.processes import NodeProcess, kill_tree, nodes, nothing_left_behind
from tests.support.ticking import assert_ticks_are_right, count, patient_connection, server_clock, ticks_of
from tests.support.waiting import wait_for
from tests.support.work import only_run, submit, wait_for_status

pytestmark = pytest.mark.proof

StartNode = Callable[..., NodeProcess]

HOUR, DAY = 3600, 86400
EVERY_SECOND = "* * * * * *"


@pytest.fixture
def clock() -> Iterator[FakedClock]:
    """Ask for it before what is started with it."""
    library = find_library()
    if library is None:
        pytest.skip("libfaketime is not installed; on Debian: apt-get install libfaketime")
    with faked_clock(library) as opened:
        yield opened


def last_said_at(node: NodeProcess) -> float:
    """By the node's own wall clock, seconds since the epoch."""
    last: str = json.loads(node.log_text().splitlines()[-1])["timestamp"]
    return datetime.fromisoformat(last).timestamp()


def wait_for_ticks_after(connection: Connection, moment: datetime, *, jobs: int = 1) -> None:
    late = f"SELECT count(DISTINCT job_id) FROM ticks WHERE tick_at > '{moment.isoformat()}'"
    wait_for(lambda: count(connection, late) == jobs, timeout_seconds=30.0, why=f"{jobs} jobs tick after {moment}")


@pytest.mark.parametrize(
    "settings",
    [[HOUR], [-HOUR], [DAY], [-DAY], [HOUR, -HOUR, DAY, -DAY, 90, -90, 1, 0]],
    ids=["an hour ahead", "an hour behind", "a day ahead", "a day behind", "set again and again"],
)
def test_wrong_clock_of_a_node_makes_nothing_early_or_late(
    clock: FakedClock, start_node: StartNode, connection: Connection, settings: list[int]
) -> None:
    """It leads, and works beside a node whose clock is right; then its machine dies."""
    clock.set(settings[0])
    wrong = start_node(environment=clock.environment, worker__id="wrong", worker__concurrency="3")
    wrong.wait_for_log("leadership won")
    assert abs(last_said_at(wrong) - time.time() - settings[0]) < 20, "its clock is as wrong as it shall be"
    long = submit(connection, "sleep 6; echo unharmed", name="long")
    doomed = submit(connection, "[ $FORGEFLOW_ATTEMPT = 1 ] && sleep 100; true", name="doomed")
    for job_id in (long, doomed):
        wait_for_status(connection, job_id, "running")
    right = start_node(worker__id="right")
    right.wait_for_log("node ready")
    soon = server_clock(connection) + timedelta(minutes=30)
    submit(connection, "true", name="tick", run_at=soon.isoformat())
    waiting = submit(connection, "true", name="retry", paused=True)
    with connection.transaction():
        run_id = trigger_job(connection, waiting).id
        connection.execute("UPDATE queue SET run_after = %s WHERE id = %s", [soon, run_id])
    submit(connection, "true", cron_expr=EVERY_SECOND)
    for seconds in settings:
        clock.set(seconds)
        now = server_clock(connection)
        wait_for_ticks_after(connection, now + timedelta(seconds=2))
    run = wait_for_status(connection, long, "succeeded")
    assert (run.attempt, run.output_head) == (1, "unharmed\n")
    assert only_run(connection, waiting).attempt == 0
    assert count(connection, "SELECT count(*) FROM runs JOIN jobs ON jobs.id = job_id WHERE name = 'tick'") == 0
    assert_nothing_was_early_or_late(connection)
    assert all("lease is ended" not in node.log_text() for node in (wrong, right))
    assert right.log_text().count("leadership won") == 0, "the wrong one led all the time"

    kill_tree(wrong.pid)
    wrong.wait()
    died_at = time.monotonic()
    wait_for(lambda: only_run(connection, doomed).attempt > 1)
    assert time.monotonic() - died_at < 6.0  # promised: lease, 2 s, and recovery interval, 0.5 s
    wait_for_ticks_after(connection, server_clock(connection))
    assert_ticks_are_right(connection)


def assert_nothing_was_early_or_late(connection: Connection) -> None:
    """By the server's clock; every tick within two seconds, every run within four."""
    wrong = "SELECT count(*) FROM ticks WHERE fired_at - tick_at NOT BETWEEN '0 s' AND '2 s'"
    assert count(connection, wrong) == 0
    wrong = "SELECT count(*) FROM finished_runs WHERE started_at - scheduled_for NOT BETWEEN '0 s' AND '4 s'"
    assert count(connection, wrong) == 0
    assert count(connection, "SELECT count(*) FROM tick_gaps WHERE reason <> 'paused'") == 0


def test_ticks_follow_the_servers_clock_when_it_is_set(clock: FakedClock) -> None:
    """A minute ahead: what lies between was not run, and each policy says how it is told. An hour back: a job whose
    clock stands ahead waits for its time, and fires nothing of the hour again; then the clock is right once more.
    """
    with ExitStack() as stack:
        server = stack.enter_context(server_with(clock))
        stack.enter_context(nothing_left_behind(ignore={server.pid}))
        connection = stack.enter_context(patient_connection(server.url))
        start = stack.enter_context(nodes())
        fleet = [start(server.url, server__roles="scheduler") for _ in range(2)]
        wait_for(lambda: any("leadership won" in node.log_text() for node in fleet))
        jobs = {
            policy: submit(connection, "true", name=policy, catch_up=policy, cron_expr=EVERY_SECOND)
            for policy in ("skip", "once", "all")
        }
        wait_for_ticks_after(connection, server_clock(connection), jobs=3)

        before = server_clock(connection)
        clock.set(60)
        assert server_clock(connection) - before > timedelta(seconds=60)
        wait_for_ticks_after(connection, server_clock(connection), jobs=3)
        assert_ticks_are_right(connection)
        assert gaps_of(connection) == {"skip", "once"}, "all wants the whole minute; the others, of it, one old tick"
        jump = ticks_of(connection, jobs["all"])
        assert jump[-1] - jump[0] == timedelta(seconds=len(jump) - 1)

        fired = {policy: ticks_of(connection, job_id) for policy, job_id in jobs.items()}
        clock.set(-HOUR)
        witness = submit(connection, "true", name="witness", catch_up="all", cron_expr=EVERY_SECOND)
        wait_for(lambda: len(ticks_of(connection, witness)) >= 3, timeout_seconds=30.0, why="passes are made")
        now = {policy: ticks_of(connection, job_id) for policy, job_id in jobs.items()}
        assert all(len(now[policy]) - len(fired[policy]) <= 2 for policy in jobs), "but for what was due at the moment"

        clock.set(60)
        wait_for_ticks_after(connection, server_clock(connection), jobs=4)
        assert_ticks_are_right(connection)
        jump = ticks_of(connection, jobs["all"])
        assert jump[-1] - jump[0] == timedelta(seconds=len(jump) - 1)
        caught_up = count(connection, f"SELECT count(*) FROM runs WHERE job_id = '{witness}' AND is_catch_up")
        assert caught_up == 10, "of the hour and a minute that the clock left out, the limit"


def gaps_of(connection: Connection) -> set[str]:
    """The names of the jobs that have ticks nobody ran."""
    rows = connection.execute("SELECT DISTINCT name FROM tick_gaps JOIN jobs ON jobs.id = job_id").fetchall()
    return {row[0] for row in rows}


def test_server_reads_the_clock_that_is_set_for_it(clock: FakedClock) -> None:
    """Else the tests here would prove nothing; durations are the true ones all the same."""
    with server_with(clock) as server, psycopg.connect(server.url, autocommit=True) as connection:
        for seconds in (DAY, -HOUR):
            clock.set(seconds)
            asked_at = time.monotonic()
            row = connection.execute(
                "SELECT extract(epoch FROM clock_timestamp())::float8 FROM pg_sleep(0.5)"
            ).fetchone()
            assert row
            assert 0.4 < time.monotonic() - asked_at < 5.0
            assert abs(row[0] - time.time() - seconds) < 2.0
