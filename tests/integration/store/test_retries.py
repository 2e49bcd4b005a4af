"""When a failed run is tried again: by its job's own rule, else by the node's."""

from collections.abc import Callable
from typing import Any

import pytest

from forgeflow.store import runs
from forgeflow.store.connection import Connection
from forgeflow.store.runs import ClaimedRun, FailedRun, Owner
from tests.support.scenario import claim, failure, make_job, make_runs, make_worker
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
    (failed,) = runs.fail_runs(connection, boot_id=owner.boot_id, child=owner.child, reports=[failure(run)], **NODE)
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
