"""Pairs of statements that meet on one run, in every order of their steps."""

from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from forgeflow.config import Config
from forgeflow.errors import RunFinished
from forgeflow.service.lifecycle import cancel_job, pause_job
from forgeflow.service.runs import cancel_run
from forgeflow.store import nodes, runs
from forgeflow.store.connection import Connection
from forgeflow.store.runs import ClaimedRun, Owner
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
from tests.support.sessions import ORDERS, Act, play
from tests.support.web import empty_tables, open_database


@pytest.fixture
def database_url(module_database: str) -> str:
    with open_database(module_database) as opened:
        empty_tables(opened)
    return module_database


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[order for order in ORDERS if order.startswith("AB")])
def late_order(request: pytest.FixtureRequest) -> str:
    """Both have begun, which changes nothing for anybody: the orders of what follows."""
    return str(request.param)


def has_row(connection: Connection, owner: Owner) -> bool:
    rows = nodes.node_workers(connection, boot_id=owner.boot_id)
    return owner.child in [row.child for row in rows]


def beat(connection: Connection, owner: Owner) -> list[int]:
    return nodes.beat_node(
        connection,
        boot_id=owner.boot_id,
        worker_id="node",
        hostname="host",
        machine="machine",
        pid=1,
        roles=["worker"],
        concurrency=1,
        version="0",
        children=[owner.child],
        lease_seconds=60.0,
    ).children


def expire(connection: Connection) -> None:
    connection.execute("UPDATE workers SET lease_expires_at = now() - interval '1 ms'")


def test_beat_and_recovery(config: Config, connection: Connection, order: str) -> None:
    """The worker keeps its row and its run, or loses both, and the beat says which."""
    make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    expire(connection)
    renewed, recovered = play(
        config,
        connection,
        order,
        lambda own: beat(own, owner),
        lambda own: recover(own, owner, only_expired=True, all_begun=True),
    )
    kept = has_row(connection, owner)
    assert bool(renewed) is kept
    assert bool(recovered) is not kept
    assert look(connection, run.id).status == ("running" if kept else "pending")


def test_finish_and_recovery(config: Config, connection: Connection, order: str) -> None:
    make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    finished, recovered = play(
        config,
        connection,
        order,
        lambda own: finish(own, owner, success(run)),
        lambda own: recover(own, owner, all_begun=True),
    )
    row = look(connection, run.id)
    assert bool(finished) is not bool(recovered), "exactly one of them has it"
    assert (row.status, row.failures) == (("succeeded", 0) if finished else ("pending", 1))


@pytest.mark.parametrize("charged", [True, False])
def test_failure_or_drain_and_recovery(config: Config, connection: Connection, order: str, charged: bool) -> None:
    """Handed back by its worker, or by recovery, never by both: one attempt, one charge at most."""
    make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    failed, recovered = play(
        config,
        connection,
        order,
        lambda own: fail(own, owner, failure(run, "interrupted", charged=charged)),
        lambda own: recover(own, owner, all_begun=True),
    )
    assert bool(failed) is not bool(recovered)
    row = look(connection, run.id)
    assert (row.status, row.failures) == ("pending", int(charged or bool(recovered)))
    assert len(runs.list_attempts(connection, run_id=run.id)) == 1


def test_late_finish_and_next_claim_of_the_same_node(config: Config, connection: Connection, order: str) -> None:
    """Only attempt and child tell the two apart."""
    make_runs(connection, make_job(connection))
    boot_id = uuid4()
    old = make_worker(connection, boot_id=boot_id, child=1)
    (run,) = claim(connection, old)
    recover(connection, old)
    new = make_worker(connection, boot_id=boot_id, child=2)
    finished, claimed = play(
        config, connection, order, lambda own: finish(own, old, success(run)), lambda own: claim(own, new)
    )
    assert finished == []
    assert [one.attempt for one in claimed] == [2]  # type: ignore[attr-defined]
    assert look(connection, run.id).status == "running"


def test_claim_and_cancel(config: Config, connection: Connection, order: str) -> None:
    """Never begun, or begun and asked to stop."""
    job_id = make_job(connection)
    (run_id,) = make_runs(connection, job_id)
    owner = make_worker(connection)
    claimed, _ = play(config, connection, order, lambda own: claim(own, owner), lambda own: cancel_job(own, job_id))
    row = look(connection, run_id)
    if claimed:
        assert row.status == "running"
        assert row.cancel_requested_at
    else:
        assert (row.status, row.attempt) == ("cancelled", 0)


def stop(connection: Connection, run_id: UUID) -> bool:
    """Whether the run was there to be cancelled."""
    try:
        cancel_run(connection, run_id)
    except RunFinished:
        return False
    return True


def test_claim_and_cancel_of_the_run(config: Config, connection: Connection, late_order: str) -> None:
    """F57: never begun, or begun and asked to stop."""
    (run_id,) = make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    claimed, _ = play(config, connection, late_order, lambda own: claim(own, owner), lambda own: stop(own, run_id))
    row = look(connection, run_id)
    if claimed:
        assert row.status == "running"
        assert row.cancel_requested_at
    else:
        assert (row.status, row.attempt) == ("cancelled", 0)


def test_finish_and_cancel_of_the_run(config: Config, connection: Connection, late_order: str) -> None:
    """A run that has succeeded stays that; whoever came too late to cancel it is told."""
    make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    finished, stopped = play(
        config, connection, late_order, lambda own: finish(own, owner, success(run)), lambda own: stop(own, run.id)
    )
    assert finished == [run.id]
    row = look(connection, run.id)
    assert row.status == "succeeded"
    assert bool(row.cancel_requested_at) is stopped


ENDS: dict[str, Callable[[Connection, Owner, ClaimedRun], object]] = {
    "retry": lambda own, owner, run: fail(own, owner, failure(run)),
    "postponement": lambda own, owner, run: fail(own, owner, postponement(run)),
    "recovery": lambda own, owner, _: recover(own, owner, all_begun=True),
}


@pytest.mark.parametrize(
    ("what", "end"),
    [("run", "retry"), ("pause", "retry"), ("job", "postponement"), ("run", "recovery"), ("pause", "recovery")],
)
def test_cancel_or_pause_and_what_brings_a_run_back(
    config: Config, connection: Connection, late_order: str, end: str, what: str
) -> None:
    """F58: no pending run of what is cancelled or paused is left, whoever is first."""
    job_id = make_job(connection)
    run_id = runs.enqueue_run(connection, job_id=job_id, trigger="once")
    assert run_id
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    acts: dict[str, Act] = {
        "run": lambda own: stop(own, run_id),
        "job": lambda own: cancel_job(own, job_id),
        "pause": lambda own: pause_job(own, job_id),
    }
    list(play(config, connection, late_order, lambda own: ENDS[end](own, owner, run), acts[what]))
    assert look(connection, run_id).status == "cancelled"


def test_claim_and_recovery(config: Config, connection: Connection, order: str) -> None:
    """A claim of a worker that is declared dead at that moment takes nothing that is not handed back."""
    (run_id,) = make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    claimed, recovered = play(config, connection, order, lambda own: claim(own, owner), lambda own: recover(own, owner))
    assert bool(claimed) is bool(recovered)
    assert look(connection, run_id).status == "pending"
