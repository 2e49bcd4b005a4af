"""Ends of attempts: the fence, retry, dead, cancelled, and races with pause and cancel."""

import threading
from collections.abc import Callable
from uuid import uuid4

import pytest

from forgeflow.config import Config
from forgeflow.domain.run import Ending, Failure, Output, RunStatus
from forgeflow.domain.transitions import RUN_TRANSITIONS, RunEvent
from forgeflow.errors import StatusConflict
from forgeflow.service.jobs import get_job
from forgeflow.service.lifecycle import cancel_job, pause_job, resume_job, trigger_job
from forgeflow.service.retries import retry_runs
from forgeflow.store import runs
from forgeflow.store.connection import Connection, connect
from forgeflow.store.runs import AttemptRow, ClaimedRun, Owner, RunRow
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
from tests.support.waiting import wait_for


def claim_one(connection: Connection, **job: object) -> tuple[Owner, ClaimedRun]:
    make_runs(connection, make_job(connection, **job))
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    return owner, run


def test_finish_keeps_output_exit_code_and_owner(connection: Connection) -> None:
    owner, run = claim_one(connection)
    ending = Ending(run.id, run.attempt, None, 0, Output("the head", "the tail", 1_000_000))
    runs.finish_runs(connection, boot_id=owner.boot_id, child=owner.child, reports=[ending])
    row = look(connection, run.id)
    assert (row.status, row.exit_code, row.worker_id, row.attempt) == ("succeeded", 0, "node-1", 1)
    assert (row.output_head, row.output_tail, row.output_bytes) == ("the head", "the tail", 1_000_000)
    assert row.finished_at
    assert row.started_at
    assert row.finished_at >= row.started_at


def test_codes_of_an_ending_are_kept_by_its_run_and_by_its_attempt(connection: Connection) -> None:
    owner, run = claim_one(connection)
    late = Failure("failed", "answered 503", charged=True)
    fail(connection, owner, Ending(run.id, run.attempt, late, http_status=503))
    (again,) = wait_for(lambda: claim(connection, owner), why="its retry is due")
    killed = Failure("signalled", "ended by signal 9", charged=True)
    fail(connection, owner, Ending(run.id, again.attempt, killed, signal=9))
    (last,) = wait_for(lambda: claim(connection, owner), why="its last retry is due")
    finish(connection, owner, Ending(run.id, last.attempt, None, http_status=204))
    shown: list[RunRow | AttemptRow] = [*runs.list_attempts(connection, run_id=run.id), look(connection, run.id)]
    ended = [(one.outcome, one.exit_code, one.signal, one.http_status) for one in shown]
    assert ended == [
        ("failed", None, None, 503),
        ("crashed", None, 9, None),
        ("succeeded", None, None, 204),
    ]


@pytest.mark.parametrize("end", [fail, lambda connection, owner, _: recover(connection, owner, all_begun=True)])
def test_next_attempt_does_not_begin_with_the_progress_of_the_last(
    connection: Connection, end: Callable[[Connection, Owner, Ending], object]
) -> None:
    owner, run = claim_one(connection)
    connection.execute("UPDATE queue SET progress = 42, progress_note = 'page 3'")
    assert (look(connection, run.id).progress, look(connection, run.id).progress_note) == (42, "page 3")
    end(connection, owner, failure(run))
    assert look(connection, run.id).status == "pending"
    assert (look(connection, run.id).progress, look(connection, run.id).progress_note) == (None, None)


LATE: list[tuple[str, Callable[[Connection, Owner, ClaimedRun], object]]] = [
    ("finish", lambda connection, owner, run: finish(connection, owner, success(run))),
    ("fail", lambda connection, owner, run: fail(connection, owner, failure(run))),
]


@pytest.mark.parametrize(("kind", "late"), LATE)
def test_late_finish_of_old_owner_changes_nothing(
    connection: Connection, kind: str, late: Callable[[Connection, Owner, ClaimedRun], object]
) -> None:
    old, run = claim_one(connection)
    recover(connection, old, all_begun=True)
    new = make_worker(connection, child=2)
    (again,) = wait_for(lambda: claim(connection, new), why="the recovered run is due")
    assert late(connection, old, run) == []
    assert look(connection, run.id).status == "running"
    assert finish(connection, new, success(again, "mine")) == [run.id]
    before = look(connection, run.id)
    assert late(connection, old, run) == []
    assert look(connection, run.id) == before


