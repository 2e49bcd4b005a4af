"""Overlap: decided in the tick's transaction, freed by whatever ends the run before."""

import threading
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest

from forgeflow.config import Config
from forgeflow.errors import Conflict
from forgeflow.scheduler.sweep import sweep_orphans
from forgeflow.scheduler.ticks import TickPasses
from forgeflow.service.lifecycle import cancel_job, edit_job, pause_job, trigger_job
from forgeflow.store import runs
from forgeflow.store.connection import Connection, connect, transaction
from forgeflow.store.runs import ClaimedRun, Owner
from tests.support.scenario import (
    claim,
    database_now,
    fail,
    failure,
    finish,
    look,
    make_job,
    make_worker,
    recover,
    success,
)
from tests.support.sessions import ORDERS, Act, play
from tests.support.waiting import wait_for

SECOND = timedelta(seconds=1)


def due_job(connection: Connection, overlap: str, **fields: object) -> UUID:
    """A job whose tick of this year is due now, and whose next one is far away."""
    return make_job(
        connection,
        **{"cron_expr": "0 0 1 1 *", "next_run_at": database_now(connection), "overlap": overlap, **fields},
    )


def tick(connection: Connection, config: Config, job_id: UUID) -> UUID | None:
    """Have the job's clock at now, and a pass over it; the run that came of it."""
    before = set(run_ids(connection, job_id))
    connection.execute("UPDATE jobs SET next_run_at = clock_timestamp() WHERE id = %s", [job_id])
    TickPasses(connection, config, 1).run_pass()
    made = set(run_ids(connection, job_id)) - before
    assert len(made) < 2
    return made.pop() if made else None


def run_ids(connection: Connection, job_id: UUID) -> list[UUID]:
    rows = connection.execute("SELECT id FROM runs WHERE job_id = %s ORDER BY scheduled_for, id", [job_id]).fetchall()
    return [run_id for (run_id,) in rows]


def outcomes(connection: Connection, job_id: UUID) -> list[tuple[str, UUID | None]]:
    query = "SELECT outcome, coalesce(blocked_by, run_id) FROM ticks WHERE job_id = %s ORDER BY tick_at"
    return connection.execute(query, [job_id]).fetchall()


def certain(run_id: UUID | None) -> UUID:
    assert run_id
    return run_id


def start(connection: Connection, owner: Owner) -> ClaimedRun:
    (run,) = claim(connection, owner)
    return run


def ending(owner: Owner, run: ClaimedRun) -> Act:
    return lambda own: finish(own, owner, success(run))


def states(connection: Connection, job_id: UUID) -> list[str]:
    """`held` beside the statuses that a run has."""
    found = [look(connection, run_id) for run_id in run_ids(connection, job_id)]
    return ["held" if run.is_held else run.status for run in found]


def test_allow_lets_runs_of_a_job_go_on_side_by_side(config: Config, connection: Connection) -> None:
    job_id = due_job(connection, "allow")
    owner = make_worker(connection)
    assert tick(connection, config, job_id)
    start(connection, owner)
    assert tick(connection, config, job_id)
    start(connection, owner)
    assert states(connection, job_id) == ["running", "running"]


def test_skip_makes_no_run_while_one_is_unfinished_and_says_which(config: Config, connection: Connection) -> None:
    job_id = due_job(connection, "skip")
    owner = make_worker(connection)
    first = tick(connection, config, job_id)
    assert tick(connection, config, job_id) is None, "while it is pending"
    run = start(connection, owner)
    assert tick(connection, config, job_id) is None, "while it is running"
    finish(connection, owner, success(run))
    last = tick(connection, config, job_id)
    assert outcomes(connection, job_id) == [("ran", first), ("overlap", first), ("overlap", first), ("ran", last)]


def test_skip_counts_a_run_that_waits_for_its_retry(config: Config, connection: Connection) -> None:
    job_id = due_job(connection, "skip")
    owner = make_worker(connection)
    first = tick(connection, config, job_id)
    fail(connection, owner, failure(start(connection, owner)))
    assert look(connection, certain(first)).status == "pending"
    assert tick(connection, config, job_id) is None


