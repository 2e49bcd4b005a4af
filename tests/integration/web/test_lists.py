"""Pages of jobs and runs, and looking at one."""

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.support.web import WebServer

STATUSES = ("pending", "running", "succeeded", "dead", "cancelled")


def pages(web: WebServer, path: str) -> list[list[dict[str, Any]]]:
    """Every page of a list, from the newest on."""
    found, cursor = [], ""
    while True:
        answer = web.get(path + cursor)
        assert answer.status == 200, answer.text
        found.append(answer.json()["items"])
        if answer.json()["next_cursor"] is None:
            return found
        cursor = f"&cursor={answer.json()['next_cursor']}"


def insert_jobs(rows: psycopg.Connection[Any], count: int) -> None:
    """Jobs of one and the same moment."""
    rows.execute(
        """INSERT INTO jobs (name, executor, payload, created_at)
           SELECT 'job ' || n, 'shell', '{"command": "true"}', '2026-01-01Z' FROM generate_series(1, %s) AS n""",
        [count],
    )


def insert_runs(rows: psycopg.Connection[Any], job_id: str, count: int) -> None:
    """Runs of every status, all of one moment."""
    rows.execute(
        """INSERT INTO queue (job_id, job_version, priority, scheduled_for, run_after, trigger, max_attempts)
           SELECT %s, 1, 5, '2026-01-01Z', '2026-01-01Z', 'manual', 3 FROM generate_series(1, %s)""",
        [job_id, count],
    )
    rows.execute(
        """INSERT INTO queue (job_id, job_version, priority, scheduled_for, run_after, trigger, max_attempts, attempt,
                              boot_id, child, started_at)
           SELECT %s, 1, 5, '2026-01-01Z', '2026-01-01Z', 'manual', 3, 1, gen_random_uuid(), 1, '2026-01-01Z'
             FROM generate_series(1, %s)""",
        [job_id, count],
    )
    rows.execute(
        """INSERT INTO finished_runs (id, job_id, job_version, priority, scheduled_for, trigger, is_catch_up,
                                      max_attempts, attempt, failures, interruptions, status, finished_at)
           SELECT uuid_v7(), %s, 1, 5, '2026-01-01Z', 'manual', false, 3, 3, 3, 0, status, '2026-01-01Z'
             FROM generate_series(1, %s), unnest('{succeeded,dead,cancelled}'::text[]) AS status""",
        [job_id, count],
    )


def ids(items: list[dict[str, Any]]) -> list[str]:
    return [item["id"] for item in items]


def test_jobs_come_newest_first(web: WebServer) -> None:
    made = [web.submit(name=f"job {number}")["id"] for number in range(5)]
    answer = web.get("/api/jobs").json()
    assert ids(answer["items"]) == made[::-1]
    assert answer["next_cursor"] is None


def test_runs_come_newest_first_and_without_output(web: WebServer) -> None:
    made = [web.submit()["latest_run_id"] for _ in range(5)]
    items = web.get("/api/runs").json()["items"]
    assert ids(items) == made[::-1]
    assert not {"output", "attempts"} & items[0].keys()


@pytest.mark.parametrize("limit", [1, 7, 20, 69, 70, 71, 200])
def test_pages_of_jobs_of_one_moment_lose_and_double_nothing(
    web: WebServer, rows: psycopg.Connection[Any], limit: int
) -> None:
    insert_jobs(rows, 70)
    found = pages(web, f"/api/jobs?limit={limit}")
    listed = [one for page in found for one in ids(page)]
    stored = rows.execute("SELECT id::text FROM jobs ORDER BY id DESC").fetchall()
    assert listed == [row[0] for row in stored]
    assert all(len(page) == limit for page in found[:-1])
    assert 1 <= len(found[-1]) <= limit


@pytest.mark.parametrize("limit", [3, 50, 150])
def test_pages_of_runs_of_one_moment_lose_and_double_nothing(
    web: WebServer, rows: psycopg.Connection[Any], limit: int
) -> None:
    for number in range(2):
        insert_runs(rows, web.submit(name=f"job {number}", paused=True)["id"], 15)
    listed = [one for page in pages(web, f"/api/runs?limit={limit}") for one in ids(page)]
    assert listed == [row[0] for row in rows.execute("SELECT id::text FROM runs ORDER BY id DESC").fetchall()]
    assert len(listed) == 150