@pytest.mark.parametrize("part", ["attempt", "boot_id", "child"])
def test_every_part_of_the_fence_counts(connection: Connection, part: str) -> None:
    """The same node may claim a run again that it had lost: its name alone would let the older attempt write."""
    owner, run = claim_one(connection)
    changed = {
        "attempt": (owner, Ending(run.id, run.attempt + 1, None, 0)),
        "boot_id": (Owner(uuid4(), owner.child), success(run)),
        "child": (Owner(owner.boot_id, owner.child + 1), success(run)),
    }
    wrong_owner, ending = changed[part]
    assert finish(connection, wrong_owner, ending) == []
    broken = Ending(ending.run_id, ending.attempt, Failure("failed", "it failed", charged=True), 1)
    assert fail(connection, wrong_owner, broken) == []
    assert look(connection, run.id).status == "running"


def test_interruption_is_not_charged_and_is_due_at_once(connection: Connection) -> None:
    owner, run = claim_one(connection)
    (failed,) = fail(connection, owner, failure(run, "interrupted", charged=False))
    assert failed.status == "pending"
    (again,) = claim(connection, owner)
    assert (again.id, again.attempt, again.failures) == (run.id, 2, 0)
    (attempt,) = runs.list_attempts(connection, run_id=run.id)
    assert (attempt.charged, attempt.error_type) == (False, "interrupted")


def test_retry_waits_up_to_the_cap_with_jitter(connection: Connection) -> None:
    make_runs(connection, make_job(connection), 40)
    owner = make_worker(connection)
    claimed = claim(connection, owner, 40)
    failed = runs.fail_runs(
        connection,
        boot_id=owner.boot_id,
        child=owner.child,
        reports=[failure(run) for run in claimed],
        retry_base=100,
        retry_cap=900,
    )
    row = connection.execute(
        "SELECT max(run_after) - now() <= interval '100 s', min(run_after) >= now() - interval '1 s',"
        " max(run_after) - min(run_after) > interval '30 s', count(DISTINCT run_after) FROM queue"
    ).fetchone()
    assert row == (True, True, True, 40)
    assert {one.status for one in failed} == {"pending"}


def test_failed_run_of_a_paused_job_is_cancelled(connection: Connection) -> None:
    job_id = make_job(connection)
    runs.enqueue_run(connection, job_id=job_id, trigger="once")
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    pause_job(connection, job_id)
    (failed,) = fail(connection, owner, failure(run))
    assert failed.status == "cancelled"
    assert look(connection, run.id).error == "it failed"


def test_manual_run_of_a_paused_job_is_retried(connection: Connection) -> None:
    job_id = make_job(connection)
    pause_job(connection, job_id)
    run_id = trigger_job(connection, job_id).id
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    (failed,) = fail(connection, owner, failure(run))
    assert (failed.id, failed.status) == (run_id, "pending")


def test_cancel_of_a_job_cancels_pending_runs_and_asks_running_ones(connection: Connection) -> None:
    job_id = make_job(connection)
    running, pending = make_runs(connection, job_id, 2)
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    cancel_job(connection, job_id)
    assert look(connection, pending).status == "cancelled"
    assert look(connection, running).cancel_requested_at
    assert [c["run"] for c in runs.peek_queue(connection, boot_id=owner.boot_id, max_due=1).cancels] == [str(running)]
    (ended,) = fail(connection, owner, failure(run, "cancelled", charged=False))
    assert ended.status == "cancelled"


def test_run_that_was_asked_to_stop_is_cancelled_also_when_its_job_goes_on(connection: Connection) -> None:
    owner, run = claim_one(connection)
    connection.execute("UPDATE queue SET cancel_requested_at = now()")
    (ended,) = fail(connection, owner, failure(run))
    assert ended.status == "cancelled"


def test_run_that_succeeds_before_it_hears_of_the_cancel_has_succeeded(connection: Connection) -> None:
    job_id = make_job(connection)
    (run_id,) = make_runs(connection, job_id)
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    cancel_job(connection, job_id)
    assert finish(connection, owner, success(run)) == [run_id]
    assert look(connection, run_id).status == "succeeded"


@pytest.mark.parametrize("first", ["retry", "cancel"])
def test_retry_and_cancel_leave_no_pending_run_whoever_is_first(
    config: Config, connection: Connection, second: Connection, first: str
) -> None:
    """Without the lock on the job, a retry beside a cancel left a cancelled job with a pending run."""
    job_id = make_job(connection)
    (run_id,) = make_runs(connection, job_id)
    owner = make_worker(connection)
    (run,) = claim(connection, owner)

    def retry(own: Connection) -> None:
        fail(own, owner, failure(run))

    def cancel(own: Connection) -> None:
        cancel_job(own, job_id)

    leading, following = (retry, cancel) if first == "retry" else (cancel, retry)
    with second.transaction():
        leading(second)
        other = connect(config, "third")
        thread = threading.Thread(target=following, args=(other,))
        thread.start()
        wait_for(lambda: is_waiting(connection, other), why="the other session waits for the lock")
    thread.join()
    other.close()
    assert look(connection, run_id).status == "cancelled"


