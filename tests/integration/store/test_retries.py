"""When a failed run is tried again: by its job's own rule, else by the node's."""

from collections.abc import Callable
from typing import Any

import pytest

from forgeflow.domain.run import Ending
from forgeflow.service.lifecycle import cancel_job, pause_job, trigger_job
from forgeflow.store import runs
from forgeflow.store.connection import Connection
from forgeflow.store.runs import ClaimedRun, FailedRun, Owner
from tests.support.scenario import (
    claim,
    fail,
    failure,
    finish,
    look,
    make_job,
    make_runs,
    make_worker,
    postponement,
    success,
)
from tests.support.web import empty_tables, open_database

NODE: dict[str, Any] = {"retry_base": 5.0, "retry_cap": 900.0}
LONGEST = 366 * 86_400.0
End = Callable[[Connection, Owner, ClaimedRun], FailedRun]


@pytest.fixture
def database_url(module_database: str) -> str:
    with open_database(module_database) as opened:
        empty_tables(opened)
    return module_database


def report(connection: Connection, owner: Owner, run: ClaimedRun) -> FailedRun:
    return report_ending(connection, owner, failure(run))


def report_ending(connection: Connection, owner: Owner, ending: Ending) -> FailedRun:
    (failed,) = runs.fail_runs(connection, boot_id=owner.boot_id, child=owner.child, reports=[ending], **NODE)
    return failed


def take_back(connection: Connection, owner: Owner, run: ClaimedRun) -> FailedRun:
    (failed,) = runs.recover_runs(
        connection,
        boot_id=owner.boot_id,
        child=owner.child,
        worker_id=None,
        begun_run=run.id,
        begun_attempt=run.attempt,
        all_begun=False,
        error="its worker died",
        error_type="crashed",
        charged=True,
        **NODE,
    )
    return failed


def wait_after(connection: Connection, end: End, failures: int, **job: Any) -> float:
    """Seconds until the next try of a run that has failed so often."""
    make_runs(connection, make_job(connection, max_attempts=1000, **job))
    connection.execute("UPDATE queue SET failures = %s", [failures - 1])
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    failed = end(connection, owner, run)
    assert failed.retry_in_seconds is not None
    row = connection.execute(
        "SELECT extract(epoch FROM run_after - clock_timestamp())::float8 FROM queue WHERE id = %s", [run.id]
    ).fetchone()
    assert row
    assert 0 <= failed.retry_in_seconds - row[0] < 5.0, "what is told is what is stored"
    connection.execute("DELETE FROM queue")
    return failed.retry_in_seconds


@pytest.mark.parametrize("end", [report, take_back])
@pytest.mark.parametrize(
    ("job", "failures", "seconds"),
    [
        ({"retry_mode": "exponential"}, 1, 5.0),
        ({"retry_mode": "exponential"}, 4, 40.0),
        ({"retry_mode": "exponential"}, 999, 900.0),
        ({"retry_mode": "exponential", "retry_base_seconds": 0.5, "retry_cap_seconds": 3.0}, 3, 2.0),
        ({"retry_mode": "exponential", "retry_base_seconds": 0.5, "retry_cap_seconds": 3.0}, 4, 3.0),
        ({"retry_mode": "exponential", "retry_cap_seconds": 2.0}, 1, 2.0),
        ({"retry_mode": "exponential", "retry_base_seconds": 3600.0}, 9, 3600.0),
        ({"retry_mode": "exponential", "retry_base_seconds": LONGEST, "retry_cap_seconds": LONGEST}, 999, LONGEST),
        ({"retry_mode": "fixed"}, 1, 5.0),
        ({"retry_mode": "fixed"}, 999, 5.0),
        ({"retry_mode": "fixed", "retry_base_seconds": 3600.0}, 2, 3600.0),
        ({"retry_mode": "fixed", "retry_base_seconds": 60.0, "retry_cap_seconds": 60.0}, 9, 60.0),
    ],
)
def test_job_has_its_own_wait_before_a_retry(
    connection: Connection, end: End, job: dict[str, Any], failures: int, seconds: float
) -> None:
    assert wait_after(connection, end, failures, **job) == pytest.approx(seconds)


@pytest.mark.parametrize("end", [report, take_back])
@pytest.mark.parametrize(
    ("job", "failures", "most"),
    [
        ({}, 1, 5.0),
        ({}, 999, 900.0),
        ({"retry_base_seconds": 7200.0}, 1, 7200.0),
        ({"retry_base_seconds": 1.0, "retry_cap_seconds": 10_000.0}, 999, 10_000.0),
    ],
)
def test_jitter_is_anything_up_to_the_wait(
    connection: Connection, end: End, job: dict[str, Any], failures: int, most: float
) -> None:
    waits = [wait_after(connection, end, failures, **job) for _ in range(12)]
    assert all(0 <= wait <= most for wait in waits)
    assert max(waits) - min(waits) > most / 10, "twelve that are so close come once in billions of times"


