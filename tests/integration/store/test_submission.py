"""Submitting: in how many round trips, what is stored when something of it fails, and who is told."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from forgeflow.config import Config
from forgeflow.errors import Conflict, ForgeError, InvalidInput, NotFound, StatusConflict, StoreError
from forgeflow.service.jobs import get_job, submit_job
from forgeflow.service.lifecycle import cancel_job, trigger_job
from forgeflow.store import runs
from forgeflow.store.connection import Connection, connect
from forgeflow.store.listener import listen
from tests.support.databases import config_for
from tests.support.submitting import PAYLOAD, count_told, request, stored, submit
from tests.support.waiting import wait_for
from tests.support.wire import Wire

# One round trip


def sent(trace: Path) -> list[str]:
    """What libpq says that it has sent."""
    return [line for line in trace.read_text().splitlines() if "\tF\t" in line]


def syncs(trace: Path) -> int:
    return sum(line.split("\t")[3] == "Sync" for line in sent(trace))


ACTS: dict[str, Callable[[Connection, UUID], object]] = {
    "a submission": lambda connection, _: submit(connection),
    "a submission with a key": lambda connection, _: submit(connection, idempotency_key="k"),
    "a trigger": lambda connection, job_id: trigger_job(connection, job_id),
    "a trigger with a payload": lambda connection, job_id: trigger_job(connection, job_id, PAYLOAD),
}


@pytest.mark.parametrize("name", ACTS)
def test_what_is_due_now_is_asked_for_whole_before_any_answer(
    config: Config, connection: Connection, tmp_path: Path, name: str
) -> None:
    """So one round trip is enough, whatever the distance. The wire holds every answer back until all was sent."""
    job_id = submit(connection)
    before, trace = stored(connection), tmp_path / "trace"
    with Wire(str(config.database.url)) as wire, trace.open("w") as file:
        caller = connect(config_for(wire.url), "caller")
        caller.deadline_seconds = 60
        caller.pgconn.trace(file.fileno())
        acting = threading.Thread(target=partial(ACTS[name], caller, job_id))
        with wire.late(60):
            acting.start()
            wait_for(lambda: syncs(trace) == 2, why="both statements")
            # It is done, though the caller has heard of nothing.
            wait_for(lambda: stored(connection)[1] == before[1] + 1, why="the run")
            assert not [line for line in trace.read_text().splitlines() if "\tB\t" in line]
            asked = sent(trace)
        acting.join(20)
        assert not acting.is_alive()
        assert sent(trace) == asked
        caller.close()


# The answer


def test_answer_to_a_submission_is_what_is_stored(connection: Connection) -> None:
    odd = {"function": "f", "args": {"b": 1e22, "a": [1.0, -0.0, None, "\N{GRINNING FACE}"]}}
    fields: list[dict[str, Any]] = [
        {},
        {"payload": odd, "tags": ["b", "a"], "description": "d", "timeout_seconds": 1},
        {"paused": True},
        {"cron_expr": "* * * * *", "timezone": "Europe/Berlin", "start_at": "2099-01-01T00:00:00+05:00"},
        {"run_at": "2020-01-01T00:00:00Z", "idempotency_key": "k"},
    ]
    for each in fields:
        made = submit_job(connection, request(**each), source="api").job
        assert made == get_job(connection, made.id)


def test_answer_to_a_trigger_is_what_is_stored(connection: Connection) -> None:
    job_id = submit(connection)
    for payload in (None, PAYLOAD):
        made = trigger_job(connection, job_id, payload)
        assert made == runs.get_run(connection, run_id=made.id)


def test_trigger_of_a_job_that_must_be_looked_at_first_is_as_before(connection: Connection) -> None:
    skipping, cancelled = submit(connection, overlap="skip"), submit(connection)
    cancel_job(connection, cancelled)
    before = stored(connection)
    refusals: list[tuple[UUID, Any, type[ForgeError]]] = [
        (skipping, None, Conflict),
        (skipping, {"command": "true"}, InvalidInput),
        (cancelled, PAYLOAD, StatusConflict),
        (cancelled, {"command": "true"}, StatusConflict),
        (UUID(int=0), PAYLOAD, NotFound),
    ]
    for job_id, payload, error in refusals:
        with pytest.raises(error):
            trigger_job(connection, job_id, payload)
    assert stored(connection) == before


# All or nothing


@pytest.mark.parametrize("table", ["jobs", "queue"])
def test_submission_of_which_a_part_is_refused_leaves_nothing(connection: Connection, table: str) -> None:
    before = stored(connection)
    connection.execute(f"ALTER TABLE {table} ADD CONSTRAINT refused CHECK (priority <> 7)".encode())
    with pytest.raises(StoreError, match="refused"):
        submit(connection, priority=7)
    assert stored(connection) == before
    assert submit(connection)  # over the same connection


def test_trigger_that_is_refused_leaves_its_connection_usable(connection: Connection) -> None:
    job_id = submit(connection)
    connection.execute("ALTER TABLE queue ADD CONSTRAINT refused CHECK (trigger <> 'manual')")
    with pytest.raises(StoreError, match="refused"):
        trigger_job(connection, job_id)
    assert stored(connection) == [1, 1]
    assert submit(connection)


def test_whoever_is_told_finds_what_was_submitted(connection: Connection, second: Connection) -> None:
    listen(second, "forgeflow_due")
    for number in range(1, 51):
        submit(connection)
        assert list(second.notifies(timeout=20, stop_after=1))
        assert stored(second)[1] == number


def test_each_submission_tells_once(connection: Connection, second: Connection) -> None:
    job_id = submit(connection)
    assert count_told(second, connection, lambda: submit(connection)) == 1
    assert count_told(second, connection, lambda: trigger_job(connection, job_id)) == 1
    assert count_told(second, connection, lambda: submit(connection, cron_expr="0 0 1 1 *")) == 0
    assert count_told(second, connection, lambda: submit(connection, paused=True)) == 0