def is_waiting(connection: Connection, other: Connection) -> bool:
    row = connection.execute("SELECT pg_blocking_pids(%s) <> '{}'", [other.info.backend_pid]).fetchone()
    return bool(row and row[0])


@pytest.mark.parametrize("first", ["claim", "pause"])
def test_claim_and_pause_agree_on_the_run_whoever_is_first(
    connection: Connection, second: Connection, first: str
) -> None:
    job_id = make_job(connection)
    (run_id,) = make_runs(connection, job_id)
    owner = make_worker(connection)
    if first == "claim":
        with second.transaction():
            assert claim(second, owner)
            thread = threading.Thread(target=pause_job, args=(connection, job_id))
            thread.start()
            wait_for(lambda: is_waiting(second, connection), why="pause waits for the claim")
        thread.join()
        assert look(connection, run_id).status == "running"
    else:
        with second.transaction():
            pause_job(second, job_id)
            assert claim(connection, owner) == []
        assert look(connection, run_id).status == "cancelled"
        assert claim(connection, owner) == []


def test_trigger_and_cancel_leave_no_pending_run(config: Config, connection: Connection, second: Connection) -> None:
    job_id = make_job(connection)
    with second.transaction():
        run_id = runs.enqueue_run(second, job_id=job_id, trigger="manual")
        assert run_id
        other = connect(config, "third")
        thread = threading.Thread(target=cancel_job, args=(other, job_id))
        thread.start()
        wait_for(lambda: is_waiting(connection, other), why="cancel waits for the trigger")
    thread.join()
    other.close()
    assert look(connection, run_id).status == "cancelled"
    assert runs.enqueue_run(connection, job_id=job_id, trigger="manual") is None


def test_resume_beside_a_cancel_does_not_bring_the_job_back(
    config: Config, connection: Connection, second: Connection
) -> None:
    job_id = make_job(connection, status="paused")
    refused: list[Exception] = []

    def resume(own: Connection) -> None:
        try:
            resume_job(own, job_id)
        except StatusConflict as error:
            refused.append(error)

    with second.transaction():
        cancel_job(second, job_id)
        other = connect(config, "third")
        thread = threading.Thread(target=resume, args=(other,))
        thread.start()
        wait_for(lambda: is_waiting(connection, other), why="resume waits for the cancel")
    thread.join()
    other.close()
    assert refused
    assert get_job(connection, job_id).status == "cancelled"


class World:
    """One run brought into a status, and every event tried on it, for the table of transitions."""

    def __init__(self, connection: Connection, status: RunStatus) -> None:
        self.connection = connection
        self.job_id = make_job(connection, max_attempts=2 if status is not RunStatus.DEAD else 1)
        (self.run_id,) = make_runs(connection, self.job_id)
        self.owner = make_worker(connection, child=1)
        due = look(connection, self.run_id).scheduled_for
        self.run = ClaimedRun(
            self.run_id, self.job_id, "job", "shell", {}, 1.0, "UTC", "kill", 1, 0, 2, due, False, 5, due
        )
        if status in (RunStatus.RUNNING, RunStatus.SUCCEEDED, RunStatus.DEAD):
            (self.run,) = claim(connection, self.owner)
        match status:
            case RunStatus.SUCCEEDED:
                finish(connection, self.owner, success(self.run))
            case RunStatus.DEAD:
                fail(connection, self.owner, failure(self.run))
            case RunStatus.CANCELLED:
                runs.cancel_pending_runs(connection, job_id=self.job_id, reason="test")

    def happen(self, event: RunEvent) -> None:
        match event:
            case RunEvent.CLAIM:
                claim(self.connection, make_worker(self.connection, child=2))
            case RunEvent.SUCCEED:
                finish(self.connection, self.owner, success(self.run))
            case RunEvent.FAIL:
                fail(self.connection, self.owner, failure(self.run))
            case RunEvent.FAIL_LAST:
                self.connection.execute("UPDATE queue SET max_attempts = failures + 1")
                fail(self.connection, self.owner, failure(self.run))
            case RunEvent.POSTPONE:
                fail(self.connection, self.owner, postponement(self.run))
            case RunEvent.INTERRUPT:
                fail(self.connection, self.owner, failure(self.run, "interrupted", charged=False))
            case RunEvent.CANCEL:
                runs.cancel_runs(self.connection, run_ids=[self.run_id], statuses=list(RunStatus), reason="test")
            case RunEvent.RETRY:
                retry_runs(self.connection, [self.run_id])


@pytest.mark.parametrize("event", RunEvent)
@pytest.mark.parametrize("status", RunStatus)
def test_statements_do_what_the_table_of_transitions_says(
    connection: Connection, status: RunStatus, event: RunEvent
) -> None:
    world = World(connection, status)
    assert look(connection, world.run_id).status == status
    world.happen(event)
    assert look(connection, world.run_id).status == (RUN_TRANSITIONS[status, event] or status)
