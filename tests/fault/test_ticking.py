"""Every tick once: leaders that die at random, in the middle of a tick, or cut off; two at a time; long outages."""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from forgeflow.store.connection import Connection
from forgeflow.store.ticks import find_leader
from tests.fault.test_leadership import asked_for_the_lock
from tests.support.processes import NodeProcess
from tests.support.ticking import assert_ticks_are_right, copy_job, count, patient_connection, server_clock, ticks_of
from tests.support.waiting import wait_for
from tests.support.wire import Mode, Wire
from tests.support.work import submit

StartNode = Callable[..., NodeProcess]

SEED = int(os.environ.get("FORGEFLOW_TEST_SEED", "1"))
EVERY_SECOND = "* * * * * *"
POLICIES = ("skip", "once", "all")


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with patient_connection(database_url) as opened:
        yield opened


@pytest.fixture
def other(database_url: str) -> Iterator[Connection]:
    with patient_connection(database_url) as opened:
        yield opened


def submit_for_each_policy(connection: Connection, *, copies: int = 0, **fields: str) -> dict[str, UUID]:
    """Jobs of every second; below 15 s of delay, each policy owes every tick."""
    jobs = {}
    with connection.transaction():
        for policy in POLICIES:
            jobs[policy] = submit(connection, "true", name=policy, catch_up=policy, **fields)
            copy_job(connection, jobs[policy], copies)
    return jobs


def is_past(connection: Connection, moment: datetime) -> bool:
    return server_clock(connection) > moment


def wait_until_all_ticked_after(connection: Connection, moment: datetime) -> None:
    """Not only some job, for those of one moment may be fired in more than one transaction."""
    late = f"""
        SELECT count(*) FROM jobs
         WHERE NOT EXISTS (SELECT FROM ticks WHERE job_id = jobs.id AND tick_at > '{moment.isoformat()}')"""
    wait_for(lambda: count(connection, late) == 0, why=f"every job ticks after {moment}")


class Fleet:
    """Three nodes of which one leads; the leader is killed, and what was killed is started again."""

    def __init__(self, start_node: StartNode, connection: Connection) -> None:
        self._start_node = start_node
        self._connection = connection
        self.started: list[NodeProcess] = []
        self._by_name: dict[str, NodeProcess] = {}
        self.told: list[str] = []
        for _ in range(3):
            self._start()

    def _start(self) -> None:
        name = f"node-{len(self.started) + 1}"
        node = self._start_node(server__roles="scheduler", worker__id=name)
        self.started.append(node)
        self._by_name[name] = node

    def leader(self) -> tuple[NodeProcess, int]:
        """The node that leads now, and its term; waits for one."""
        found = wait_for(
            lambda: (leader := find_leader(self._connection)).is_led and leader.worker_id in self._by_name and leader,
            why=f"somebody leads: {self.told}",
        )
        assert found
        assert found.worker_id
        assert found.term
        return self._by_name[found.worker_id], found.term

    def kill_leader(self, draw: random.Random) -> float:
        """Its scheduler, or its master, at some moment; how many seconds it took until the next one led.

        Not before another one stands by, for how long a node takes to start is another matter.
        """
        wait_for(lambda: asked_for_the_lock(self._connection) >= 2, why=f"somebody stands by: {self.told}")
        moment = server_clock(self._connection) + timedelta(seconds=draw.uniform(0.0, 1.5))
        is_master = draw.random() < 0.5
        wait_for(lambda: is_past(self._connection, moment))
        node, term = self.leader()
        self.told.append(f"{'master' if is_master else 'scheduler'} of term {term} at {moment.time()}")
        if is_master:
            node.signal(signal.SIGKILL)
        else:
            os.kill(node.child("scheduler"), signal.SIGKILL)
        killed_at = time.monotonic()
        if is_master:
            node.wait()
            self._by_name = {name: each for name, each in self._by_name.items() if each is not node}
            self._start()
        wait_for(lambda: self._term() > term, why=f"a term after {term}: {self.told}")
        return time.monotonic() - killed_at

    def _term(self) -> int:
        return count(self._connection, "SELECT term FROM leader")

    def terms_won(self) -> list[int]:
        """By the logs of all, in no order."""
        lines = [line for node in self.started for line in node.log_text().splitlines() if "leadership won" in line]
        return [int(json.loads(line)["term"]) for line in lines]


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.proof)])
def test_no_second_of_any_policy_is_lost_or_doubled_when_leaders_are_killed_at_random(
    start_node: StartNode, connection: Connection, kills: int
) -> None:
    """So many jobs that a pass is long enough to be hit in the middle."""
    draw = random.Random(SEED)
    fleet = Fleet(start_node, connection)
    fleet.leader()
    submit_for_each_policy(connection, copies=9, cron_expr=EVERY_SECOND)
    wait_until_all_ticked_after(connection, server_clock(connection))
    takeovers = [fleet.kill_leader(draw) for _ in range(kills)]
    wait_until_all_ticked_after(connection, server_clock(connection))
    told = f"seed {SEED}, killed: {fleet.told}, seconds until the next one led: {takeovers}"
    assert_ticks_are_right(connection, told=told)
    assert count(connection, "SELECT count(*) FROM tick_gaps") == 0, told
    assert max(takeovers) < 5.0, told
    terms = fleet.terms_won()
    assert len(set(terms)) == len(terms), "two leaders had one term"
    assert count(connection, "SELECT count(DISTINCT term) FROM ticks") > 1, told


