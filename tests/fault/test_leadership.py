"""A leader that dies, freezes or loses its session; servers that must not be led over."""

import os
import signal
import time
from collections.abc import Callable
from datetime import datetime, timedelta

import psycopg
import pytest

from forgeflow.store.connection import Connection
from tests.support.processes import NodeProcess, children_of, title
from tests.support.waiting import wait_for
from tests.support.wire import Wire
from tests.support.work import submit

StartNode = Callable[..., NodeProcess]


def fired_seconds(connection: Connection) -> list[int]:
    rows = connection.execute("SELECT extract(epoch FROM tick_at)::bigint FROM ticks ORDER BY tick_at").fetchall()
    return [int(row[0]) for row in rows]


def assert_each_second_once(connection: Connection) -> None:
    seconds = fired_seconds(connection)
    assert seconds == list(range(seconds[0], seconds[0] + len(seconds)))
    doubled = connection.execute(
        "SELECT count(*) - count(DISTINCT tick_at) FROM runs WHERE trigger = 'cron'"
    ).fetchone()
    assert doubled == (0,)


def two_schedulers(start_node: StartNode, **settings: str) -> tuple[NodeProcess, NodeProcess]:
    """The leader, and a standby that is connected."""
    first = start_node(server__roles="scheduler", **settings)
    first.wait_for_log("leadership won")
    second = start_node(server__roles="scheduler", **settings)
    wait_for(lambda: len([pid for pid in children_of(second.pid) if "scheduler" in title(pid)]) == 1)
    return first, second


def asked_for_the_lock(connection: Connection) -> int:
    """How many schedulers have asked; a standby waits after that, for its whole interval if nobody resigns."""
    row = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'forgeflow:scheduler%'"
        " AND state = 'idle' AND query NOT LIKE 'LISTEN%'"
    ).fetchone()
    assert row
    return int(row[0])


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.proof)])
def test_killed_leader_is_replaced_and_no_tick_is_lost_or_doubled(
    start_node: StartNode, connection: Connection, kills: int
) -> None:
    nodes = two_schedulers(start_node)
    submit(connection, "true", cron_expr="* * * * * *")
    for _ in range(kills):
        before = len(fired_seconds(connection))
        wait_for(lambda: len(fired_seconds(connection)) > before)  # noqa: B023
        row = connection.execute("SELECT worker_id FROM leader").fetchone()
        assert row
        leader = next(node for node in nodes if str(node.pid) in row[0])
        os.kill(leader.child("scheduler"), signal.SIGKILL)
    before = len(fired_seconds(connection))
    wait_for(lambda: len(fired_seconds(connection)) > before + 1)
    assert_each_second_once(connection)


def test_frozen_leader_is_replaced_and_writes_nothing_after_it_wakes(
    start_node: StartNode, connection: Connection
) -> None:
    """Its kernel answers for it: only the server's idle_session_timeout (6 s) ends its session, and its lock."""
    first, second = two_schedulers(start_node, database__connect_timeout="1m")
    submit(connection, "true", cron_expr="* * * * * *")
    wait_for(lambda: fired_seconds(connection))
    frozen = first.child("scheduler")
    os.kill(frozen, signal.SIGSTOP)
    second.wait_for_log("leadership won", timeout_seconds=30)
    os.kill(frozen, signal.SIGCONT)
    first.wait_for_log("scheduler has no database")
    before = len(fired_seconds(connection))
    wait_for(lambda: len(fired_seconds(connection)) > before + 1)
    assert_each_second_once(connection)


def test_leader_whose_backend_dies_over_and_over_fires_each_tick_once(
    start_node: StartNode, connection: Connection
) -> None:
    two_schedulers(start_node)
    submit(connection, "true", cron_expr="* * * * * *")
    for _ in range(5):
        before = len(fired_seconds(connection))
        wait_for(lambda: len(fired_seconds(connection)) > before)  # noqa: B023
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'forgeflow:scheduler%'"
        )
    before = len(fired_seconds(connection))
    wait_for(lambda: len(fired_seconds(connection)) > before)
    assert_each_second_once(connection)