def test_queued_run_is_claimed_when_the_one_before_it_has_ended(config: Config, connection: Connection) -> None:
    job_id = due_job(connection, "queue")
    owner, other = make_worker(connection), make_worker(connection, child=2)
    tick(connection, config, job_id)
    run = start(connection, owner)
    second = tick(connection, config, job_id)
    assert states(connection, job_id) == ["running", "held"]
    assert look(connection, certain(second)).next_attempt_at is None
    assert claim(connection, other) == []
    finish(connection, owner, success(run))
    assert [one.id for one in claim(connection, other)] == [second]


def test_queued_runs_go_one_by_one_in_order(config: Config, connection: Connection) -> None:
    job_id = due_job(connection, "queue")
    owner = make_worker(connection)
    made = [tick(connection, config, job_id) for _ in range(4)]
    assert states(connection, job_id) == ["pending", "held", "held", "held"]
    went = []
    while claimed := claim(connection, owner, 4):
        (run,) = claimed
        went.append(run.id)
        finish(connection, owner, success(run))
    assert went == made


def test_queue_is_full_at_the_limit_of_catch_up(config: Config, connection: Connection) -> None:
    job_id = due_job(connection, "queue", catch_up_limit=2)
    first, *held = [tick(connection, config, job_id) for _ in range(3)]
    assert all(held)
    assert tick(connection, config, job_id) is None
    assert outcomes(connection, job_id)[-1] == ("overlap", first)


def test_replace_cancels_a_pending_run(config: Config, connection: Connection) -> None:
    job_id = due_job(connection, "replace")
    first, second = tick(connection, config, job_id), tick(connection, config, job_id)
    assert states(connection, job_id) == ["cancelled", "pending"]
    assert look(connection, certain(first)).error == "replaced by a newer run of its job"
    assert [run.id for run in claim(connection, make_worker(connection), 5)] == [second]


def test_replace_stops_a_running_run_and_waits_for_its_end(
    config: Config, connection: Connection, second: Connection
) -> None:
    second.execute("LISTEN forgeflow_due")
    job_id = due_job(connection, "replace")
    owner, other = make_worker(connection), make_worker(connection, child=2)
    tick(connection, config, job_id)
    run = start(connection, owner)
    following = tick(connection, config, job_id)
    assert look(connection, run.id).cancel_requested_at
    assert {note.payload for note in second.notifies(timeout=5.0, stop_after=3)} == {"", "cancel"}
    assert claim(connection, other) == []
    (ended,) = fail(connection, owner, failure(run, "cancelled", charged=False))
    assert (ended.status, ended.frees_held) == ("cancelled", True)
    assert [one.id for one in claim(connection, other)] == [following]


def test_replaced_run_that_waited_is_cancelled(config: Config, connection: Connection) -> None:
    job_id = due_job(connection, "replace")
    owner = make_worker(connection)
    tick(connection, config, job_id)
    run = start(connection, owner)
    waiting, last = tick(connection, config, job_id), tick(connection, config, job_id)
    assert states(connection, job_id) == ["running", "cancelled", "held"]
    assert look(connection, certain(waiting)).status == "cancelled"
    fail(connection, owner, failure(run, "cancelled", charged=False))
    assert [one.id for one in claim(connection, owner, 5)] == [last]


Ending = Callable[[Connection, Owner, ClaimedRun], object]

