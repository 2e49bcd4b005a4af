"""What a user can do with one run, or with many: cancel, and retry."""

from collections.abc import Callable
from typing import Any, get_args
from uuid import UUID, uuid4

import pytest

from forgeflow.config import Config
from forgeflow.domain.overlap import Overlap
from forgeflow.domain.run import Ending, Failure, RunStatus
from forgeflow.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    RunFinished,
    RunNotFinished,
    SelectionChanged,
    StatusConflict,
)
from forgeflow.service.lifecycle import cancel_job, edit_job, pause_job, trigger_job
from forgeflow.service.requests import read_bulk_request
from forgeflow.service.retries import retry_run
from forgeflow.service.runs import cancel_run, cancel_runs, why_not_cancelled
from forgeflow.service.selection import BulkResult, change_runs, select_runs
from forgeflow.store import runs
from forgeflow.store.connection import Connection
from forgeflow.store.runs import RunRow
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
    recover,
    success,
)
from tests.support.sessions import play
from tests.support.submitting import told
from tests.support.web import empty_tables, open_database


@pytest.fixture
def database_url(module_database: str) -> str:
    with open_database(module_database) as opened:
        empty_tables(opened)
    return module_database


def make_ended(connection: Connection, status: str, **job: Any) -> UUID:
    """A run of a job of its own that has come to such an end."""
    (run_id,) = make_runs(connection, make_job(connection, **{"max_attempts": 1, **job}))
    if status == "cancelled":
        cancel_run(connection, run_id)
        return run_id
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    (finish if status == "succeeded" else fail)(
        connection, owner, success(run) if status == "succeeded" else failure(run)
    )
    assert look(connection, run_id).status == status
    return run_id


# Cancel


def test_cancel_of_a_waiting_run_ends_it_at_once(connection: Connection) -> None:
    stays, goes = make_runs(connection, make_job(connection), 2)
    cancelled = cancel_run(connection, goes)
    assert not cancelled.is_asked
    run = look(connection, goes)
    assert cancelled.run == run
    assert (run.status, run.outcome, run.error) == ("cancelled", "cancelled", "somebody asked for it")
    assert (run.attempt, run.started_at) == (0, None)
    assert look(connection, stays).status == "pending"


def test_cancel_of_a_run_that_waits_for_its_retry_keeps_its_history(connection: Connection) -> None:
    (run_id,) = make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    fail(connection, owner, failure(claim(connection, owner)[0]))
    cancel_run(connection, run_id)
    run = look(connection, run_id)
    assert (run.status, run.attempt, run.failures) == ("cancelled", 1, 1)
    assert len(runs.list_attempts(connection, run_id=run_id)) == 1


def test_cancel_of_a_running_run_asks_its_worker(connection: Connection, second: Connection) -> None:
    (run_id,) = make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    assert told(second, connection, lambda: cancel_run(connection, run_id)) == ["cancel"]
    asked = look(connection, run_id)
    assert (asked.status, asked.outcome) == ("running", None)
    assert asked.cancel_requested_at
    peek = runs.peek_queue(connection, boot_id=owner.boot_id, max_due=1)
    assert [one["run"] for one in peek.cancels] == [str(run_id)]
    again = cancel_run(connection, run_id)
    assert again.is_asked
    assert again.run.cancel_requested_at == asked.cancel_requested_at
    fail(connection, owner, failure(run, "cancelled", charged=False))
    assert look(connection, run_id).error == "stopped: somebody asked for it"


@pytest.mark.parametrize(
    "end",
    [
        lambda connection, owner, run: fail(connection, owner, failure(run)),
        lambda connection, owner, run: fail(connection, owner, postponement(run)),
        lambda connection, owner, run: fail(connection, owner, failure(run, "interrupted", charged=False)),
        lambda connection, owner, _: recover(connection, owner, all_begun=True),
        lambda connection, owner, _: recover(connection, owner),
    ],
    ids=["fails", "is postponed", "is interrupted", "is recovered", "is handed back"],
)
def test_run_that_was_asked_to_stop_does_not_come_back(connection: Connection, end: Callable[..., object]) -> None:
    (run_id,) = make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    cancel_run(connection, run_id)
    end(connection, owner, run)
    assert (look(connection, run_id).status, look(connection, run_id).outcome) == ("cancelled", "cancelled")


