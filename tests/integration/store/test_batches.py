"""Claims of many runs, their watermark and their share; what is handed back, and what nobody can know."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest

from forgeflow.config import Config
from forgeflow.domain.run import Ending, Failure
from forgeflow.process.clock import boottime
from forgeflow.store import runs
from forgeflow.store.connection import Connection, connect
from forgeflow.store.runs import WHOLE_QUEUE, Bounds, ClaimedRun, Owner
from forgeflow.worker.watermark import Watermark
from tests.support.databases import config_for
from tests.support.scenario import (
    RETRY,
    bulk_runs,
    claim,
    fail,
    finish,
    look,
    make_job,
    make_runs,
    make_worker,
    plan_of_claim,
    recover,
    success,
)
from tests.support.wire import Wire


def unbegun(run: ClaimedRun) -> Ending:
    failure = Failure("interrupted", "handed back before it began", charged=False)
    return Ending(run.id, run.attempt, failure, is_begun=False)


def hand_back(connection: Connection, owner: Owner, *claimed: ClaimedRun) -> list[str]:
    return [row.status for row in fail(connection, owner, *map(unbegun, claimed))]


def behind(*claimed: ClaimedRun) -> Bounds:
    """What a worker's next claim goes by that has claimed these."""
    mark = Watermark()
    mark.bounds(0.0)
    mark.note(claimed, len(claimed))
    return mark.bounds(0.0)


def claim_behind(connection: Connection, owner: Owner, bounds: Bounds, count: int) -> list[ClaimedRun]:
    return runs.claim_runs(
        connection, boot_id=owner.boot_id, child=owner.child, max_runs=count, marks_at=bounds.at, marks_id=bounds.id
    )


@pytest.mark.parametrize(
    ("due", "workers", "asked", "taken"),
    [(10, 4, 100, 3), (12, 4, 100, 3), (1, 4, 100, 1), (400, 4, 100, 100), (60, 1, 100, 60), (9, 3, 2, 2)],
)
def test_claim_takes_no_more_than_a_fair_share_of_what_is_due(
    connection: Connection, due: int, workers: int, asked: int, taken: int
) -> None:
    make_runs(connection, make_job(connection), due)
    owners = [make_worker(connection, child=number) for number in range(1, workers + 1)]
    make_worker(connection, child=99, lease=-1.0)  # dead: it shares in nothing
    assert len(claim(connection, owners[0], asked)) == taken


def test_claim_of_one_takes_one_whatever_its_share_is(connection: Connection) -> None:
    make_runs(connection, make_job(connection), 2)
    owner, _other = make_worker(connection), make_worker(connection, child=2)
    assert len(claim(connection, owner, 1)) == 1
    assert claim(connection, owner, 0) == []


def test_share_of_many_workers_is_counted_up_to_a_thousand_runs(connection: Connection) -> None:
    bulk_runs(connection, make_job(connection), 1_500)
    owner, *_others = [make_worker(connection, child=number) for number in range(1, 101)]
    assert len(claim(connection, owner, 100)) == 10


def test_watermark_hides_what_lies_before_it_and_nothing_else(connection: Connection) -> None:
    job_id = make_job(connection)
    made = make_runs(connection, job_id, 6)
    owner = make_worker(connection)
    first = claim(connection, owner, 3)
    hand_back(connection, owner, first[1])
    assert [run.id for run in claim_behind(connection, owner, behind(*first), 5)] == made[3:]
    assert [run.id for run in claim_behind(connection, owner, WHOLE_QUEUE, 5)] == [made[1]]


def test_watermark_of_one_priority_leaves_the_others_alone(connection: Connection) -> None:
    urgent, usual = make_job(connection, priority=2), make_job(connection, priority=5)
    (usual_run, *_), owner = make_runs(connection, usual, 2), make_worker(connection)
    (first,) = claim(connection, owner)
    assert first.id == usual_run
    (urgent_run,) = make_runs(connection, urgent)
    assert [run.id for run in claim_behind(connection, owner, behind(first), 1)] == [urgent_run]


@contextmanager
def old_snapshot(config: Config) -> Iterator[None]:
    """A transaction that sees what was; nothing that has gone since can be cleared away."""
    with connect(config, "old") as old:
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM queue")
        yield


def buffers(plan: str) -> int:
    """Pages that the statement touched."""
    found = re.search(r"Buffers: (?:shared|local) (?:hit=(\d+))?(?: ?read=(\d+))?", plan)
    assert found, plan
    return sum(int(each or 0) for each in found.groups())


def test_claim_behind_a_watermark_reads_no_dead_entries_before_it(config: Config, connection: Connection) -> None:
    owner = make_worker(connection)
    bulk_runs(connection, make_job(connection), 3_000)
    connection.execute("VACUUM ANALYZE queue")
    with old_snapshot(config):
        claimed = [run for _ in range(20) for run in claim(connection, owner, 100)]
        finish(connection, owner, *map(success, claimed))
        with_mark = buffers(plan_of_claim(connection, owner, 1, behind(*claimed)))
        without = buffers(plan_of_claim(connection, owner, 1))
    assert with_mark < 60 < 600 < without


@pytest.mark.parametrize("asked", [1, 20, 100])
def test_claim_reads_no_delayed_runs_of_better_priorities(connection: Connection, asked: int) -> None:
    job_id, owner = make_job(connection), make_worker(connection)
    bulk_runs(connection, job_id, 10_000, priority=1, due="1 hour")
    bulk_runs(connection, job_id, asked)
    connection.execute("VACUUM ANALYZE queue")
    assert buffers(plan_of_claim(connection, owner, asked)) < 100 + 12 * asked


