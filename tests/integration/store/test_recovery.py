"""Recovery of dead workers: what was theirs comes back, once, and nothing slips through beside it."""

import threading
from uuid import uuid4

from forgeflow.config import Config
from forgeflow.scheduler.sweep import sweep_orphans
from forgeflow.store import nodes, runs
from forgeflow.store.connection import Connection, connect
from tests.support.scenario import (
    claim,
    fail,
    failure,
    finish,
    look,
    make_job,
    make_runs,
    make_worker,
    recover,
    success,
)
from tests.support.waiting import wait_for


def beat(connection: Connection, boot_id: object, children: list[int], lease: float = 60.0) -> list[int]:
    return nodes.beat_node(
        connection,
        boot_id=boot_id,  # type: ignore[arg-type]
        worker_id="node",
        hostname="host",
        machine="machine",
        pid=1,
        roles=["worker"],
        concurrency=2,
        version="0",
        children=children,
        lease_seconds=lease,
    ).children


def is_waiting(connection: Connection, other: Connection) -> bool:
    row = connection.execute("SELECT pg_blocking_pids(%s) <> '{}'", [other.info.backend_pid]).fetchone()
    return bool(row and row[0])


def test_only_the_run_that_was_going_on_is_charged(connection: Connection) -> None:
    make_runs(connection, make_job(connection), 3)
    owner = make_worker(connection)
    going_on, *waiting = claim(connection, owner, 3)
    recovered = recover(connection, owner, begun_run=going_on.id, begun_attempt=going_on.attempt)
    assert {run.status for run in recovered} == {"pending"}
    assert (look(connection, going_on.id).failures, look(connection, going_on.id).attempt) == (1, 1)
    (attempt,) = runs.list_attempts(connection, run_id=going_on.id)
    assert (attempt.error_type, attempt.worker_id) == ("crashed", "node-1")
    for run in waiting:
        assert (look(connection, run.id).failures, look(connection, run.id).attempt) == (0, 1)
        assert runs.list_attempts(connection, run_id=run.id) == []


def test_later_attempt_of_the_same_run_that_was_not_begun_is_not_charged(connection: Connection) -> None:
    """It was claimed again in the turn that reported the attempt before, and the worker died before it said START."""
    make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    (first,) = claim(connection, owner)
    fail(connection, owner, failure(first))
    (again,) = wait_for(lambda: claim(connection, owner), why="the retry is due")
    recover(connection, owner, begun_run=first.id, begun_attempt=first.attempt)
    assert (look(connection, again.id).failures, look(connection, again.id).attempt) == (1, 2)


def test_worker_killed_by_us_is_not_charged(connection: Connection) -> None:
    make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    recover(connection, owner, begun_run=run.id, begun_attempt=run.attempt, charged=False, error_type="interrupted")
    assert look(connection, run.id).failures == 0
    (attempt,) = runs.list_attempts(connection, run_id=run.id)
    assert (attempt.charged, attempt.error_type) == (False, "interrupted")


def test_job_that_kills_its_workers_dies_in_the_end(connection: Connection) -> None:
    (run_id,) = make_runs(connection, make_job(connection, max_attempts=2))
    for child, status in ((1, "pending"), (2, "dead")):
        owner = make_worker(connection, child=child)
        (run,) = wait_for(lambda owner=owner: claim(connection, owner), why="the run is due")  # type: ignore[misc]
        (recovered,) = recover(connection, owner, begun_run=run.id, begun_attempt=run.attempt)
        assert recovered.status == status
    assert look(connection, run_id).error == "its worker died"


def test_recovery_may_be_repeated(connection: Connection) -> None:
    make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    assert len(recover(connection, owner, begun_run=run.id, begun_attempt=run.attempt)) == 1
    assert recover(connection, owner, begun_run=run.id, begun_attempt=run.attempt) == []
    assert look(connection, run.id).failures == 1


def test_finished_run_is_not_recovered(connection: Connection) -> None:
    make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    finish(connection, owner, success(run))
    assert recover(connection, owner, begun_run=run.id, begun_attempt=run.attempt) == []
    assert look(connection, run.id).status == "succeeded"


def test_recovery_waits_for_a_claim_in_flight(config: Config, connection: Connection, second: Connection) -> None:
    """The claim of a worker that was killed in the middle of it still commits: its run must come back all the same."""
    make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    recovered: list[int] = []
    other = connect(config, "third")
    thread = threading.Thread(target=lambda: recovered.append(len(recover(other, owner))))
    with second.transaction():
        (run,) = claim(second, owner)
        thread.start()
        wait_for(lambda: is_waiting(connection, other), why="recovery waits for the claim")
    thread.join()
    other.close()
    assert recovered == [1]
    assert look(connection, run.id).status == "pending"
    assert claim(connection, owner) == []