@pytest.mark.parametrize("end", ["its process is killed", "its session is ended"])
def test_tick_whose_leader_ends_midway_is_undone_and_fired_once_by_the_next(
    start_node: StartNode, connection: Connection, other: Connection, end: str
) -> None:
    """The first of two ticks is written, the second waits for a lock of ours, when the leader ends."""
    patient = {"lease_duration": "30s", "heartbeat_interval": "9s", "statement_deadline": "6s"}
    nodes = [
        start_node(server__roles="scheduler", **{f"worker__{name}": value for name, value in patient.items()})
        for _ in range(2)
    ]
    wait_for(lambda: asked_for_the_lock(connection) == 2)
    due = (server_clock(connection) + timedelta(seconds=2)).replace(microsecond=100_000)  # in the middle of a pause
    jobs = [
        submit(connection, "true", run_at=(due + timedelta(milliseconds=10 * number)).isoformat())
        for number in range(2)
    ]
    with other.transaction(force_rollback=True):
        other.execute(
            "INSERT INTO ticks (job_id, tick_at, run_id, term) SELECT id, run_at, uuid_v7(), 0 FROM jobs WHERE id = %s",
            [jobs[1]],
        )
        backend = wait_for(lambda: waiting_for(connection, other), why="the leader is in the middle")
        term = count(connection, "SELECT term FROM leader")
        if end == "its process is killed":
            os.kill(scheduler_of_term(term, nodes), signal.SIGKILL)
        else:
            connection.execute("SELECT pg_terminate_backend(%s)", [backend])
        wait_for(lambda: count(connection, f"SELECT count(*) FROM pg_stat_activity WHERE pid = {backend}") == 0)
        assert [ticks_of(connection, job_id) for job_id in jobs] == [[], []]
    wait_for(lambda: all(ticks_of(connection, job_id) for job_id in jobs), why="the next leader fires both")
    fired = connection.execute(
        "SELECT job_id, count(*), min(term) FROM ticks JOIN runs USING (job_id, tick_at) GROUP BY 1"
    )
    assert sorted(fired.fetchall()) == sorted((job_id, 1, term + 1) for job_id in jobs)
    assert_ticks_are_right(connection)


def waiting_for(connection: Connection, holder: Connection) -> int:
    """The backend that waits for a lock of the holder; 0 for none."""
    row = connection.execute(
        "SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))",
        [holder.info.backend_pid],
    ).fetchone()
    assert row
    return int(row[0])