@pytest.mark.parametrize("status", ["succeeded", "dead", "cancelled"])
def test_cancel_of_a_run_that_has_ended_says_how(connection: Connection, status: str) -> None:
    run_id = make_ended(connection, status)
    before = look(connection, run_id)
    with pytest.raises(RunFinished, match=f"stays what it is: {status}$"):
        cancel_run(connection, run_id)
    assert look(connection, run_id) == before


def test_cancel_of_a_run_that_is_none_says_so(connection: Connection) -> None:
    with pytest.raises(NotFound, match="there is no run"):
        cancel_run(connection, uuid4())


def test_cancel_of_a_run_lets_the_one_behind_it_go(connection: Connection, second: Connection) -> None:
    job_id = make_job(connection, overlap="queue")
    first, held, last = (trigger_job(connection, job_id).id for _ in range(3))
    cancel_run(connection, held)
    assert [look(connection, run_id).is_held for run_id in (first, last)] == [False, True]
    assert told(second, connection, lambda: cancel_run(connection, first)) == [""]
    assert (look(connection, last).status, look(connection, last).is_held) == (RunStatus.PENDING, False)


# Retry


@pytest.mark.parametrize("status", ["succeeded", "dead", "cancelled"])
def test_retry_of_a_run_that_has_ended_is_another_run_of_its_job(
    connection: Connection, second: Connection, status: str
) -> None:
    run_id = make_ended(connection, status)
    before = look(connection, run_id)
    job = edit_job(connection, before.job_id, {"priority": 2, "max_attempts": 7})
    again: list[UUID] = []
    assert told(second, connection, lambda: again.append(retry_run(connection, run_id).id)) == [""]
    run = look(connection, again[0])
    assert (run.status, run.trigger, run.retry_of, run.job_id) == ("pending", "retry", run_id, before.job_id)
    assert (run.attempt, run.failures, run.max_attempts, run.payload) == (0, 0, 7, None)
    assert run.scheduled_for == before.scheduled_for, "it does what was to be done then"
    assert look(connection, run_id) == before
    (claimed,) = claim(connection, make_worker(connection))
    assert (claimed.id, claimed.payload, claimed.priority) == (run.id, job.payload, job.priority)


def test_retry_takes_the_payload_of_the_run_if_it_had_one(connection: Connection) -> None:
    run_id = trigger_job(connection, make_job(connection), {"command": "echo own"}).id
    cancel_run(connection, run_id)
    run = retry_run(connection, run_id)
    assert run.payload == look(connection, run_id).payload
    edit_job(connection, run.job_id, {"payload": {"command": "echo new"}})
    assert claim(connection, make_worker(connection))[0].payload == run.payload


def test_payload_for_another_executor_is_not_run(connection: Connection) -> None:
    """A command that is given to a function, or a function's name to a shell."""
    job_id = make_job(connection)
    own, plain = trigger_job(connection, job_id, {"command": "echo own"}).id, trigger_job(connection, job_id).id
    for run_id in (own, plain):
        cancel_run(connection, run_id)
    edit_job(connection, job_id, {"executor": "python", "payload": {"function": "shop.send"}})
    edit_job(connection, job_id, {"priority": 1})
    with pytest.raises(Conflict, match="for another executor than its job has now"):
        retry_run(connection, own)
    assert retry_run(connection, plain).retry_of == plain


def test_run_that_is_being_retried_is_not_retried_again(connection: Connection) -> None:
    run_id = make_ended(connection, "dead")
    again = retry_run(connection, run_id)
    owner = make_worker(connection)
    for _ in range(2):
        with pytest.raises(Conflict, match=f"retried already, by {again.id}"):
            retry_run(connection, run_id)
        claim(connection, owner)
    fail(connection, owner, Ending(again.id, 1, Failure("failed", "it failed", charged=True), 1))
    assert retry_run(connection, run_id).retry_of == run_id, "alone it may be retried as often as one likes"
    assert retry_run(connection, again.id).retry_of == again.id