@pytest.mark.parametrize("status", STATUSES)
def test_runs_are_filtered_by_job_and_status_on_every_page(
    web: WebServer, rows: psycopg.Connection[Any], status: str
) -> None:
    wanted, other = web.submit(name="wanted", paused=True)["id"], web.submit(name="other", paused=True)["id"]
    for job in (wanted, other):
        insert_runs(rows, job, 12)
    items = [run for page in pages(web, f"/api/runs?job_id={wanted}&status={status}&limit=5") for run in page]
    assert len({run["id"] for run in items}) == len(items) == 12
    assert {(run["job_id"], run["status"]) for run in items} == {(wanted, status)}
    assert len(web.get(f"/api/runs?status={status}&limit=200").json()["items"]) == 24


def test_rows_that_come_between_two_pages_move_nothing(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    insert_jobs(rows, 10)
    before = [row[0] for row in rows.execute("SELECT id::text FROM jobs ORDER BY id DESC").fetchall()]
    first = web.get("/api/jobs?limit=5").json()
    insert_jobs(rows, 10)
    second = web.get(f"/api/jobs?limit=5&cursor={first['next_cursor']}").json()
    assert ids(first["items"]) + ids(second["items"]) == before
    assert second["next_cursor"] is None


def test_runs_of_an_unknown_job_are_an_empty_page(web: WebServer) -> None:
    assert web.get(f"/api/runs?job_id={uuid4()}").json() == {"items": [], "next_cursor": None}


@pytest.mark.parametrize("path", ["/api/jobs", "/api/runs"])
@pytest.mark.parametrize(
    "limit",
    [
        "0",
        "201",
        "abc",
        "1_000",
        "%D9%A1%D9%A2",
        "-1",
        "%2B5",
        "5.0",
        "1e1",
        "%205",
        "5%20",
        "",
        "9" * 5000,
        "%00",
        "0x5",
    ],
)
def test_bad_limit_is_named(web: WebServer, path: str, limit: str) -> None:
    answer = web.get(f"{path}?limit={limit}")
    assert answer.status == 422
    assert [one["parameter"] for one in answer.json()["errors"]] == ["limit"]


@pytest.mark.parametrize("parameter", ["job_id", "cursor"])
@pytest.mark.parametrize(
    "value",
    [
        "x",
        "",
        "%00",
        "1",
        "{}",
        "01a22cebc94e7cc0b97409d9d167f9c9",
        "'%3B DROP TABLE jobs--",
        "{01a22ceb-c94e-7cc0-b974-09d9d167f9c9}",
    ],
)
def test_bad_id_in_a_query_is_named(web: WebServer, parameter: str, value: str) -> None:
    answer = web.get(f"/api/runs?{parameter}={value.replace(' ', '%20')}")
    assert answer.status == 422
    assert [one["parameter"] for one in answer.json()["errors"]] == [parameter]
    assert "DROP" not in answer.text


@pytest.mark.parametrize("value", ["Pending", "completed", "", "%00", "pending%20", "pending,dead"])
def test_bad_status_is_named(web: WebServer, value: str) -> None:
    answer = web.get(f"/api/runs?status={value}")
    assert answer.status == 422
    assert [one["parameter"] for one in answer.json()["errors"]] == ["status"]


def test_every_bad_parameter_is_named_at_once(web: WebServer) -> None:
    answer = web.get("/api/runs?limit=0&cursor=x&job_id=y&status=z&offset=3&%23/x=1&caf%C3%A9=1&limit=5")
    assert answer.status == 422
    named = [one["parameter"] for one in answer.json()["errors"]]
    assert named == ["limit", "job_id", "status", "cursor", "\\x23/x", "caf\\xe9", "offset"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/jobs?status=active",
        "/api/jobs/{job}?verbose=1",
        "/api/runs/{run}?output=1",
        "/api/stats?since=1",
        "/api/nodes?x",
    ],
)
def test_unknown_parameter_is_refused(web: WebServer, path: str) -> None:
    job = web.submit()
    answer = web.get(path.format(job=job["id"], run=job["latest_run_id"]))
    assert answer.status == 422
    assert [one["parameter"] for one in answer.json()["errors"]] == [path.partition("?")[2].partition("=")[0]]


@pytest.mark.parametrize("kind", ["jobs", "runs"])
def test_unknown_id_is_not_found(web: WebServer, kind: str) -> None:
    answer = web.get(f"/api/{kind}/{uuid4()}")
    assert (answer.status, answer.json()["type"]) == (404, "/problems/not-found")


@pytest.mark.parametrize("kind", ["jobs", "runs"])
@pytest.mark.parametrize("name", ["x", "1", "%00", "..", "%2e%2e", "a/b", "01a22cebc94e7cc0b97409d9d167f9c9", "%27"])
def test_malformed_id_in_a_path_is_not_found(web: WebServer, kind: str, name: str) -> None:
    answer = web.get(f"/api/{kind}/{name}")
    assert (answer.status, answer.headers["Content-Type"]) == (404, "application/problem+json")