def scheduler_of_term(term: int, nodes: list[NodeProcess]) -> int:
    """The pid of the scheduler that leads in that term."""
    (leader,) = [node for node in nodes if f'"term": {term}' in node.log_text()]
    return leader.child("scheduler")


def test_leader_cut_off_by_the_network_is_replaced_and_writes_nothing_more(
    wire: Wire, start_node: StartNode, connection: Connection
) -> None:
    """Half-open: neither side hears that the other has given up; the server's idle_session_timeout frees the lock."""
    first = start_node(server__roles="scheduler", database__url=wire.url)
    first.wait_for_log("leadership won")
    standby = start_node(server__roles="scheduler")
    wait_for(lambda: asked_for_the_lock(connection) == 2)
    submit_for_each_policy(connection, cron_expr=EVERY_SECOND)
    wait_until_all_ticked_after(connection, server_clock(connection))
    with wire.broken(Mode.HOLE):
        cut_at = time.monotonic()
        first.wait_for_log("scheduler has no database")
        assert time.monotonic() - cut_at < 3.0  # promised: statement_deadline, 0.5 s, and the pause between passes
        assert "leadership won" not in standby.log_text(), "the server still believes in the first one"
        standby.wait_for_log("leadership won")
        assert 4.0 < time.monotonic() - cut_at < 12.0  # promised: 6 s and a campaign
        wait_until_all_ticked_after(connection, server_clock(connection))
    first.wait_for_log("scheduler has the database again")
    wait_until_all_ticked_after(connection, server_clock(connection))
    assert first.log_text().count("leadership won") == 1
    assert_ticks_are_right(connection)
    assert count(connection, "SELECT count(*) FROM tick_gaps") == 0


def let_everybody_lead(connection: Connection) -> None:
    """The statements find functions by the search path, where ForgeFlow's schema comes first."""
    connection.execute("CREATE FUNCTION pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'")


def wait_until_nothing_is_due(connection: Connection, *, timeout_seconds: float = 30.0) -> None:
    due = "SELECT count(*) FROM jobs WHERE next_run_at <= clock_timestamp()"
    wait_for(lambda: count(connection, due) == 0, timeout_seconds=timeout_seconds, why="nothing is due")


def test_two_leaders_by_force_fire_each_of_two_thousand_ticks_once(
    start_node: StartNode, connection: Connection
) -> None:
    """First they race for what is due; then the same ticks are offered to both once more, and none fires again."""
    let_everybody_lead(connection)
    leaders = [start_node(server__roles="scheduler") for _ in range(2)]
    for leader in leaders:
        leader.wait_for_log("leadership won")
    due = server_clock(connection)
    with connection.transaction():
        job_id = submit(connection, "true", cron_expr="0 0 1 1 *")
        connection.execute("UPDATE jobs SET next_run_at = date_trunc('second', %s)", [due])
        copy_job(connection, job_id, 1999)
    wait_until_nothing_is_due(connection)
    assert count(connection, "SELECT count(*) FROM ticks") == 2000
    assert count(connection, "SELECT count(DISTINCT term) FROM ticks") == 2, "both had their share"
    connection.execute("UPDATE jobs SET next_run_at = date_trunc('second', %s)", [due])
    wait_until_nothing_is_due(connection)
    assert count(connection, "SELECT count(*) FROM ticks") == 2000
    assert count(connection, "SELECT count(*) FROM runs") == 2000
    assert_ticks_are_right(connection, has_one_leader=False)
    assert all("was moved by somebody else" not in leader.log_text() for leader in leaders)


def test_tick_that_had_fired_before_is_not_told_as_fired(start_node: StartNode, connection: Connection) -> None:
    """As when another leader was faster: the guard refuses it, and the log says so instead."""
    node = start_node(server__roles="scheduler")
    submit(connection, "true", cron_expr="0 0 1 1 *")
    connection.execute("UPDATE jobs SET next_run_at = date_trunc('second', clock_timestamp())")
    wait_until_nothing_is_due(connection)
    connection.execute("UPDATE jobs SET next_run_at = (SELECT tick_at FROM ticks)")
    wait_until_nothing_is_due(connection)
    assert node.stop() == 0
    assert node.log_text().count("tick fired") == count(connection, "SELECT count(*) FROM ticks")


