"""Leadership, and ticks that become runs."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from forgeflow.config import Config
from forgeflow.domain.node import Node
from forgeflow.scheduler import ticks as passes
from forgeflow.scheduler.leader import campaign, open_session, resign
from forgeflow.store import runs, ticks
from forgeflow.store.connection import Connection, connect, transaction
from forgeflow.store.listener import take_notifications
from tests.support.scenario import database_now, make_job
from tests.support.waiting import wait_for


@pytest.fixture
def second(config: Config) -> Iterator[Connection]:
    opened = connect(config, "second")
    yield opened
    opened.close()


def node(name: str) -> Node:
    return Node(uuid4(), name, "host", "machine", 1, ("scheduler",), 0, "0")


def runs_of(connection: Connection, job_id: UUID) -> list[tuple[datetime, str]]:
    rows = connection.execute("SELECT tick_at, trigger FROM runs WHERE job_id = %s ORDER BY tick_at", [job_id])
    return rows.fetchall()


def next_run(connection: Connection, job_id: UUID) -> datetime | None:
    row = connection.execute("SELECT next_run_at FROM jobs WHERE id = %s", [job_id]).fetchone()
    assert row
    return row[0]  # type: ignore[no-any-return]


def test_leader_is_one_and_a_standby_takes_over_on_resignation(config: Config) -> None:
    first, standby = node("first"), node("standby")
    session, waiting = open_session(config, first), open_session(config, standby)
    leadership = campaign(session, config, first)
    assert leadership
    assert campaign(waiting, config, standby) is None
    resign(leadership)
    assert wait_for(lambda: take_notifications(waiting), why="the standby hears of it")
    won = campaign(waiting, config, standby)
    assert won
    assert won.term == leadership.term + 1
    resign(won)


def test_lock_is_free_when_the_resignation_is_heard(connection: Connection, second: Connection) -> None:
    """Also while the old session still lives: a standby that hears it campaigns once, and then waits for long."""
    second.execute("LISTEN forgeflow_leader")
    assert ticks.try_leadership(connection)
    ticks.resign_leadership(connection)
    wait_for(lambda: take_notifications(second), why="the word of the resignation")
    assert ticks.try_leadership(second)


def test_leadership_ends_with_its_session(config: Config, connection: Connection) -> None:
    first, standby = node("first"), node("standby")
    session, waiting = open_session(config, first), open_session(config, standby)
    assert campaign(session, config, first)
    connection.execute("SELECT pg_terminate_backend(%s)", [session.info.backend_pid])
    won = wait_for(lambda: campaign(waiting, config, standby), why="the lock is free")
    assert won
    resign(won)


def test_leader_session_that_says_nothing_is_ended_by_the_server(config: Config) -> None:
    """A stopped process keeps its connection, and its kernel answers keepalives: only the server can end it."""
    first = node("first")
    session = open_session(config, first)
    leadership = campaign(session, config, first)
    assert leadership
    assert session.execute("SHOW idle_session_timeout").fetchone() == ("6s",)
    resign(leadership)


def test_due_job_becomes_a_run_and_its_clock_moves_in_one_transaction(config: Config, connection: Connection) -> None:
    due = database_now(connection).replace(microsecond=0)
    job_id = make_job(connection, cron_expr="* * * * * *", next_run_at=due)
    result = passes.TickPasses(connection, config, 7).run_pass()
    assert result.jobs == 1
    fired = runs_of(connection, job_id)
    assert fired[0] == (due, "cron")
    following = next_run(connection, job_id)
    assert following
    assert following > fired[-1][0]
    row = connection.execute("SELECT DISTINCT term FROM ticks").fetchone()
    assert row == (7,)


def test_pass_with_nothing_due_writes_nothing(config: Config, connection: Connection) -> None:
    make_job(connection, cron_expr="0 0 1 1 *", next_run_at=datetime(2999, 1, 1, tzinfo=UTC))
    assert passes.TickPasses(connection, config, 1).run_pass() == passes.PassResult(0, 0)


def test_run_at_fires_once_however_late(config: Config, connection: Connection) -> None:
    due = database_now(connection) - timedelta(days=3)
    job_id = make_job(connection, run_at=due, next_run_at=due)
    assert passes.TickPasses(connection, config, 1).run_pass() == passes.PassResult(1, 1)
    assert runs_of(connection, job_id) == [(due, "once")]
    assert next_run(connection, job_id) is None
    assert passes.TickPasses(connection, config, 1).run_pass() == passes.PassResult(0, 0)


@pytest.mark.parametrize(("policy", "expected"), [("skip", 0), ("once", 1), ("all", 3)])
def test_missed_ticks_go_by_the_policy(config: Config, connection: Connection, policy: str, expected: int) -> None:
    """An outage of days in a schedule of hours; whether a tick lies within the grace depends on the hour we run at."""
    now = database_now(connection)
    due = (now - timedelta(days=2)).replace(minute=0, second=0, microsecond=0)
    job_id = make_job(connection, cron_expr="0 * * * *", next_run_at=due, catch_up=policy, catch_up_limit=3)
    passes.TickPasses(connection, config, 1).run_pass()
    fired = runs_of(connection, job_id)
    caught_up = [tick for tick, trigger in fired if trigger == "catch_up"]
    assert len(caught_up) == expected
    assert caught_up == sorted(caught_up)
    if caught_up:
        assert now - caught_up[-1] < timedelta(hours=1, minutes=2)
    gap = connection.execute("SELECT from_at, reason FROM tick_gaps WHERE job_id = %s", [job_id]).fetchone()
    assert gap == (due, "missed")


def test_ticks_of_a_burst_that_are_not_run_are_accounted_for(config: Config, connection: Connection) -> None:
    due = database_now(connection).replace(microsecond=0) - timedelta(seconds=40)
    job_id = make_job(connection, cron_expr="* * * * * *", next_run_at=due)
    passes.TickPasses(connection, config, 1).run_pass()
    fired = [tick for tick, _ in runs_of(connection, job_id)]
    gap = connection.execute("SELECT from_at, to_at, reason FROM tick_gaps WHERE job_id = %s", [job_id]).fetchone()
    assert gap == (due, fired[0] - timedelta(seconds=1), "coalesced")


def test_two_leaders_by_force_fire_each_tick_once(config: Config, connection: Connection) -> None:
    due = database_now(connection).replace(microsecond=0) - timedelta(seconds=5)
    job_ids = [make_job(connection, cron_expr="* * * * * *", next_run_at=due) for _ in range(150)]
    barrier = threading.Barrier(2)

    def lead(term: int) -> None:
        with connect(config, "leader") as own:
            barrier.wait()
            for _ in range(5):
                passes.TickPasses(own, config, term).run_pass()

    threads = [threading.Thread(target=lead, args=(term,)) for term in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for job_id in job_ids:
        fired = [tick for tick, _ in runs_of(connection, job_id)]
        assert fired == [due + timedelta(seconds=i) for i in range(len(fired))]
        assert next_run(connection, job_id) == fired[-1] + timedelta(seconds=1)


def test_clock_that_somebody_else_moved_undoes_the_pass(connection: Connection) -> None:
    due = database_now(connection)
    job_id = make_job(connection, cron_expr="* * * * * *", next_run_at=due)
    following = due + timedelta(seconds=1)
    assert not ticks.advance_jobs(connection, moves=[(job_id, due + timedelta(microseconds=1), None)])
    assert ticks.advance_jobs(connection, moves=[(job_id, due, following)]) == {job_id}
    assert not ticks.advance_jobs(connection, moves=[(job_id, due, following)])


def test_job_being_edited_is_left_for_the_next_pass(config: Config, connection: Connection, second: Connection) -> None:
    due = database_now(connection)
    job_id = make_job(connection, run_at=due, next_run_at=due)
    with transaction(second):
        second.execute("SELECT FROM jobs WHERE id = %s FOR NO KEY UPDATE", [job_id])
        assert passes.TickPasses(connection, config, 1).run_pass() == passes.PassResult(0, 0)
    assert passes.TickPasses(connection, config, 1).run_pass() == passes.PassResult(1, 1)


def test_unreadable_schedule_stops_no_other_job(config: Config, connection: Connection) -> None:
    due = database_now(connection) - timedelta(minutes=1)
    broken = make_job(connection, cron_expr="not a schedule", next_run_at=due)
    good = make_job(connection, run_at=due, next_run_at=due)
    passes.TickPasses(connection, config, 1).run_pass()
    assert runs_of(connection, broken) == []
    assert [trigger for _, trigger in runs_of(connection, good)] == ["once"]
    later = next_run(connection, broken)
    assert later
    assert later > due + timedelta(minutes=5)


def test_schedule_that_can_be_read_again_runs_at_its_ticks(config: Config, connection: Connection) -> None:
    """The time to look again is none of them; what came meanwhile is accounted for."""
    due = database_now(connection).replace(microsecond=0) - timedelta(minutes=1)
    job_id = make_job(connection, cron_expr="not a schedule", next_run_at=due)
    passes.TickPasses(connection, config, 1).run_pass()
    connection.execute(
        "UPDATE jobs SET cron_expr = '0 0 1 1 *', next_run_at = next_run_at - interval '6 minutes' WHERE id = %s",
        [job_id],
    )
    passes.TickPasses(connection, config, 1).run_pass()
    assert runs_of(connection, job_id) == []
    following = next_run(connection, job_id)
    assert following
    assert (following.month, following.day, following.microsecond) == (1, 1, 0)
    gaps = connection.execute("SELECT from_at, reason FROM tick_gaps WHERE job_id = %s ORDER BY from_at", [job_id])
    assert ("missed",) in [row[1:] for row in gaps.fetchall()]


def test_fired_ticks_are_announced_after_the_commit(config: Config, connection: Connection, second: Connection) -> None:
    second.execute("LISTEN forgeflow_due")
    due = database_now(connection)
    make_job(connection, run_at=due, next_run_at=due)
    passes.TickPasses(connection, config, 1).run_pass()
    wait_for(lambda: take_notifications(second), why="the announcement")
    assert runs.peek_queue(second, boot_id=uuid4(), max_due=5).due == 1
