"""Submitting many at once: all or none, in their order, one notification."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from forgeflow.config import Config
from forgeflow.errors import Conflict, ForgeError, InvalidInput, NotFound, StatusConflict, StoreError
from forgeflow.service.bulk import submit_jobs, submit_runs
from forgeflow.service.jobs import submit_job
from forgeflow.service.lifecycle import cancel_job, edit_job, pause_job, trigger_job
from forgeflow.store import runs
from forgeflow.store.connection import Connection, connect
from tests.support.scenario import claim, make_job, make_worker
from tests.support.sessions import ORDERS, Act, play
from tests.support.submitting import DUE, PAYLOAD, count_told, request, stored, submit


def test_number_of_round_trips_of_a_bulk_does_not_grow(config: Config, tmp_path: Path) -> None:
    counts = []
    for number, size in enumerate((10, 1000)):
        trace = tmp_path / str(number)
        caller = connect(config, "caller")
        job_id = submit(caller)
        with trace.open("w") as file:
            caller.pgconn.trace(file.fileno())
            submit_runs(caller, job_id, [PAYLOAD] * size)
            caller.pgconn.untrace()
        counts.append(sum("ReadyForQuery" in line for line in trace.read_text().splitlines()))
        caller.close()
    assert counts == [5, 5]  # BEGIN, the job, COPY, COMMIT, NOTIFY


@pytest.mark.parametrize("place", [0, 700, 1999])
def test_bulk_of_which_one_run_is_refused_leaves_nothing(
    connection: Connection, second: Connection, place: int
) -> None:
    job_id = submit(connection)
    connection.execute('ALTER TABLE queue ADD CONSTRAINT refused CHECK (payload <> \'{"function": "bad"}\')')
    payloads = [{"function": "bad" if number == place else "good"} for number in range(2000)]

    def refused() -> None:
        with pytest.raises(StoreError, match="refused"):
            submit_runs(connection, job_id, payloads)

    assert count_told(second, connection, refused) == 0
    assert stored(connection) == [1, 1]


# Who is told


def test_bulk_tells_once(connection: Connection, second: Connection) -> None:
    job_id = submit(connection)
    acts: list[Callable[[], object]] = [
        lambda: submit_runs(connection, job_id, [PAYLOAD] * 2000),
        lambda: submit_jobs(connection, [request()] * 500, source="api"),
    ]
    assert [count_told(second, connection, act) for act in acts] == [1, 1]


def test_bulk_of_nothing_that_is_due_tells_nobody(connection: Connection, second: Connection) -> None:
    job_id = submit(connection)
    acts: list[Callable[[], object]] = [
        lambda: submit_runs(connection, job_id, []),
        lambda: submit_jobs(connection, [request(paused=True)], source="api"),
        lambda: submit_jobs(connection, [], source="api"),
    ]
    assert [count_told(second, connection, act) for act in acts] == [0, 0, 0]


# Many runs


def test_runs_of_a_bulk_are_claimed_in_the_order_of_their_list(connection: Connection) -> None:
    job_id = make_job(connection, executor="python", payload=DUE["payload"], priority=3, max_attempts=4)
    payloads = [
        {"function": "f", "args": {"n": number, "text": "caf\xe9\t\\\n\N{GRINNING FACE}"}} for number in range(900)
    ]
    made = submit_runs(connection, job_id, [*payloads, None])
    assert sorted(set(made)) == made
    assert {(each.version, each.variant) for each in made} == {(7, "specified in RFC 4122")}
    found = claim(connection, make_worker(connection, functions=["f", "shop.send"]), 1000)
    assert [run.id for run in found] == made
    assert [run.payload for run in found] == [*payloads, DUE["payload"]]
    assert {run.max_attempts for run in found} == {4}
    row = connection.execute(
        "SELECT DISTINCT priority, trigger, job_version, attempt - 1, failures FROM queue"
    ).fetchall()
    assert row == [(3, "manual", 1, 0, 0)]
    assert {run.scheduled_for for run in found} == {runs.get_run(connection, run_id=made[0]).scheduled_for}  # type: ignore[union-attr]


def test_ids_of_a_bulk_lie_between_those_of_the_database(connection: Connection) -> None:
    job_id = submit(connection)
    first = trigger_job(connection, job_id).id
    connection.execute("SELECT pg_sleep(0.002)")
    made = submit_runs(connection, job_id, [None] * 10)
    connection.execute("SELECT pg_sleep(0.002)")
    last = trigger_job(connection, job_id).id
    assert [first, *made, last] == sorted([first, *made, last])


@pytest.mark.parametrize(
    ("payloads", "pointers"),
    [
        ([PAYLOAD, {}, PAYLOAD, {"command": "true"}], ["#/1/function", "#/3/command", "#/3/function"]),
        ([{"function": "f", "args": {"a": "\0"}}], ["#/0/args/a"]),
        ([PAYLOAD, {"function": "f", "args": {"a": ["\ud800"]}}], ["#/1/args/a/0"]),
        ([PAYLOAD, {"function": "f", "args": {"a": float("nan")}}], ["#/1/args/a"]),
        ([PAYLOAD, {"function": "f", "args": {"a": {1, 2}, "b": [[object()]]}}], ["#/1/args/a", "#/1/args/b"]),
        (["text", 5], ["#/0", "#/1"]),
        ([None] * 1500 + [{}] + [PAYLOAD] * 1000 + [{"function": ""}], ["#/1500/function", "#/2501/function"]),
    ],
)
def test_every_bad_payload_is_named_by_its_place_and_nothing_is_stored(
    connection: Connection, payloads: Sequence[Any], pointers: list[str]
) -> None:
    job_id = submit(connection)
    with pytest.raises(InvalidInput) as caught:
        submit_runs(connection, job_id, payloads)
    assert sorted(each.pointer for each in caught.value.problems) == pointers
    assert stored(connection) == [1, 1]


def test_deep_payload_is_named(connection: Connection) -> None:
    deep: dict[str, Any] = {}
    for _ in range(40):
        deep = {"a": deep}
    with pytest.raises(InvalidInput) as caught:
        submit_runs(connection, submit(connection), [{"function": "f", "args": deep}])
    assert [each.code for each in caught.value.problems] == ["too-deep"]


def test_bulk_for_a_job_that_cannot_have_it_is_refused(connection: Connection) -> None:
    cancelled = submit(connection)
    cancel_job(connection, cancelled)
    queued = submit(connection, overlap="queue")
    before = stored(connection)
    refusals: list[tuple[UUID, type[ForgeError], str]] = [
        (UUID(int=0), NotFound, "there is no job"),
        (cancelled, StatusConflict, "the job is cancelled"),
        (queued, Conflict, "may not overlap, its overlap is queue: trigger them one by one"),
    ]
    for job_id, error, told in refusals:
        with pytest.raises(error, match=told):
            submit_runs(connection, job_id, [PAYLOAD])
    assert stored(connection) == before


def test_paused_job_may_have_runs(connection: Connection) -> None:
    job_id = submit(connection, paused=True)
    assert len(submit_runs(connection, job_id, [None, None])) == 2
    assert stored(connection) == [1, 2]


def attempt(act: Callable[[Connection], object], connection: Connection) -> object:
    try:
        return act(connection)
    except Conflict:
        return None


@pytest.mark.parametrize("change", ["cancel", "pause", "edit"])
def test_bulk_and_a_change_of_its_job_in_every_order(config: Config, connection: Connection, change: str) -> None:
    """What the change forbids is not there beside it: they come one after the other."""
    changes: dict[str, Callable[..., object]] = {
        "cancel": cancel_job,
        "pause": pause_job,
        "edit": partial(edit_job, body={"overlap": "skip"}),
    }
    for order in ORDERS:
        job_id = make_job(connection, executor="python", payload=DUE["payload"])
        acts: list[Act] = [
            partial(attempt, partial(submit_runs, job_id=job_id, payloads=[PAYLOAD] * 3)),
            partial(changes[change], job_id=job_id),
        ]
        made, _ = play(config, connection, order, *acts)
        count = len(runs.list_runs(connection, job_id=job_id, status="pending", before=None, max_rows=10))
        if change == "cancel":
            assert count == 0, order
        elif made is None:
            assert (change, count) == ("edit", 0), order
        else:
            assert count in ((0, 3) if change == "pause" else (3,)), order


# Many jobs


def test_jobs_of_a_bulk_are_as_if_submitted_alone(connection: Connection) -> None:
    shell = {"executor": "shell", "payload": {"command": "echo '\\t\t\\N\N{GRINNING FACE}'"}}
    fields: list[dict[str, Any]] = [
        {"name": "due", "tags": ["a b", "{,}"], "description": "a\tb\\n\nc", "timeout_seconds": 1.5},
        {"name": "shell", "priority": 1, "max_attempts": 7, "retry_mode": "fixed", "retry_base_seconds": 2.5, **shell},
        {"name": "cron", "cron_expr": "0 0 1 1 *", "timezone": "Asia/Tokyo", "start_at": "2099-01-01T00:00:00Z"},
        {"name": "once", "run_at": "2099-07-01T09:00:00+05:30", "overlap": "replace", "on_lease_loss": "continue"},
        {"name": "paused", "paused": True, "jitter_seconds": 2, "retry_cap_seconds": 60},
    ]
    requests = [request(**each) for each in fields]
    together = submit_jobs(connection, requests, source="api")
    assert together == sorted(together)

    def whole(job_id: UUID) -> list[Any]:
        row = connection.execute(
            """SELECT to_jsonb(j) - '{id,created_at,updated_at}'::text[],
                      to_jsonb(q) - '{id,job_id,scheduled_for,run_after}'::text[],
                      q.run_after <= clock_timestamp(), g.reason, g.to_at
                 FROM jobs j LEFT JOIN queue q ON q.job_id = j.id LEFT JOIN tick_gaps g ON g.job_id = j.id
                WHERE j.id = %s""",
            [job_id],
        )
        return row.fetchall()

    alone = [submit_job(connection, each, source="api").job.id for each in requests]
    assert [whole(job_id) for job_id in together] == [whole(job_id) for job_id in alone]
    assert stored(connection) == [10, 4]


def test_every_bad_job_is_named_by_its_place_and_nothing_is_stored(connection: Connection) -> None:
    requests = [
        request(),
        request(idempotency_key="k"),
        request(cron_expr="0 0 1 1 *", end_at="2020-01-01T00:00:00Z"),
    ]
    with pytest.raises(InvalidInput) as caught:
        submit_jobs(connection, requests, source="api")
    assert [each.pointer for each in caught.value.problems] == ["#/1/idempotency_key", "#/2/end_at"]
    assert stored(connection) == [0, 0]


def test_jobs_of_which_one_is_refused_leave_nothing(connection: Connection) -> None:
    connection.execute("ALTER TABLE queue ADD CONSTRAINT refused CHECK (priority <> 7)")
    with pytest.raises(StoreError, match="refused"):
        submit_jobs(connection, [request(), request(priority=7), request()], source="api")
    assert stored(connection) == [0, 0]