def test_run_that_has_not_ended_is_not_retried(connection: Connection) -> None:
    (run_id,) = make_runs(connection, make_job(connection))
    with pytest.raises(RunNotFinished, match="it is pending"):
        retry_run(connection, run_id)
    claim(connection, make_worker(connection))
    with pytest.raises(RunNotFinished, match="it is running"):
        retry_run(connection, run_id)
    with pytest.raises(NotFound, match="there is no run"):
        retry_run(connection, uuid4())


@pytest.mark.parametrize("overlap", get_args(Overlap))
def test_run_of_a_cancelled_job_is_not_retried(connection: Connection, overlap: str) -> None:
    run_id = make_ended(connection, "dead", overlap=overlap)
    cancel_job(connection, look(connection, run_id).job_id)
    with pytest.raises(StatusConflict):
        retry_run(connection, run_id)


@pytest.mark.parametrize("overlap", get_args(Overlap))
@pytest.mark.parametrize("end", ["retry", "recovery"])
def test_retry_of_a_paused_job_runs_and_comes_back(connection: Connection, overlap: str, end: str) -> None:
    """As a trigger does: somebody asked for this run."""
    run_id = make_ended(connection, "dead", overlap=overlap)
    pause_job(connection, look(connection, run_id).job_id)
    connection.execute("UPDATE jobs SET max_attempts = 3")
    again = retry_run(connection, run_id)
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    assert run.id == again.id
    _ = fail(connection, owner, failure(run)) if end == "retry" else recover(connection, owner, all_begun=True)
    assert look(connection, run.id).status == "pending"


def test_retry_goes_by_the_overlap_of_its_job(connection: Connection) -> None:
    ended = {overlap: make_ended(connection, "dead", overlap=overlap) for overlap in ("skip", "queue", "replace")}
    job_ids = {overlap: look(connection, run_id).job_id for overlap, run_id in ended.items()}
    in_the_way = {overlap: trigger_job(connection, job_id).id for overlap, job_id in job_ids.items()}
    with pytest.raises(Conflict, match=f"its overlap is skip: {in_the_way['skip']}"):
        retry_run(connection, ended["skip"])
    held = retry_run(connection, ended["queue"])
    assert held.is_held
    cancel_run(connection, in_the_way["queue"])
    assert not look(connection, held.id).is_held
    assert retry_run(connection, ended["replace"]).status == "pending"
    assert look(connection, in_the_way["replace"]).status == "cancelled"


def test_retry_that_replaces_a_running_run_waits_for_its_end(connection: Connection, second: Connection) -> None:
    run_id = make_ended(connection, "dead", overlap="replace")
    trigger_job(connection, look(connection, run_id).job_id)
    owner = make_worker(connection)
    (running,) = claim(connection, owner)
    again: list[RunRow] = []
    assert told(second, connection, lambda: again.append(retry_run(connection, run_id))) == ["cancel", ""]
    assert again[0].is_held
    fail(connection, owner, failure(running, "cancelled", charged=False))
    assert not look(connection, again[0].id).is_held


# Many


def bulk(connection: Connection, action: str, **body: Any) -> BulkResult:
    return change_runs(connection, read_bulk_request({"action": action, **body}))


def selected(connection: Connection, action: str, **body: Any) -> int:
    return len(select_runs(connection, read_bulk_request({"action": action, **body})))


def make_dead(connection: Connection, job_id: UUID, count: int) -> None:
    """Runs of the first seconds of 2026."""
    connection.execute(
        "INSERT INTO finished_runs (id, job_id, job_version, priority, scheduled_for, trigger, is_catch_up,"
        " max_attempts, attempt, failures, interruptions, status, error_type) SELECT uuid_v7(), %s, 1, 5,"
        " timestamptz '2026-01-01Z' + n * interval '1 s', 'manual', false, 3, 3, 3, 0, 'dead', 'failed'"
        " FROM generate_series(0, %s - 1) AS n",
        [job_id, count],
    )