# Later


def claim_again(connection: Connection, owner: Owner) -> ClaimedRun:
    connection.execute("UPDATE queue SET run_after = now() WHERE NOT is_held")
    (run,) = claim(connection, owner)
    return run


def test_attempt_that_asks_for_later_uses_up_no_try(connection: Connection) -> None:
    (run_id,) = make_runs(connection, make_job(connection, max_attempts=1))
    owner = make_worker(connection)
    later = report_ending(connection, owner, postponement(claim_again(connection, owner)))
    assert (later.status, look(connection, run_id).failures) == ("pending", 0)
    (attempt,) = runs.list_attempts(connection, run_id=run_id)
    assert (attempt.charged, attempt.outcome, attempt.exit_code, attempt.error) == (
        False,
        "failed",
        75,
        "asked for later",
    )
    row = connection.execute("SELECT postponements, interruptions FROM queue").fetchone()
    assert row == (1, 0), "we did not interrupt it"
    assert finish(connection, owner, success(claim_again(connection, owner))) == [run_id]


def test_run_that_asks_for_later_for_ever_dies(connection: Connection) -> None:
    """Twenty times it is believed; from then on it uses up its tries."""
    (run_id,) = make_runs(connection, make_job(connection, max_attempts=2))
    owner = make_worker(connection)
    for _ in range(20):
        assert report_ending(connection, owner, postponement(claim_again(connection, owner))).status == "pending"
    assert look(connection, run_id).failures == 0
    last = [report_ending(connection, owner, postponement(claim_again(connection, owner))).status for _ in range(2)]
    assert last == ["pending", "dead"]
    assert (look(connection, run_id).failures, look(connection, run_id).attempt) == (2, 22)
    assert [one.charged for one in runs.list_attempts(connection, run_id=run_id)] == [False] * 20 + [True]


@pytest.mark.parametrize(
    ("job", "asked", "seconds"),
    [
        ({}, 7.5, 7.5),
        ({}, 0.0, 0.0),
        ({}, -5.0, 0.0),
        ({}, 901.0, 900.0),
        ({}, 1e300, 900.0),
        ({"retry_cap_seconds": 3.0}, 60.0, 3.0),
        ({"retry_mode": "exponential"}, None, 20.0),
        ({"retry_mode": "fixed"}, None, 5.0),
    ],
)
def test_later_is_when_it_asked_for_within_the_cap_or_else_the_wait_of_its_job(
    connection: Connection, job: dict[str, Any], asked: float | None, seconds: float
) -> None:
    make_runs(connection, make_job(connection, **job))
    connection.execute("UPDATE queue SET postponements = 2, failures = 1")
    owner = make_worker(connection)
    later = report_ending(connection, owner, postponement(claim_again(connection, owner), asked))
    assert later.retry_in_seconds == pytest.approx(seconds)


@pytest.mark.parametrize("charged", [True, False])
def test_failure_that_asked_for_nothing_knows_no_retry_after(connection: Connection, charged: bool) -> None:
    make_runs(connection, make_job(connection, retry_mode="fixed"))
    owner = make_worker(connection)
    plain = failure(claim_again(connection, owner), charged=charged)
    assert report_ending(connection, owner, plain).retry_in_seconds == pytest.approx(5.0 if charged else 0.0)


def test_postponed_run_of_a_cancelled_job_does_not_come_back(connection: Connection) -> None:
    job_id = make_job(connection)
    (run_id,) = make_runs(connection, job_id)
    owner = make_worker(connection)
    run = claim_again(connection, owner)
    cancel_job(connection, job_id)
    assert report_ending(connection, owner, postponement(run)).status == "cancelled"
    assert look(connection, run_id).status == "cancelled"


@pytest.mark.parametrize("trigger", ["once", "manual", "retry"])
def test_postponed_run_of_a_paused_job_comes_back_when_it_was_made_by_hand(
    connection: Connection, trigger: str
) -> None:
    job_id = make_job(connection)
    runs.enqueue_run(connection, job_id=job_id, trigger=trigger)
    owner = make_worker(connection)
    run = claim_again(connection, owner)
    pause_job(connection, job_id)
    expected = "cancelled" if trigger == "once" else "pending"
    assert report_ending(connection, owner, postponement(run)).status == expected


def test_postponed_run_keeps_the_runs_behind_it_waiting(connection: Connection) -> None:
    """It goes on to be the first of its job, as one that waits for a retry does."""
    job_id = make_job(connection, overlap="queue")
    make_runs(connection, job_id)
    behind = trigger_job(connection, job_id)
    owner = make_worker(connection)
    fail(connection, owner, postponement(claim_again(connection, owner)))
    assert look(connection, behind.id).is_held
    finish(connection, owner, success(claim_again(connection, owner)))
    assert not look(connection, behind.id).is_held