@pytest.mark.parametrize("outage", [timedelta(hours=3), timedelta(days=3 * 365)], ids=["three hours", "three years"])
@pytest.mark.parametrize("each", [50, pytest.param(3334, marks=pytest.mark.proof)])
def test_after_an_outage_each_policy_owes_what_it_says_in_bounded_time(
    start_node: StartNode, connection: Connection, outage: timedelta, each: int
) -> None:
    """Jobs of every minute, `each` of them for each policy, and a limit of 10 for `all`.

    They end where the outage ends, for what comes due while thousands are caught up is another matter.
    """
    until = server_clock(connection).replace(second=0, microsecond=0)
    since = until - outage
    with connection.transaction():
        submit_for_each_policy(connection, copies=each - 1, cron_expr="* * * * *")
        connection.execute("UPDATE jobs SET next_run_at = %s, end_at = %s", [since, until])
    node = start_node(server__roles="scheduler")
    node.wait_for_log("leadership won")
    led_at = time.monotonic()
    behind = "SELECT count(*) FROM jobs WHERE next_run_at IS NOT NULL"
    wait_for(lambda: count(connection, behind) == 0, timeout_seconds=600.0, why="no job is behind")
    assert (time.monotonic() - led_at) / (3 * each) < 0.05
    assert node.stop() == 0
    assert_only_the_latest_were_caught_up(connection, {"skip": 0, "once": 1, "all": 10})
    assert_every_minute_is_accounted_for(connection, since, until)
    assert_ticks_are_right(connection)
    largest = count(connection, "SELECT max(ticks) FROM (SELECT count(*) AS ticks FROM ticks GROUP BY xmin::text) AS t")
    assert largest <= 2000 + 11, "a transaction is over after two thousand ticks, but for its last job's"


def assert_only_the_latest_were_caught_up(connection: Connection, owed: dict[str, int]) -> None:
    """Without a hole, up to the tick that was young enough to simply run."""
    rows = connection.execute(
        "SELECT j.catch_up, count(*) FILTER (WHERE r.is_catch_up),"
        "       max(t.tick_at) FILTER (WHERE r.is_catch_up) - min(t.tick_at) FILTER (WHERE r.is_catch_up),"
        "       min(t.tick_at) FILTER (WHERE NOT r.is_catch_up) - max(t.tick_at) FILTER (WHERE r.is_catch_up)"
        "  FROM jobs AS j LEFT JOIN ticks AS t ON t.job_id = j.id LEFT JOIN runs AS r ON r.id = t.run_id"
        " GROUP BY j.catch_up, j.id"
    ).fetchall()
    minute = timedelta(minutes=1)
    for policy, caught_up, span, step in rows:
        assert caught_up == owed[policy]
        assert span == ((caught_up - 1) * minute if caught_up else None)
        assert step in (None, minute)


def assert_every_minute_is_accounted_for(connection: Connection, since: datetime, until: datetime) -> None:
    """By counting: a list of the minutes of three years for each job would be long."""
    minutes = (until - since) // timedelta(minutes=1) + 1
    wrong = f"""
        SELECT count(*) FROM jobs AS j
         CROSS JOIN LATERAL (SELECT count(*) AS ticks FROM ticks WHERE job_id = j.id) AS fired
         CROSS JOIN LATERAL (SELECT count(*) AS rows, sum(extract(epoch FROM to_at - from_at) / 60 + 1) AS ticks
                               FROM tick_gaps WHERE job_id = j.id) AS gaps
         WHERE gaps.rows <> 1 OR fired.ticks + gaps.ticks <> {minutes}"""
    assert count(connection, wrong) == 0
    both = "SELECT count(*) FROM ticks JOIN tick_gaps USING (job_id) WHERE tick_at BETWEEN from_at AND to_at"
    assert count(connection, both) == 0