def test_run_handed_back_unbegun_keeps_its_place_and_costs_nothing(connection: Connection) -> None:
    (first, second), owner = make_runs(connection, make_job(connection), 2), make_worker(connection)
    claimed = claim(connection, owner, 2)
    place = claimed[0].run_after
    assert hand_back(connection, owner, claimed[0]) == ["pending"]
    row = look(connection, first)
    assert (row.status, row.failures, row.attempt, row.started_at, row.next_attempt_at) == (
        "pending",
        0,
        1,
        None,
        place,
    )
    assert runs.list_attempts(connection, run_id=first) == []
    assert connection.execute("SELECT interruptions FROM queue WHERE id = %s", [first]).fetchone() == (0,)
    assert look(connection, second).status == "running"


@pytest.mark.parametrize("status", ["paused", "cancelled"])
def test_run_of_a_paused_job_that_is_handed_back_is_cancelled(connection: Connection, status: str) -> None:
    job_id = make_job(connection)
    runs.enqueue_run(connection, job_id=job_id, trigger="once")
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    connection.execute("UPDATE jobs SET status = %s WHERE id = %s", [status, job_id])
    assert hand_back(connection, owner, run) == ["cancelled"]


def test_run_that_shall_be_cancelled_and_is_handed_back_is_cancelled(connection: Connection) -> None:
    job_id, owner = make_job(connection), make_worker(connection)
    make_runs(connection, job_id)
    (run,) = claim(connection, owner)
    runs.request_cancel(connection, job_id=job_id, reason="not today")
    assert hand_back(connection, owner, run) == ["cancelled"]
    assert look(connection, run.id).error == "stopped: not today"


def test_batch_of_a_dead_node_is_handed_back_uncharged_once(connection: Connection) -> None:
    made, owner = make_runs(connection, make_job(connection), 3), make_worker(connection)
    places = {run.id: run.run_after for run in claim(connection, owner, 3)}
    assert {row.status for row in recover(connection, owner, all_begun=True)} == {"pending"}
    for run_id in made:
        row = look(connection, run_id)
        assert (row.failures, row.next_attempt_at) == (0, places[run_id])
        assert runs.list_attempts(connection, run_id=run_id) == []


def test_single_run_of_a_dead_node_is_charged(connection: Connection) -> None:
    (run_id,), owner = make_runs(connection, make_job(connection)), make_worker(connection)
    claim(connection, owner)
    recover(connection, owner, all_begun=True)
    assert look(connection, run_id).failures == 1
    assert len(runs.list_attempts(connection, run_id=run_id)) == 1


def make_suspects(connection: Connection, count: int) -> list[UUID]:
    made = make_runs(connection, make_job(connection), count)
    lost = make_worker(connection, child=77)
    claim(connection, lost, count)
    recover(connection, lost, all_begun=True)
    return made


def test_suspect_is_claimed_alone_and_charged_the_next_time(connection: Connection) -> None:
    made = make_suspects(connection, 2)
    for number, run_id in enumerate(made, 1):
        owner = make_worker(connection, child=number)
        assert [run.id for run in claim(connection, owner, 10)] == [run_id]
        recover(connection, owner, all_begun=True)
        assert look(connection, run_id).failures == 1


def test_runs_before_a_suspect_are_claimed_without_it(connection: Connection) -> None:
    suspects = make_suspects(connection, 2)
    urgent = make_runs(connection, make_job(connection, priority=1), 3)
    owner = make_worker(connection)
    assert [run.id for run in claim(connection, owner, 10)] == urgent
    assert [run.id for run in claim(connection, owner, 10)] == suspects[:1]


def test_turn_of_a_full_batch_is_one_round_trip(connection: Connection, database_url: str) -> None:
    make_runs(connection, make_job(connection), 250)
    owner = make_worker(connection)
    with Wire(database_url) as wire, connect(config_for(wire.url), "worker") as worker:
        turn = runs.take_turn(worker, owner, [], max_runs=100, **RETRY)
        answers = wire.answers
        turn = runs.take_turn(worker, owner, [success(run) for run in turn.claimed], max_runs=100, **RETRY)
        assert len(turn.claimed) == 100
        assert wire.answers == answers + 1


def test_batches_under_an_old_snapshot_never_share_a_run(config: Config, connection: Connection) -> None:
    """Watermarks, shares and hand-backs together; every run is finished once, and of those handed back none is lost."""
    total = 2_000
    bulk_runs(connection, make_job(connection), total)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with connect(config, f"worker {number}") as own:
                owner, mark = make_worker(own, child=number), Watermark()
                endings: list[Ending] = []
                while True:
                    turn = runs.take_turn(own, owner, endings, max_runs=20, bounds=mark.bounds(boottime()), **RETRY)
                    mark.note(turn.claimed, 20)
                    if not turn.claimed and mark.is_whole:
                        return
                    endings = [success(run) if (run.id.int + run.attempt) % 5 else unbegun(run) for run in turn.claimed]
        except BaseException as error:  # noqa: BLE001 - told by the test
            errors.append(error)

    with old_snapshot(config):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert connection.execute("SELECT count(*) FROM finished_runs").fetchone() == (total,)
    assert connection.execute("SELECT count(*) FROM queue").fetchone() == (0,)