def dead_ids(connection: Connection) -> list[UUID]:
    return [row[0] for row in connection.execute("SELECT id FROM finished_runs WHERE status = 'dead' ORDER BY id")]


def test_bulk_retry_takes_the_dead_runs_that_nobody_has_retried(connection: Connection, second: Connection) -> None:
    job_id = make_job(connection, max_attempts=1)
    make_dead(connection, job_id, 5)
    make_ended(connection, "succeeded")
    first, *_, last = dead_ids(connection)
    retry_run(connection, first)
    owner = make_worker(connection)
    fail(connection, owner, failure(claim(connection, owner)[0]))
    again = retry_run(connection, last).id
    results: list[BulkResult] = []
    every = {"status": "dead"}
    assert selected(connection, "retry", filter={"job_id": str(job_id)}) == 4
    assert told(second, connection, lambda: results.append(bulk(connection, "retry", filter=every))) == [""]
    assert results == [BulkResult(4, 4, [])], "three of the five, and the retry of the first one, which is dead too"
    rows = connection.execute("SELECT retry_of, count(*) FROM queue GROUP BY retry_of").fetchall()
    assert sorted(rows) == [(run_id, 1) for run_id in dead_ids(connection) if run_id != first]
    assert again in [row[0] for row in connection.execute("SELECT id FROM queue")]
    assert bulk(connection, "retry", filter={"status": "dead"}) == BulkResult(0, 0, [])


def test_bulk_of_ids_skips_what_it_cannot_change_and_says_why(connection: Connection) -> None:
    dead, retried, ended, of_cancelled = (make_ended(connection, "dead") for _ in range(4))
    again = retry_run(connection, retried).id
    ended_again = retry_run(connection, ended).id
    cancel_run(connection, ended_again)
    cancel_job(connection, look(connection, of_cancelled).job_id)
    (waiting,) = make_runs(connection, make_job(connection))
    nobody = uuid4()
    ids = [str(each) for each in (dead, retried, ended, of_cancelled, waiting, nobody, dead)]
    result = bulk(connection, "retry", ids=ids)
    assert (result.selected, result.done) == (6, 1)
    assert {one.run_id: one.reason for one in result.skipped} == {
        retried: f"the run is being retried already, by {again}",
        ended: f"the run was retried before, by {ended_again}; it can be retried alone",
        of_cancelled: "the job is cancelled, which is for good; submit it anew",
        waiting: "the run has not ended, it is pending",
        nobody: f"there is no run {nobody}",
    }
    cancelled = bulk(connection, "cancel", ids=[str(waiting), str(dead), str(nobody)])
    assert [one.reason for one in cancelled.skipped] == [
        "the run has ended, and stays what it is: dead",
        f"there is no run {nobody}",
    ]
    assert look(connection, waiting).status == "cancelled"


def test_bulk_retry_goes_by_the_overlap_of_each_job(connection: Connection) -> None:
    jobs = {overlap: make_job(connection, overlap=overlap, catch_up_limit=2) for overlap in get_args(Overlap)}
    for job_id in jobs.values():
        make_dead(connection, job_id, 5)
    results = {overlap: bulk(connection, "retry", filter={"job_id": str(job_id)}) for overlap, job_id in jobs.items()}
    assert {overlap: result.done for overlap, result in results.items()} == {
        "allow": 5,
        "skip": 1,
        "queue": 3,  # one that is due, and two behind it
        "replace": 1,
    }
    rows = connection.execute(
        "SELECT j.overlap, count(*) FILTER (WHERE is_held) FROM queue JOIN jobs AS j ON j.id = job_id GROUP BY 1"
    ).fetchall()
    assert dict(rows) == {"allow": 0, "skip": 0, "queue": 2, "replace": 0}
    (newest,) = connection.execute("SELECT retry_of FROM queue WHERE job_id = %s", [jobs["replace"]]).fetchall()
    assert newest[0] == max(one for one in dead_ids(connection) if look(connection, one).job_id == jobs["replace"])
    assert results["replace"].skipped[0].reason.startswith("overlap of its job is replace, and a newer run")


