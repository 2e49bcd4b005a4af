"""The claim: exactly n, best first, one owner, under a living lease, on its index, as a heap-only update."""

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from forgeflow.config import Config
from forgeflow.domain.run import Ending
from forgeflow.store import runs
from forgeflow.store.connection import Connection, connect, transaction
from forgeflow.store.runs import Owner
from tests.support.scenario import (
    RETRY,
    bulk_runs,
    claim,
    fail,
    failure,
    finish,
    look,
    make_job,
    make_runs,
    make_worker,
    plan_of_claim,
    success,
)
from tests.support.waiting import wait_for


@pytest.fixture
def second(config: Config) -> Iterator[Connection]:
    opened = connect(config, "second")
    yield opened
    opened.close()


def test_claim_gives_the_run_with_all_that_executing_needs(connection: Connection) -> None:
    job_id = make_job(
        connection, name="report", payload={"command": "date"}, timeout_seconds=7.5, timezone="Asia/Kolkata"
    )
    (run_id,) = make_runs(connection, job_id)
    (run,) = claim(connection, make_worker(connection))
    assert (run.id, run.job_id, run.job_name, run.executor) == (run_id, job_id, "report", "shell")
    assert (run.payload, run.timeout_seconds, run.timezone) == ({"command": "date"}, 7.5, "Asia/Kolkata")
    assert (run.attempt, run.failures, run.max_attempts, run.is_catch_up) == (1, 0, 3, False)
    row = look(connection, run_id)
    assert (row.status, row.worker_id, row.attempt) == ("running", "node-1", 1)
    assert row.started_at
    assert row.lease_expires


def test_best_priority_first_then_longest_due(connection: Connection) -> None:
    low, high = make_job(connection, priority=9), make_job(connection, priority=1)
    first_low, second_low = make_runs(connection, low, 2)
    (only_high,) = make_runs(connection, high)
    claimed = claim(connection, make_worker(connection), 3)
    assert [run.id for run in claimed] == [only_high, first_low, second_low]


def test_run_that_is_not_due_is_not_claimed(connection: Connection) -> None:
    bulk_runs(connection, make_job(connection), 1, due="1 hour")
    owner = make_worker(connection)
    assert claim(connection, owner) == []
    assert len(claim(connection, owner, now=datetime.now(UTC) + timedelta(hours=2))) == 1


def test_claim_without_a_living_lease_takes_nothing(connection: Connection) -> None:
    make_runs(connection, make_job(connection))
    expired = make_worker(connection, child=2, lease=-0.001)
    assert claim(connection, Owner(uuid4(), 1)) == []
    assert claim(connection, expired) == []
    assert len(claim(connection, make_worker(connection))) == 1


@pytest.mark.parametrize("asked", [1, 3, 10])
def test_claim_takes_exactly_n_with_stale_statistics(connection: Connection, asked: int) -> None:
    """Statistics of an empty table made LIMIT a suggestion in other forms of this statement."""
    connection.execute("ANALYZE queue, workers, jobs")
    bulk_runs(connection, make_job(connection), 200)
    owner = make_worker(connection)
    for _ in range(12):  # past the fifth, where the driver prepares, and the tenth, where the server plans anew
        assert len(claim(connection, owner, asked)) == asked


@pytest.mark.parametrize("analyzed", ["empty", "full"])
def test_claim_stays_on_its_index(connection: Connection, analyzed: str) -> None:
    job_id = make_job(connection)
    if analyzed == "empty":
        connection.execute("ANALYZE queue, workers, jobs")
    bulk_runs(connection, job_id, 5_000)
    bulk_runs(connection, job_id, 5_000, priority=1, due="1 hour")
    if analyzed == "full":
        connection.execute("VACUUM ANALYZE queue, workers, jobs")
    plan = plan_of_claim(connection, make_worker(connection), 10)
    assert "queue_due_idx" in plan
    assert "Seq Scan on queue" not in plan, plan


def test_claim_is_hot(connection: Connection) -> None:
    bulk_runs(connection, make_job(connection), 100)
    owner = make_worker(connection)
    before = hot_updates(connection)
    for _ in range(20):
        claim(connection, owner, 5)
    wait_for(lambda: hot_updates(connection)[0] - before[0] >= 100, why="statistics of 100 updates")
    updates, hot = (after - early for after, early in zip(hot_updates(connection), before, strict=True))
    assert (updates, hot) == (100, 100)


def hot_updates(connection: Connection) -> tuple[int, int]:
    connection.execute("SELECT pg_stat_force_next_flush()")
    row = connection.execute(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'queue'::regclass"
    ).fetchone()
    assert row
    return row[0], row[1]


