"""What functions a worker's code has: it claims their runs and those of commands, and whoever waits says for what."""

from typing import Any
from uuid import UUID

import pytest

from forgeflow.config import Config
from forgeflow.scheduler.ticks import TickPasses
from forgeflow.service.bulk import submit_runs
from forgeflow.service.lifecycle import edit_job, trigger_job
from forgeflow.store import runs
from forgeflow.store.connection import Connection
from tests.support.scenario import (
    claim,
    database_now,
    fail,
    failure,
    finish,
    look,
    make_job,
    make_runs,
    make_worker,
    success,
)


def job_of(connection: Connection, function: str, **fields: Any) -> UUID:
    return make_job(connection, executor="python", payload={"function": function}, **fields)


def missing(connection: Connection, run_id: UUID) -> str | None:
    run = runs.get_run(connection, run_id=run_id)
    assert run
    return run.missing_function


def test_worker_claims_runs_of_functions_that_it_has_and_of_commands(connection: Connection) -> None:
    (command,) = make_runs(connection, make_job(connection))
    (ours,) = make_runs(connection, job_of(connection, "shop.send"))
    (theirs,) = make_runs(connection, job_of(connection, "shop.refund"))
    assert {run.id for run in claim(connection, make_worker(connection, functions=["shop.send"]), 5)} == {command, ours}
    assert claim(connection, make_worker(connection, child=2), 5) == []
    other = make_worker(connection, child=3, functions=["shop.refund", "shop.send"])
    assert [run.id for run in claim(connection, other, 5)] == [theirs]


@pytest.mark.parametrize("size", [1, 20])
def test_runs_of_unknown_functions_keep_no_other_from_its_turn(connection: Connection, size: int) -> None:
    make_runs(connection, job_of(connection, "gone", priority=1), 50)
    made = make_runs(connection, make_job(connection, priority=1), 2)
    found = claim(connection, make_worker(connection), size)
    assert [run.id for run in found] == made[:size]


def test_function_of_a_run_is_that_of_its_own_payload(connection: Connection) -> None:
    job_id = job_of(connection, "shop.send")
    own = trigger_job(connection, job_id, {"function": "shop.refund"})
    bulk = submit_runs(connection, job_id, [{"function": "shop.refund"}, None])
    refunds = make_worker(connection, functions=["shop.refund"])
    assert [run.id for run in claim(connection, refunds, 5)] == [own.id, bulk[0]]
    assert [run.id for run in claim(connection, make_worker(connection, child=2, functions=["shop.send"]), 5)] == [
        bulk[1]
    ]


def test_tick_of_a_function_waits_for_a_worker_that_has_it(connection: Connection, config: Config) -> None:
    job_of(connection, "shop.send", cron_expr="* * * * *", next_run_at=database_now(connection))
    assert TickPasses(connection, config, 1).run_pass().runs == 1
    assert claim(connection, make_worker(connection)) == []
    assert len(claim(connection, make_worker(connection, child=2, functions=["shop.send"]))) == 1


def test_retry_waits_for_the_same_function(connection: Connection) -> None:
    job_id = job_of(connection, "shop.send", max_attempts=1)
    make_runs(connection, job_id)
    owner = make_worker(connection, functions=["shop.send"])
    (run,) = claim(connection, owner)
    fail(connection, owner, failure(run))
    assert runs.retry_runs(connection, run_ids=[run.id], is_held=False)
    assert claim(connection, make_worker(connection, child=2)) == []
    assert len(claim(connection, owner)) == 1


def test_edit_of_a_job_moves_what_waits_to_those_who_have_its_new_function(connection: Connection) -> None:
    job_id = job_of(connection, "shop.send")
    waiting, running = make_runs(connection, job_id, 2)
    old = make_worker(connection, functions=["shop.send"])
    (begun,) = claim(connection, old)
    left = ({waiting, running} - {begun.id}).pop()
    edit_job(connection, job_id, {"payload": {"function": "shop.post"}})
    assert claim(connection, old) == []
    new = make_worker(connection, child=2, functions=["shop.post"])
    assert [run.id for run in claim(connection, new)] == [left]
    edit_job(connection, job_id, {"executor": "shell", "payload": {"command": "true"}})
    (again,) = make_runs(connection, job_id)
    assert [run.id for run in claim(connection, make_worker(connection, child=3))] == [again]
    assert finish(connection, old, success(begun)) == [begun.id]


def test_node_hears_only_of_runs_that_its_workers_have(connection: Connection) -> None:
    make_runs(connection, job_of(connection, "shop.send"), 3)
    without, having = make_worker(connection), make_worker(connection, functions=["shop.send"])
    make_worker(connection, boot_id=having.boot_id, child=2)
    due = [runs.peek_queue(connection, boot_id=owner.boot_id, max_due=9).due for owner in (without, having)]
    assert due == [0, 3]


def test_run_that_no_living_worker_can_execute_says_what_it_waits_for(connection: Connection) -> None:
    job_id = job_of(connection, "shop.send")
    run = trigger_job(connection, job_id, None)
    assert run.missing_function == missing(connection, run.id) == "shop.send"
    assert look(connection, run.id).status == "pending"
    owner = make_worker(connection, functions=["shop.send"])
    assert missing(connection, run.id) is None
    connection.execute("UPDATE workers SET lease_expires_at = now() WHERE child = %s", [owner.child])
    assert missing(connection, run.id) == "shop.send"
    (listed,) = runs.list_runs(connection, job_id=job_id, status=None, before=None, max_rows=5)
    assert listed.missing_function == "shop.send"
    claim(connection, make_worker(connection, child=2, functions=["shop.send"]))
    assert missing(connection, run.id) is None
    (command,) = make_runs(connection, make_job(connection))
    assert missing(connection, command) is None


def test_workers_of_the_same_code_share_one_row(connection: Connection) -> None:
    for child, names in enumerate((["a", "b"], ["a", "b"], ["a"], [])):
        make_worker(connection, child=child, functions=names)
    assert connection.execute("SELECT count(*) FROM catalogues").fetchone() == (3,)
