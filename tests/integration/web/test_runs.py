"""One run, or many, over HTTP: cancel and retry."""

from typing import Any

import psycopg
import pytest

from tests.integration.web.test_bad_input import SECRET
from tests.integration.web.test_life import NO_TIME_VALUES, named
from tests.support.web import Answer, WebServer, end_run, start_run, table_digest

NOBODY = "00000000-0000-4000-8000-000000000000"
DEAD = {"status": "dead"}
EMPTY: list[Any] = [{}, {"status": None}, SECRET, []]
NO_IDS: list[Any] = ["", SECRET, 5, []]
NO_STATUSES: list[Any] = ["", SECRET, 5, "dead"]
NO_COUNTS: list[Any] = [-1, "5", 1.5]


def run_of(web: WebServer, run_id: str) -> dict[str, Any]:
    document: dict[str, Any] = web.get(f"/api/runs/{run_id}").json()
    return document


def waiting(web: WebServer, **fields: Any) -> str:
    run_id: str = web.submit(**fields)["latest_run_id"]
    return run_id


def dead(web: WebServer, rows: psycopg.Connection[Any], **fields: Any) -> str:
    run_id = waiting(web, **fields)
    start_run(rows, run_id)
    end_run(rows, run_id, "dead")
    return run_id


def problem(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json()["type"].removeprefix("/problems/")


def bulk(web: WebServer, action: str, **fields: Any) -> Answer:
    return web.post("/api/runs/bulk", {"action": action, **fields})


def test_cancel_of_a_waiting_run_is_done_and_of_a_running_one_asked_for(
    web: WebServer, rows: psycopg.Connection[Any]
) -> None:
    run_id, running = waiting(web), waiting(web)
    answer = web.post(f"/api/runs/{run_id}/cancel")
    assert answer.status == 200
    cancelled = answer.json()
    assert (cancelled["id"], cancelled["status"], cancelled["outcome"]) == (run_id, "cancelled", "cancelled")
    start_run(rows, running)
    for _ in range(2):
        answer = web.post(f"/api/runs/{running}/cancel")
        assert (answer.status, answer.json()["status"]) == (202, "running")
        assert answer.json()["cancel_requested_at"]
    answer = web.post(f"/api/runs/{run_id}/cancel")
    assert problem(answer) == (409, "run-finished")
    assert answer.json()["detail"] == "the run has ended, and stays what it is: cancelled"
    assert problem(web.post(f"/api/runs/{NOBODY}/cancel")) == (404, "not-found")


def test_retry_is_a_run_of_its_own(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    run_id = dead(web, rows)
    answer = web.post(f"/api/runs/{run_id}/retry")
    assert answer.status == 201
    run = answer.json()
    assert answer.headers["Location"] == f"/api/runs/{run['id']}"
    assert (run["trigger"], run["status"], run["retry_of"]) == ("retry", "pending", run_id)
    assert run_of(web, run["id"]).items() >= run.items()
    again = web.post(f"/api/runs/{run_id}/retry")
    assert problem(again) == (409, "conflict")
    assert again.json()["detail"].endswith(run["id"])
    assert problem(web.post(f"/api/runs/{run['id']}/retry")) == (409, "run-not-finished")
    assert problem(web.post(f"/api/runs/{NOBODY}/retry")) == (404, "not-found")
    web.post(f"/api/jobs/{run['job_id']}/cancel")
    assert problem(web.post(f"/api/runs/{run_id}/retry")) == (409, "job-cancelled")


def test_bulk_counts_before_it_does(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    ids = [dead(web, rows) for _ in range(3)]
    before = table_digest(rows)
    counted = bulk(web, "retry", filter=DEAD, dry_run=True)
    assert (counted.status, counted.json()) == (200, {"action": "retry", "dry_run": True, "selected": 3})
    assert problem(bulk(web, "retry", filter=DEAD, expected_count=2)) == (409, "selection-changed")
    assert table_digest(rows) == before
    done = bulk(web, "retry", ids=[*ids[:2], NOBODY])
    skipped = [{"id": NOBODY, "reason": f"there is no run {NOBODY}"}]
    expected = {"action": "retry", "dry_run": False, "selected": 3, "done": 2, "skipped": skipped}
    assert (done.status, done.json()) == (200, expected)
    assert bulk(web, "retry", filter=DEAD, expected_count=1).json()["done"] == 1
    assert bulk(web, "cancel", filter={"status": "pending"}).json()["done"] == 3


@pytest.mark.parametrize(
    ("body", "places"),
    [
        ({}, ["action", "ids", "filter"]),
        ({"action": SECRET, "filter": DEAD}, ["action"]),
        ({"action": "retry"}, ["ids", "filter"]),
        ({"action": "retry", "ids": [NOBODY], "filter": DEAD}, ["ids", "filter"]),
        ({"action": "retry", "ids": []}, ["ids"]),
        ({"action": "retry", "ids": SECRET}, ["ids"]),
        ({"action": "retry", "ids": [NOBODY, SECRET, None, 5, NOBODY[:-1]]}, ["ids/1", "ids/2", "ids/3", "ids/4"]),
        ({"action": "retry", "ids": [NOBODY] * 10_001}, ["ids"]),
        *[({"action": "cancel", "filter": empty}, ["filter"]) for empty in EMPTY],
        ({"action": "cancel", "filter": {"nope": SECRET}}, ["filter/nope"]),
        *[({"action": "cancel", "filter": {"job_id": value}}, ["filter/job_id"]) for value in NO_IDS],
        *[({"action": "cancel", "filter": {"status": value}}, ["filter/status"]) for value in NO_STATUSES],
        *[({"action": "retry", "filter": {"status": value}}, ["filter/status"]) for value in ("pending", "running")],
        *[({"action": "retry", "filter": {"since": value}}, ["filter/since"]) for value in NO_TIME_VALUES],
        (
            {"action": "retry", "filter": {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}},
            ["filter/until"],
        ),
        *[
            ({"action": "retry", "filter": DEAD, "expected_count": value}, ["expected_count"])
            for value in (-1, "5", 1.5)
        ],
        ({"action": "retry", "filter": DEAD, "dry_run": "yes", "limit": 5}, ["dry_run", "limit"]),
    ],
)
def test_bulk_that_cannot_be_meant_names_every_bad_field(
    web: WebServer, rows: psycopg.Connection[Any], body: dict[str, Any], places: list[str]
) -> None:
    dead(web, rows)
    waiting(web)
    before = table_digest(rows)
    answer = web.post("/api/runs/bulk", body)
    assert sorted(named(answer)) == sorted(f"#/{place}" for place in places)
    assert table_digest(rows) == before


def test_commands_of_a_run_take_no_fields(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    run_id = dead(web, rows)
    for name in ("cancel", "retry"):
        assert named(web.post(f"/api/runs/{run_id}/{name}", {"payload": SECRET})) == ["#/payload"]
        assert web.request("POST", f"/api/runs/{run_id}/{name}?a=1", b"").status == 422