def test_leader_with_a_slow_database_keeps_the_lock_and_fires_each_tick_once(
    wire: Wire, start_node: StartNode, connection: Connection
) -> None:
    """Each answer is half a second late, so that a tick takes thirty times `tick`, and ten campaigns of the standby."""
    slow = {"worker__statement_deadline": "2s", "worker__heartbeat_interval": "3s", "worker__lease_duration": "9s"}
    first = start_node(server__roles="scheduler", database__url=wire.url, scheduler__tick="100ms", **slow)
    first.wait_for_log("leadership won")
    standby = start_node(server__roles="scheduler", scheduler__campaign_interval="200ms")
    wait_for(lambda: asked_for_the_lock(connection) == 2)
    with wire.late(0.5):
        submit(connection, "true", cron_expr="* * * * * *")
        late_by = wait_for(lambda: seconds_after_the_first_tick(connection))
        assert late_by > 2.0, "due_jobs, begin, due_jobs, fire_tick, advance_job, each late"
    wait_for(lambda: len(fired_seconds(connection)) > 3, why="what came due meanwhile is fired, and the next one")
    assert first.log_text().count("leadership won") == 1
    assert "leadership won" not in standby.log_text()
    assert "overran its budget" not in first.log_text()
    assert_each_second_once(connection)


def test_leader_with_many_due_jobs_and_a_slow_database_is_not_taken_for_wedged(
    wire: Wire, start_node: StartNode, connection: Connection
) -> None:
    """One transaction takes longer than the budget of a pass (2.2 s here); undone each time, it would never end."""
    node = start_node(
        server__roles="scheduler",
        database__url=wire.url,
        database__connect_timeout="100ms",
        worker__statement_deadline="400ms",
        scheduler__campaign_interval="200ms",
    )
    node.wait_for_log("leadership won")
    many = 15
    with connection.transaction():
        for _ in range(many):
            submit(connection, "true", run_at="2100-01-01T00:00:00Z")
        connection.execute("UPDATE jobs SET next_run_at = clock_timestamp()")
    with wire.late(0.1):
        wait_for(lambda: len(fired_seconds(connection)) == many, timeout_seconds=10.0)
    assert "overran its budget" not in node.log_text()


def seconds_after_the_first_tick(connection: Connection) -> float:
    """How long ago it came due; 0 while it has not fired."""
    row = connection.execute(
        "SELECT coalesce(extract(epoch FROM clock_timestamp() - min(tick_at)), 0)::float8 FROM ticks"
    ).fetchone()
    assert row
    return float(row[0])


def test_tick_on_which_the_leader_dies_is_fired_once_by_the_next_one(
    start_node: StartNode, connection: Connection
) -> None:
    """Late, but younger than the misfire grace: no matter of catch_up, which would drop it."""
    first, second = two_schedulers(start_node)
    submit(connection, "true", cron_expr="*/2 * * * * *", catch_up="skip")
    wait_for(lambda: seconds_until_due(connection) > 0.7)
    boundary = next_run_at(connection)
    standby = second.child("scheduler")
    os.kill(standby, signal.SIGSTOP)  # it shall not take over before the tick is due
    wait_for(lambda: seconds_until_due(connection) < 0.2)
    first.signal(signal.SIGKILL)
    first.wait()
    wait_for(lambda: seconds_until_due(connection) < 0)
    os.kill(standby, signal.SIGCONT)
    wait_for(lambda: next_run_at(connection) > boundary + timedelta(seconds=2), why="it and the tick after it are over")
    due = int(boundary.timestamp())
    assert [second for second in fired_seconds(connection) if second >= due][:2] == [due, due + 2]
    fired = connection.execute(
        "SELECT t.term, r.trigger FROM ticks AS t JOIN runs AS r USING (tick_at) WHERE tick_at = %s", [boundary]
    ).fetchall()
    assert fired == [(2, "cron")]
    assert connection.execute("SELECT count(*) FROM tick_gaps").fetchone() == (0,)


