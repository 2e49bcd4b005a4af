"""Many at once: whoever cancels a run or its job, and whoever claims, triggers or retries."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from uuid import UUID

import pytest

from forgeflow.config import Config
from forgeflow.errors import Conflict, StatusConflict
from forgeflow.service.lifecycle import cancel_job, pause_job, resume_job, trigger_job
from forgeflow.service.retries import retry_run
from forgeflow.service.runs import cancel_run
from forgeflow.store.connection import Connection, connect
from tests.support.scenario import claim, fail, failure, look, make_job, make_runs, make_worker
from tests.support.web import empty_tables, open_database


@pytest.fixture
def database_url(module_database: str) -> str:
    with open_database(module_database) as opened:
        empty_tables(opened)
    return module_database


def at_once(*acts: Callable[[], object]) -> None:
    """Each in a thread of its own; raises what one of them raised."""
    start = threading.Barrier(len(acts))
    raised: list[Exception] = []

    def act_on(act: Callable[[], object]) -> None:
        start.wait(20)
        try:
            act()
        except Exception as error:  # noqa: BLE001 - raised below
            raised.append(error)

    threads = [threading.Thread(target=act_on, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if raised:
        raise raised[0]


@pytest.mark.parametrize("rounds", [200, pytest.param(10_000, marks=pytest.mark.proof)])
def test_run_is_cancelled_before_it_is_claimed_or_asked_to_stop_after(
    connection: Connection, second: Connection, rounds: int
) -> None:
    """F57."""
    job_id = make_job(connection)
    owner = make_worker(connection)
    ends: set[str] = set()
    claims: list[UUID] = []
    asked: list[bool] = []

    def begin() -> None:
        claims[:] = [run.id for run in claim(connection, owner)]

    def stop(run_id: UUID) -> None:
        asked[:] = [cancel_run(second, run_id).is_asked]

    for number in range(rounds):
        (run_id,) = make_runs(connection, job_id)
        sides = [begin, partial(stop, run_id)]
        at_once(*(sides if number % 2 else reversed(sides)))
        run = look(connection, run_id)
        ends.add(run.status)
        assert (claims, asked, run.status, run.attempt) in (
            ([], [False], "cancelled", 0),
            ([run_id], [True], "running", 1),
        )
        assert (run.cancel_requested_at is not None) is bool(claims)
        connection.execute("DELETE FROM queue")
    assert len(ends) == 2, "it was a race: each was first now and then"


@pytest.fixture
def many(config: Config) -> Iterator[list[Connection]]:
    """Sessions with the patience of users: those of the tests give up a lock after 0.18 s."""
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(connect(config, f"user {number}"))) for number in range(50)]
        for each in opened:
            each.execute("SET lock_timeout = '20s'; SET statement_timeout = '20s'")
            each.deadline_seconds = 21.0
        yield opened


@pytest.mark.parametrize("overlap", ["allow", "queue"])
def test_no_trigger_and_no_retry_outlives_the_cancel_of_its_job(
    connection: Connection, many: list[Connection], overlap: str
) -> None:
    """F59: fifty at once; everything that was answered is there, and nothing of it waits."""
    job_id = make_job(connection, overlap=overlap, catch_up_limit=1000, max_attempts=1)
    dead = make_runs(connection, job_id, 20)
    owner = make_worker(connection)
    fail(connection, owner, *(failure(run) for run in claim(connection, owner, 20)))
    answered: list[UUID] = []

    def retry(run_id: UUID, own: Connection) -> None:
        with suppress(StatusConflict):  # the cancel was first
            answered.append(retry_run(own, run_id).id)

    def trigger(own: Connection) -> None:
        with suppress(StatusConflict):
            answered.append(trigger_job(own, job_id).id)

    def toggle(own: Connection) -> None:
        with suppress(StatusConflict):
            pause_job(own, job_id)
            resume_job(own, job_id)

    def cancel(own: Connection) -> None:
        cancel_job(own, job_id)

    acts: list[Callable[[Connection], None]] = [
        *(partial(retry, run_id) for run_id in dead),
        *[trigger] * 20,
        *[toggle] * 5,
        *[cancel] * 5,
    ]
    at_once(*(partial(act, own) for act, own in zip(acts, many, strict=True)))
    rows = connection.execute("SELECT id, status FROM runs WHERE job_id = %s AND NOT id = ANY (%s)", [job_id, dead])
    assert dict(rows.fetchall()) == dict.fromkeys(answered, "cancelled")
    assert connection.execute("SELECT count(*) FROM queue").fetchone() == (0,)


def test_of_many_who_retry_one_run_one_does(connection: Connection, many: list[Connection]) -> None:
    (run_id,) = make_runs(connection, make_job(connection, max_attempts=1))
    owner = make_worker(connection)
    fail(connection, owner, failure(claim(connection, owner)[0]))
    made: list[UUID] = []
    refused: list[str] = []

    def retry(own: Connection) -> None:
        try:
            made.append(retry_run(own, run_id).id)
        except Conflict as error:
            refused.append(str(error))

    at_once(*(partial(retry, own) for own in many))
    (new,) = made
    assert refused == [f"the run is being retried already, by {new}"] * (len(many) - 1)