def test_claim_after_recovery_gets_nothing(connection: Connection, second: Connection) -> None:
    make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    with second.transaction():
        recover(second, owner)
        thread_result: list[int] = []
        thread = threading.Thread(target=lambda: thread_result.append(len(claim(connection, owner))))
        thread.start()
    thread.join()
    assert thread_result == [0]


def test_beat_does_not_wait_for_a_claim(connection: Connection, second: Connection) -> None:
    make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    with second.transaction():
        assert claim(second, owner)
        assert beat(connection, owner.boot_id, [owner.child]) == [owner.child]


def test_beat_renews_living_workers_only_and_names_the_lost(connection: Connection) -> None:
    boot_id = uuid4()
    for child in (1, 2, 3):
        make_worker(connection, boot_id=boot_id, child=child, lease=1.0)
    recover(connection, make_worker(connection, boot_id=boot_id, child=4))
    assert beat(connection, boot_id, [1, 2, 4]) == [1, 2]
    rows = connection.execute(
        "SELECT child, lease_expires_at > now() + interval '30 s' FROM workers ORDER BY child"
    ).fetchall()
    assert rows == [(1, True), (2, True), (3, False)]


def test_lease_is_counted_from_after_the_wait_for_a_lock(
    config: Config, connection: Connection, second: Connection
) -> None:
    owner = make_worker(connection, lease=1.0)
    other = connect(config, "third")
    done: list[list[int]] = []
    thread = threading.Thread(target=lambda: done.append(beat(other, owner.boot_id, [1], lease=5.0)))
    with second.transaction():
        second.execute("SELECT FROM workers FOR NO KEY UPDATE")
        thread.start()
        wait_for(lambda: is_waiting(connection, other), why="the beat waits")
        second.execute("SELECT pg_sleep(0.1)")
        freed = second.execute("SELECT clock_timestamp()").fetchone()
    thread.join()
    other.close()
    assert done == [[1]]
    row = connection.execute("SELECT lease_expires_at >= %s + interval '5 s' FROM workers", [freed[0]]).fetchone()  # type: ignore[index]
    assert row == (True,)


def test_expired_worker_is_found_and_its_renewed_lease_saves_it(connection: Connection) -> None:
    owner = make_worker(connection, lease=-0.001)
    (expired,) = nodes.expired_workers(connection, max_rows=10).owners()
    assert (expired.boot_id, expired.child) == (owner.boot_id, owner.child)
    beat(connection, owner.boot_id, [owner.child])
    make_runs(connection, make_job(connection))
    (run,) = claim(connection, owner)
    assert recover(connection, owner, only_expired=True, all_begun=True) == []
    assert look(connection, run.id).status == "running"


def test_silent_nodes_leases_end_unless_it_has_beaten_since(connection: Connection) -> None:
    """Its heartbeat is ahead of the clock, as after a step back of an hour."""
    boot_id = uuid4()
    make_worker(connection, boot_id=boot_id)
    beat(connection, boot_id, [1])
    connection.execute(
        "UPDATE nodes SET heartbeat_at = heartbeat_at + '1 h', lease_expires_at = lease_expires_at + '1 h'"
    )
    connection.execute("UPDATE workers SET lease_expires_at = lease_expires_at + '1 h'")
    (before,) = nodes.ahead_nodes(connection)
    assert before.boot_id == boot_id
    beat(connection, boot_id, [1])
    assert nodes.expire_node(connection, boot_id=boot_id, heartbeat_at=before.heartbeat_at) is None
    assert nodes.expired_workers(connection, max_rows=10).owners() == []
    connection.execute(
        "UPDATE nodes SET heartbeat_at = %s, lease_expires_at = %s::timestamptz + '2 s'", [before.heartbeat_at] * 2
    )
    assert nodes.expire_node(connection, boot_id=boot_id, heartbeat_at=before.heartbeat_at) == "node"
    assert nodes.expired_workers(connection, max_rows=10).children == [1]
    assert nodes.ahead_nodes(connection) == []


def test_stale_node_is_forgotten_after_its_workers_are_recovered(connection: Connection) -> None:
    boot_id = uuid4()
    owner = make_worker(connection, boot_id=boot_id, lease=-0.001)
    beat(connection, boot_id, [], lease=-0.001)
    assert nodes.delete_stale_nodes(connection) == []
    recover(connection, owner, only_expired=True, all_begun=True)
    assert nodes.delete_stale_nodes(connection) == ["node"]
    assert nodes.list_nodes(connection) == []


def test_sweep_hands_back_runs_whose_owner_has_no_row(config: Config, connection: Connection) -> None:
    make_runs(connection, make_job(connection), 2)
    owner = make_worker(connection)
    claim(connection, owner, 2)
    assert sweep_orphans(connection, config) == 0
    connection.execute("DELETE FROM workers")
    assert sweep_orphans(connection, config) == 2
    assert {row.status: row.count for row in runs.count_runs(connection)} == {"pending": 2}