def test_finish_and_fail_go_by_primary_key(connection: Connection) -> None:
    """An index on owner or lease once took these statements over; there is none, and none may come."""
    names = connection.execute(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'forgeflow' AND tablename = 'queue'"
    ).fetchall()
    assert len(names) == 5
    assert not [text for (text,) in names if "boot_id" in text or "child" in text or "started_at" in text]


def test_claims_of_many_workers_never_share_a_run(config: Config, connection: Connection) -> None:
    total, workers = 600, 10
    bulk_runs(connection, make_job(connection), total)
    boot_id, seen = uuid4(), Counter[UUID]()
    lock = threading.Lock()

    def work(child: int) -> None:
        with connect(config, f"worker:{child}") as own:
            owner = make_worker(own, boot_id=boot_id, child=child)
            endings: list[Ending] = []
            while True:
                turn = runs.take_turn(own, owner, endings, max_runs=7, **RETRY)
                assert turn.lost == []
                if not turn.claimed:
                    return
                with lock:
                    seen.update(run.id for run in turn.claimed)
                endings = [success(run) for run in turn.claimed]

    threads = [threading.Thread(target=work, args=(child,)) for child in range(1, workers + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == total
    assert set(seen.values()) == {1}
    assert {row.status: row.count for row in runs.count_runs(connection)} == {"succeeded": total}


def test_claim_does_not_wait_for_a_locked_run(connection: Connection, second: Connection) -> None:
    job_id = make_job(connection)
    held, free = make_runs(connection, job_id, 2)
    with second.transaction():
        second.execute("SELECT FROM queue WHERE id = %s FOR NO KEY UPDATE", [held])
        assert [run.id for run in claim(connection, make_worker(connection), 2)] == [free]


def test_claim_does_not_lock_its_job(connection: Connection, second: Connection) -> None:
    """Two workers may claim runs of one job at the same time."""
    make_runs(connection, make_job(connection), 2)
    first, other = make_worker(connection, child=1), make_worker(connection, child=2)
    with transaction(connection):
        assert len(claim(connection, first)) == 1
        assert len(claim(second, other)) == 1


def test_claim_sees_a_run_whose_foreign_key_is_being_checked(connection: Connection, second: Connection) -> None:
    """FOR UPDATE would collide with KEY SHARE and hide the run."""
    (run_id,) = make_runs(connection, make_job(connection))
    with second.transaction():
        second.execute("SELECT FROM queue WHERE id = %s FOR KEY SHARE", [run_id])
        assert [run.id for run in claim(connection, make_worker(connection))] == [run_id]


def test_turn_finishes_and_claims_in_one_transaction(connection: Connection, second: Connection) -> None:
    job_id = make_job(connection)
    make_runs(connection, job_id, 3)
    owner = make_worker(connection)
    first = runs.take_turn(connection, owner, [], max_runs=2, **RETRY)
    assert [len(first.claimed), first.failed, first.lost] == [2, [], []]
    endings = [success(first.claimed[0], "done"), failure(first.claimed[1])]
    turn = runs.take_turn(connection, owner, endings, max_runs=1, **RETRY)
    assert len(turn.claimed) == 1
    assert [(failed.id, failed.status) for failed in turn.failed] == [(first.claimed[1].id, "pending")]
    assert look(second, first.claimed[0].id).status == "succeeded"
    assert second.info.transaction_status.name == "IDLE"


def test_turn_tells_which_reports_nobody_wanted(connection: Connection) -> None:
    (run_id,) = make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    assert finish(connection, owner, success(run)) == [run_id]
    turn = runs.take_turn(connection, owner, [success(run)], max_runs=0, **RETRY)
    assert turn.lost == [run_id]


def test_attempt_grows_with_each_claim_and_failures_with_each_failure(connection: Connection) -> None:
    (run_id,) = make_runs(connection, make_job(connection, max_attempts=3))
    owner = make_worker(connection)
    for attempt in (1, 2):
        (run,) = wait_for(lambda: claim(connection, owner), why="the retry is due")
        assert (run.attempt, run.failures) == (attempt, attempt - 1)
        (failed,) = fail(connection, owner, failure(run))
        assert failed.status == "pending"
        assert failed.retry_in_seconds is not None
    (run,) = wait_for(lambda: claim(connection, owner), why="the last retry is due")
    (failed,) = fail(connection, owner, failure(run))
    assert (failed.status, failed.retry_in_seconds) == ("dead", None)
    row = look(connection, run_id)
    assert (row.status, row.attempt, row.failures, row.error) == ("dead", 3, 3, "it failed")
    assert [a.attempt for a in runs.list_attempts(connection, run_id=run_id)] == [1, 2]