def test_bulk_cancel_takes_what_its_filter_says(connection: Connection) -> None:
    job_id, other = make_job(connection), make_job(connection)
    runs_, others = make_runs(connection, job_id, 4), make_runs(connection, other, 2)
    owner = make_worker(connection)
    running = {run.id for run in claim(connection, owner, 2)}
    assert running == set(runs_[:2])
    assert bulk(connection, "cancel", filter={"job_id": str(job_id), "status": "pending"}) == BulkResult(2, 2, [])
    assert not any(look(connection, run_id).cancel_requested_at for run_id in running)
    assert bulk(connection, "cancel", filter={"job_id": str(job_id)}) == BulkResult(2, 2, [])
    assert all(look(connection, run_id).cancel_requested_at for run_id in running)
    assert [look(connection, run_id).status for run_id in others] == ["pending", "pending"]


def test_run_that_has_begun_is_not_stopped_by_a_cancel_of_pending_ones(connection: Connection) -> None:
    """As when it is claimed between the look at what is pending and the cancel."""
    (run_id,) = make_runs(connection, make_job(connection))
    claim(connection, make_worker(connection))
    assert cancel_runs(connection, [run_id], ["pending"]) == []
    assert look(connection, run_id).cancel_requested_at is None
    (why,) = why_not_cancelled(connection, [run_id]).values()
    assert str(why) == "the run has another status by now: running"


def test_filter_by_time_goes_by_what_runs_were_scheduled_for(connection: Connection) -> None:
    make_dead(connection, make_job(connection), 10)
    ends = {"since": "2026-01-01T00:00:03Z", "until": "2026-01-01T02:00:05+02:00"}
    assert [selected(connection, "retry", filter={name: ends[name]}) for name in ends] == [7, 6]
    assert selected(connection, "retry", filter=ends) == 3


def test_bulk_that_has_grown_past_what_was_expected_changes_nothing(connection: Connection) -> None:
    make_dead(connection, make_job(connection), 3)
    with pytest.raises(SelectionChanged, match="3 runs would be changed, more than expected_count"):
        bulk(connection, "retry", filter={"status": "dead"}, expected_count=2)
    assert connection.execute("SELECT count(*) FROM queue").fetchone() == (0,)
    assert bulk(connection, "retry", filter={"status": "dead"}, expected_count=3).done == 3


def test_bulk_is_limited_and_what_is_within_the_limit_is_done_at_once(connection: Connection) -> None:
    job_id = make_job(connection)
    for _ in range(5):
        make_dead(connection, job_id, 2000)
    make_dead(connection, job_id, 1)
    with pytest.raises(InvalidInput) as refused:
        bulk(connection, "retry", filter={"status": "dead"})
    assert [problem.pointer for problem in refused.value.problems] == ["#/filter"]
    until = {"status": "dead", "since": "2026-01-01T00:00:01Z"}
    connection.execute("SET statement_timeout = '5s'")
    connection.deadline_seconds = 6.0
    assert bulk(connection, "retry", filter=until).done == 10_001 - 6
    assert bulk(connection, "cancel", filter={"job_id": str(job_id)}).done == 10_001 - 6


@pytest.mark.parametrize("order", ["ABAABB", "ABABAB"])
def test_two_who_retry_the_same_runs_retry_each_once(config: Config, connection: Connection, order: str) -> None:
    """Also where the first retry has come and gone before the second one looks."""
    make_dead(connection, make_job(connection, max_attempts=1), 3)
    ids = [str(run_id) for run_id in dead_ids(connection)]

    def retry(own: Connection) -> int:
        return bulk(own, "retry", ids=ids).done

    done = list(play(config, connection, order, retry, retry))
    assert sorted(done) == [0, 3]  # type: ignore[type-var]
    assert connection.execute("SELECT count(*) FROM queue").fetchone() == (3,)