def next_run_at(connection: Connection) -> datetime:
    """The clock of the only job."""
    row = connection.execute("SELECT next_run_at FROM jobs").fetchone()
    assert row
    found: datetime = row[0]
    return found


def seconds_until_due(connection: Connection) -> float:
    """Of the only job, by the server's clock; negative when its tick is overdue."""
    row = connection.execute("SELECT extract(epoch FROM next_run_at - clock_timestamp())::float8 FROM jobs").fetchone()
    assert row
    return float(row[0])


def test_pooler_is_refused_with_a_sentence(pooler: str, start_node: StartNode, connection: Connection) -> None:
    with psycopg.connect(pooler) as through:
        assert through.execute("SELECT 1").fetchone() == (1,)
    node = start_node(database__url=pooler)
    assert node.wait() == 78
    assert "transaction pooler" in node.log_text()
    assert connection.execute("SELECT count(*) FROM workers").fetchone() == (0,)


def test_stopped_leader_hands_over_at_once(start_node: StartNode, connection: Connection) -> None:
    first, second = two_schedulers(start_node, scheduler__campaign_interval="1h")
    wait_for(lambda: asked_for_the_lock(connection) == 2, why="the standby waits")
    stopped_at = time.monotonic()
    assert first.stop() == 0
    second.wait_for_log("leadership won")
    assert time.monotonic() - stopped_at < 4.0  # promised: 1 s


def owe_many_ticks(connection: Connection, jobs: int = 60) -> None:
    """Each job owes a thousand: enough to keep a leader busy for many seconds."""
    with connection.transaction():
        for _ in range(jobs):
            submit(connection, "true", cron_expr="* * * * * *", catch_up="all", catch_up_limit=1000)
        connection.execute("UPDATE jobs SET next_run_at = clock_timestamp() - interval '3 hours'")


def test_leader_that_catches_up_hears_that_it_is_to_stop(start_node: StartNode, connection: Connection) -> None:
    node = start_node(server__roles="scheduler")
    node.wait_for_log("leadership won")
    owe_many_ticks(connection)
    wait_for(lambda: fired_seconds(connection), why="the first batch is committed")
    node.signal(signal.SIGTERM)
    node.wait_for_log("leadership resigned", timeout_seconds=4.0)  # promised: 1 s
    assert node.wait() == 0
    row = connection.execute("SELECT count(*) FROM jobs WHERE next_run_at < now() - interval '1 hour'").fetchone()
    assert row
    assert row[0] > 0, "it has not caught up with everything, so it was stopped in the middle"


def test_leader_that_freezes_in_a_transaction_is_replaced(start_node: StartNode, connection: Connection) -> None:
    """Only idle_in_transaction_session_timeout ends its session then."""
    first, second = two_schedulers(start_node, database__connect_timeout="1m")
    owe_many_ticks(connection)
    scheduler = first.child("scheduler")

    def is_frozen_in_a_transaction() -> bool:
        os.kill(scheduler, signal.SIGSTOP)
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity, pg_sleep(0.05) WHERE datname = current_database()"
            " AND application_name LIKE 'forgeflow:scheduler%' AND state = 'idle in transaction'"
        ).fetchone()
        if row == (1,):
            return True
        os.kill(scheduler, signal.SIGCONT)
        return False

    wait_for(is_frozen_in_a_transaction)
    frozen_at = time.monotonic()
    try:
        second.wait_for_log("leadership won", timeout_seconds=25.0)
    finally:
        os.kill(scheduler, signal.SIGCONT)
    assert time.monotonic() - frozen_at < 24.0  # promised: 12 s; without the setting: 30 s