ENDINGS: dict[str, Ending] = {
    "success": lambda connection, owner, run: finish(connection, owner, success(run)),
    "death": lambda connection, owner, run: fail(connection, owner, failure(run)),
    "crash": lambda connection, owner, run: recover(connection, owner, begun_run=run.id, begun_attempt=run.attempt),
    "lease": lambda connection, owner, run: recover(connection, owner, all_begun=True),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_held_run_is_freed_by_whatever_ends_the_one_before(config: Config, connection: Connection, ending: str) -> None:
    job_id = due_job(connection, "queue", max_attempts=1)
    owner = make_worker(connection)
    tick(connection, config, job_id)
    run = start(connection, owner)
    second = tick(connection, config, job_id)
    ENDINGS[ending](connection, owner, run)
    assert [one.id for one in claim(connection, make_worker(connection, child=2), 5)] == [second]


def test_held_run_is_freed_when_its_predecessor_is_cancelled(config: Config, connection: Connection) -> None:
    job_id = due_job(connection, "queue")
    owner = make_worker(connection)
    first = tick(connection, config, job_id)
    second = tick(connection, config, job_id)
    connection.execute("DELETE FROM queue WHERE id = %s", [first])
    assert [one.id for one in claim(connection, owner, 5)] == [second]


def test_held_run_waits_for_the_retry_of_the_one_before(config: Config, connection: Connection) -> None:
    job_id = due_job(connection, "queue")
    owner = make_worker(connection)
    first = tick(connection, config, job_id)
    run = start(connection, owner)
    second = tick(connection, config, job_id)
    (failed,) = fail(connection, owner, failure(run))
    assert (failed.status, failed.frees_held) == ("pending", False)
    far = database_now(connection) + timedelta(days=1)
    (again,) = claim(connection, owner, 5, now=far)
    assert (again.id, again.attempt) == (first, 2)
    assert runs.finish_runs(connection, boot_id=owner.boot_id, child=owner.child, reports=[success(again)])[
        0
    ].frees_held
    assert [one.id for one in claim(connection, owner, 5)] == [second]


def test_two_runs_that_end_together_release_the_held_one(config: Config, connection: Connection) -> None:
    """Each of them still sees the other."""
    owner, other = make_worker(connection), make_worker(connection, child=2)
    for order in ORDERS:
        job_id = due_job(connection, "allow")
        for _ in range(2):
            tick(connection, config, job_id)
        one, two = start(connection, owner), start(connection, other)
        connection.execute("UPDATE jobs SET overlap = 'queue' WHERE id = %s", [job_id])
        held = tick(connection, config, job_id)
        ends: list[Act] = [
            ending(owner, one),
            ending(other, two),
        ]
        list(play(config, connection, order, *ends))
        (run,) = claim(connection, owner, 5)
        assert run.id == held, order
        finish(connection, owner, success(run))


@pytest.mark.parametrize("overlap", ["queue", "replace", "skip"])
def test_tick_and_finish_hold_no_run_for_ever(config: Config, connection: Connection, overlap: str) -> None:
    """Whoever is first: the tick has an outcome in the end, and a run of it can be claimed."""
    owner = make_worker(connection)
    for order in ORDERS:
        job_id = due_job(connection, overlap)
        tick(connection, config, job_id)
        run = start(connection, owner)
        connection.execute("UPDATE jobs SET next_run_at = clock_timestamp() WHERE id = %s", [job_id])
        acts: list[Act] = [
            lambda own: TickPasses(own, config, 1).run_pass(),
            ending(owner, run),
        ]
        list(play(config, connection, order, *acts))
        TickPasses(connection, config, 1).run_pass()  # for the tick that was left, as the run was in other hands
        assert len(outcomes(connection, job_id)) == 2, order
        claimed = claim(connection, owner, 5)
        assert len(claimed) == (outcomes(connection, job_id)[-1][0] == "ran"), order
        assert "held" not in states(connection, job_id), order
        finish(connection, owner, *map(success, claimed))


def test_trigger_goes_by_the_same_policy(config: Config, connection: Connection) -> None:
    owner = make_worker(connection)
    for overlap, expected in (("allow", "pending"), ("queue", "held"), ("replace", "held")):
        job_id = due_job(connection, overlap)
        tick(connection, config, job_id)
        start(connection, owner)
        trigger_job(connection, job_id)
        assert states(connection, job_id) == ["running", expected]
        cancel_job(connection, job_id)
    job_id = due_job(connection, "skip")
    first = tick(connection, config, job_id)
    with pytest.raises(Conflict, match=str(first)):
        trigger_job(connection, job_id)
    assert states(connection, job_id) == ["pending"]


def test_two_triggers_at_once_make_one_run(config: Config, connection: Connection) -> None:
    job_id = make_job(connection, overlap="skip")
    barrier = threading.Barrier(20)
    refused: list[str] = []

    def trigger() -> None:
        with connect(config, "user") as own:
            barrier.wait()
            try:
                trigger_job(own, job_id)
            except Conflict as error:
                refused.append(str(error))

    threads = [threading.Thread(target=trigger) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 19
    assert states(connection, job_id) == ["pending"]


def test_trigger_waits_for_a_run_in_other_hands(config: Config, connection: Connection, second: Connection) -> None:
    """A worker is at work on the row for a moment; that moment decides nothing."""
    job_id = make_job(connection, overlap="queue")
    first = trigger_job(connection, job_id)
    made: list[UUID] = []
    with transaction(second):
        second.execute("SELECT FROM queue WHERE id = %s FOR NO KEY UPDATE", [first.id])

        def trigger() -> None:
            with connect(config, "user") as own:
                made.append(trigger_job(own, job_id).id)

        thread = threading.Thread(target=trigger)
        thread.start()
        wait_for(lambda: waiting(connection), why="it waits for the row")
        second.execute("DELETE FROM queue WHERE id = %s", [first.id])
    thread.join()
    assert [run.id for run in claim(connection, make_worker(connection))] == made


def waiting(connection: Connection) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    row = connection.execute(query).fetchone()
    assert row
    return bool(row[0])


def test_run_in_other_hands_leaves_its_job_for_the_next_pass_and_no_other(
    config: Config, connection: Connection, second: Connection
) -> None:
    job_id, other = due_job(connection, "queue"), due_job(connection, "queue")
    first = tick(connection, config, job_id)
    connection.execute("UPDATE jobs SET next_run_at = clock_timestamp() WHERE id IN (%s, %s)", [job_id, other])
    with transaction(second):
        second.execute("SELECT FROM queue WHERE id = %s FOR NO KEY UPDATE", [first])
        TickPasses(connection, config, 1).run_pass()
        assert (states(connection, job_id), states(connection, other)) == (["pending"], ["pending", "held"])
    TickPasses(connection, config, 1).run_pass()
    assert states(connection, job_id) == ["pending", "held"]


def test_edit_to_allow_lets_held_runs_go(config: Config, connection: Connection) -> None:
    """What is made beside them from then on would leave the queue without looking for them."""
    job_id = due_job(connection, "queue")
    owner = make_worker(connection)
    for _ in range(3):
        tick(connection, config, job_id)
    edit_job(connection, job_id, {"overlap": "allow"})
    assert len(claim(connection, owner, 5)) == 3


def test_run_that_is_held_behind_none_is_released_by_the_sweep(config: Config, connection: Connection) -> None:
    """The net under the trigger."""
    job_id = due_job(connection, "queue")
    first = tick(connection, config, job_id)
    held = tick(connection, config, job_id)
    connection.execute("ALTER TABLE queue DISABLE TRIGGER queue_releases_held_run")
    connection.execute("DELETE FROM queue WHERE id = %s", [first])
    sweep_orphans(connection, config)
    assert [run.id for run in claim(connection, make_worker(connection), 5)] == [held]


def test_replacing_run_takes_over_the_time_of_the_one_that_waited(config: Config, connection: Connection) -> None:
    """Or with a jitter longer than the steps of the schedule none would ever be due."""
    job_id = due_job(connection, "replace", jitter_seconds=86400.0)
    dues = []
    for _ in range(5):
        run_id = tick(connection, config, job_id)
        row = connection.execute("SELECT run_after FROM queue WHERE id = %s", [run_id]).fetchone()
        assert row
        dues.append(row[0])
    assert dues == sorted(dues, reverse=True)


def test_pile_of_runs_can_be_ended_and_decided_on(config: Config, connection: Connection) -> None:
    """Each step costs as many rows as there are, not their square, which was half a minute for ten thousand."""
    connection.deadline_seconds = 20.0
    connection.execute("SET statement_timeout = '15s'")
    job_id = make_job(connection, overlap="allow")
    connection.execute(
        "INSERT INTO queue (job_id, job_version, priority, scheduled_for, run_after, trigger, max_attempts)"
        " SELECT %s, 1, 5, now(), now(), 'manual', 3 FROM generate_series(1, 10000)",
        [job_id],
    )
    edit_job(connection, job_id, {"overlap": "queue"})
    trigger_job(connection, job_id)
    connection.execute("UPDATE jobs SET cron_expr = '0 0 1 1 *' WHERE id = %s", [job_id])
    assert tick(connection, config, job_id)
    pause_job(connection, job_id)
    assert connection.execute("SELECT count(*) FROM queue").fetchone() == (0,)


def test_runs_that_are_ended_together_look_for_no_held_one(config: Config, connection: Connection) -> None:
    """Each would look through all that were deleted before it."""
    job_id = due_job(connection, "queue")
    for _ in range(3):
        tick(connection, config, job_id)
    connection.execute(
        "CREATE OR REPLACE FUNCTION release_held_run() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'it looks for one'; END $$"
    )
    pause_job(connection, job_id)
    assert states(connection, job_id) == ["cancelled"] * 3


def test_trigger_that_meets_a_deadlock_is_repeated(config: Config, connection: Connection, second: Connection) -> None:
    """A worker that reports a success and a failure holds the one's row while it waits for the other's job."""
    job_id = make_job(connection, overlap="queue")
    first = trigger_job(connection, job_id)
    made: list[UUID] = []

    def trigger() -> None:
        with connect(config, "user") as own:
            own.deadline_seconds = 20.0
            own.execute("SET lock_timeout = '10s'; SET statement_timeout = '15s'; SET deadlock_timeout = '1s'")
            made.append(trigger_job(own, job_id).id)

    second.deadline_seconds = 20.0
    second.execute("SET lock_timeout = '10s'; SET statement_timeout = '15s'; SET deadlock_timeout = '10s'")
    # Whoever has waited for its deadlock_timeout looks for a deadlock, once, and gives way: that shall be the trigger.
    thread = threading.Thread(target=trigger)
    with transaction(second):
        second.execute("SELECT FROM queue WHERE id = %s FOR NO KEY UPDATE", [first.id])
        thread.start()
        wait_for(lambda: waiting(connection), why="it holds the job, and waits for the run")
        second.execute("SELECT FROM jobs WHERE id = %s FOR SHARE", [job_id])
    thread.join()
    assert len(made) == 1
    assert states(connection, job_id) == ["pending", "held"]


def test_triggers_of_many_against_finishing_workers_are_all_answered(config: Config, connection: Connection) -> None:
    job_id = make_job(connection, overlap="queue", catch_up_limit=1000)
    broken: list[BaseException] = []
    stop = threading.Event()

    def work(child: int) -> None:
        with connect(config, "worker") as own:
            own.deadline_seconds = 20.0
            owner = make_worker(own, child=child)
            while not stop.is_set():
                for run in claim(own, owner):
                    finish(own, owner, success(run))

    def trigger() -> None:
        with connect(config, "user") as own:
            own.deadline_seconds = 20.0
            own.execute("SET lock_timeout = '10s'; SET statement_timeout = '15s'")
            try:
                for _ in range(25):
                    trigger_job(own, job_id)
            except BaseException as error:
                broken.append(error)
                raise

    workers = [threading.Thread(target=work, args=(child,)) for child in range(2)]
    users = [threading.Thread(target=trigger) for _ in range(8)]
    for thread in (*workers, *users):
        thread.start()
    for thread in users:
        thread.join()
    wait_for(lambda: connection.execute("SELECT count(*) FROM queue").fetchone() == (0,), why="all of them have run")
    stop.set()
    for thread in workers:
        thread.join()
    assert broken == []
    assert connection.execute("SELECT count(*) FROM finished_runs").fetchone() == (200,)


def test_pause_and_cancel_take_held_runs_along(config: Config, connection: Connection) -> None:
    owner = make_worker(connection)
    for change in (pause_job, cancel_job):
        job_id = due_job(connection, "queue")
        tick(connection, config, job_id)
        run = start(connection, owner)
        tick(connection, config, job_id)
        tick(connection, config, job_id)
        change(connection, job_id)
        assert states(connection, job_id) == ["running", "cancelled", "cancelled"]
        finish(connection, owner, success(run))
        assert claim(connection, owner, 5) == []


def test_ticks_that_are_caught_up_queue_up(config: Config, connection: Connection) -> None:
    now = database_now(connection)
    due = (now - timedelta(hours=5)).replace(minute=0, second=0, microsecond=0)
    job_id = make_job(
        connection, cron_expr="0 * * * *", next_run_at=due, catch_up="all", catch_up_limit=3, overlap="queue"
    )
    TickPasses(connection, config, 1).run_pass()
    assert states(connection, job_id)[:3] == ["pending", "held", "held"]
    owner, went = make_worker(connection), []
    while claimed := claim(connection, owner, 5):
        (run,) = claimed
        went.append(run.scheduled_for)
        finish(connection, owner, success(run))
    assert went == sorted(went)
    assert len(went) >= 3
