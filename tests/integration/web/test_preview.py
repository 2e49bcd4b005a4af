"""POST /api/schedule/preview and GET /api/jobs/{id}/next."""

import json
import socket
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.support.web import Answer, WebServer, table_digest, web_server

PREVIEW = "/api/schedule/preview"
SECRET = "canary-7f3a"
NIGHTLY = {"cron_expr": "30 2 * * *", "timezone": "Europe/Berlin", "after": "2026-10-24T12:00:00Z"}

WRONG: dict[str, list[Any]] = {
    "cron_expr": [None, 5, True, [SECRET], "", "* * * *", "0 0 31 2 *"],
    "timezone": [None, 5, {SECRET: 1}, "", "localtime", "Mars/Olympus"],
    "after": ["", SECRET, 5, "2026-10-24", "2026-10-24T12:00:00", []],
    "count": [0, 101, -1, "5", 5.0, None, True, [5], 2**62],
    **{name: [SECRET] for name in ("name", "run_at", "executor", "limit", "self")},
}


def ask(web: WebServer, **fields: Any) -> dict[str, Any]:
    answer = web.post(PREVIEW, fields)
    assert answer.status == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def refuse(web: WebServer, body: bytes | dict[str, Any]) -> Answer:
    sent = body if isinstance(body, bytes) else json.dumps(body)
    answer = web.request("POST", PREVIEW, sent, {"Content-Type": "application/json"})
    assert answer.status == 422, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["type"] == "/problems/validation-failed"
    assert SECRET not in answer.text
    return answer


def named(answer: Answer) -> list[str]:
    return [one["pointer"] for one in answer.json()["errors"]]


def next_of(web: WebServer, job: dict[str, Any], query: str = "") -> dict[str, Any]:
    answer = web.get(f"/api/jobs/{job['id']}/next{query}")
    assert answer.status == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


# A schedule that nobody has yet


def test_preview_shows_fires_words_and_warnings(web: WebServer) -> None:
    autumn = "clocks go back on 2026-10-25 from 03:00 to 02:00"
    assert ask(web, **NIGHTLY, count=2) == {
        "valid": True,
        "cron_expr": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "after": "2026-10-24T12:00:00Z",
        "description": "At 02:30",
        "times": [
            {
                "at": "2026-10-25T00:30:00Z",
                "local": "2026-10-25T02:30:00+02:00",
                "offset": "+02:00",
                "notes": [f"{autumn}: runs once, in the first pass"],
            },
            {"at": "2026-10-26T01:30:00Z", "local": "2026-10-26T02:30:00+01:00", "offset": "+01:00", "notes": []},
        ],
        "warnings": [
            f"{autumn}: 02:30 runs once, in the first pass",
            "clocks go forward on 2027-03-28 from 02:00 to 03:00: 02:30 runs at 03:00",
        ],
    }


def test_preview_follows_the_clock_when_no_time_is_given(web: WebServer) -> None:
    for body in ({"cron_expr": "* * * * *"}, {"cron_expr": "* * * * *", "after": None}):
        seen = ask(web, **body)
        first = datetime.fromisoformat(seen["times"][0]["at"])
        assert timedelta() < first - datetime.fromisoformat(seen["after"]) <= timedelta(minutes=1)
        assert abs(first - datetime.now(UTC)) < timedelta(minutes=2)
        assert (seen["timezone"], len(seen["times"]), seen["warnings"]) == ("UTC", 10, [])


@pytest.mark.parametrize("count", [1, 100])
def test_preview_has_as_many_times_as_asked_for(web: WebServer, count: int) -> None:
    assert len(ask(web, cron_expr="0 0 29 2 */7", count=count)["times"]) == count


def test_schedule_that_is_over_has_no_times(web: WebServer) -> None:
    assert ask(web, cron_expr="@yearly", after="9999-06-01T00:00:00Z")["times"] == []


def test_preview_stores_nothing(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    before = table_digest(rows)
    ask(web, **NIGHTLY)
    assert table_digest(rows) == before


def test_preview_needs_no_database() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nowhere = f"postgresql://me@127.0.0.1:{probe.getsockname()[1]}/nowhere"
        with web_server(nowhere, DATABASE_CONNECT_TIMEOUT="1s") as server:
            assert ask(server, **NIGHTLY, count=1)["description"] == "At 02:30"


@pytest.mark.parametrize(
    ("fields", "places"),
    [
        *[({name: value}, [name]) for name, values in WRONG.items() for value in values],
        (
            {"cron_expr": "61 * * * *", "timezone": "Mars", "after": "now", "count": 0, "nope": 1},
            ["after", "count", "nope", "timezone", "cron_expr"],
        ),
        ({"cron_expr": "* * * * *\0", "timezone": "\ud800"}, ["cron_expr", "timezone"]),
    ],
)
def test_every_bad_field_of_a_preview_is_named(web: WebServer, fields: dict[str, Any], places: list[str]) -> None:
    answer = refuse(web, {**NIGHTLY, **fields})
    assert named(answer) == [f"#/{place}" for place in places]
    assert answer.json()["detail"] == f"{len(places)} field{'s'[: len(places) > 1]} of the preview cannot be accepted"


def test_expression_is_required(web: WebServer) -> None:
    assert refuse(web, {}).json()["errors"] == [{"pointer": "#/cron_expr", "detail": "is required", "code": "missing"}]


def test_unknown_parameter_of_a_preview_is_refused(web: WebServer) -> None:
    answer = web.post(f"{PREVIEW}?count=5", NIGHTLY)
    assert (answer.status, answer.json()["errors"][0]["parameter"]) == (422, "count")


@pytest.mark.parametrize(
    ("body", "status"), [(b"", 400), (b"{", 400), (b"[]", 422), (b'{"count": 1, "count": 2}', 422), (b"[" * 500, 400)]
)
def test_body_that_is_no_object_is_refused_as_elsewhere(web: WebServer, body: bytes, status: int) -> None:
    assert web.request("POST", PREVIEW, body).status == status


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_preview_is_a_post(web: WebServer, method: str) -> None:
    answer = web.request(method, PREVIEW)
    assert (answer.status, answer.headers["Allow"]) == (405, "OPTIONS, POST")


@pytest.mark.parametrize(
    ("fields", "near"),
    [
        ({"cron_expr": "0 9 * * MONDAY"}, "did you mean MON?"),
        ({"cron_expr": "@dayly"}, "did you mean @daily?"),
        ({"timezone": "europe/berlin"}, "such as Europe/Berlin"),
    ],
)
def test_a_near_spelling_is_suggested(web: WebServer, fields: dict[str, Any], near: str) -> None:
    (error,) = refuse(web, {**NIGHTLY, **fields}).json()["errors"]
    assert near in error["detail"]
    assert web.post("/api/jobs", {"name": "x", "executor": "shell", "payload": {"command": "x"}, **fields}).json()[
        "errors"
    ] == [error]


# A job


def test_next_of_a_cron_job_begins_with_its_next_run(web: WebServer) -> None:
    job = web.submit(name="early", cron_expr="0 3 * * MON-FRI", timezone="Asia/Kolkata")
    upcoming = next_of(web, job)
    assert upcoming["times"][0]["at"] == job["next_run_at"]
    assert len(upcoming["times"]) == 10
    assert {time["local"][10:] for time in upcoming.pop("times")} == {"T03:00:00+05:30"}
    assert upcoming == {
        "job_id": job["id"],
        "job_name": "early",
        "status": "active",
        "cron_expr": "0 3 * * MON-FRI",
        "run_at": None,
        "timezone": "Asia/Kolkata",
        "description": "At 03:00, Monday through Friday",
        "skipped": [],
        "reason": None,
        "warnings": [],
    }
    assert len(next_of(web, job, "?count=1")["times"]) == 1
    assert len(next_of(web, job, "?count=100")["times"]) == 100


def test_next_of_a_job_that_will_not_run_says_why(web: WebServer) -> None:
    job = web.submit(cron_expr="0 0 31 * *")
    for command, word in [("pause", "paused"), ("cancel", "cancelled")]:
        web.post(f"/api/jobs/{job['id']}/{command}")
        upcoming = next_of(web, job)
        assert (upcoming["status"], upcoming["times"]) == (word, [])
        assert upcoming["reason"].startswith(f"the job is {word}")
        assert upcoming["description"] == "At 00:00, on day 31 of the month"
        assert len(upcoming["warnings"]) == 1


def test_next_of_a_one_off_job_is_its_time(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit(run_at="2099-07-01T09:00:00Z", timezone="Europe/Berlin")
    upcoming = next_of(web, job, "?count=5")
    assert upcoming["description"] == "Once, on 2099-07-01 at 11:00"
    assert [time["local"] for time in upcoming["times"]] == ["2099-07-01T11:00:00+02:00"]
    assert (upcoming["reason"], upcoming["run_at"], upcoming["cron_expr"]) == (None, "2099-07-01T09:00:00Z", None)
    rows.execute("UPDATE jobs SET next_run_at = NULL")  # as the leader does when it fires
    assert (next_of(web, job)["times"], next_of(web, job)["reason"]) == ([], "its time has come")
    web.post(f"/api/jobs/{job['id']}/cancel")
    assert next_of(web, job)["reason"] == "the job is cancelled, which is for good"


def test_next_of_a_job_without_a_schedule_says_so(web: WebServer) -> None:
    upcoming = next_of(web, web.submit())
    assert (upcoming["times"], upcoming["description"]) == ([], "Once, when submitted")
    assert upcoming["reason"] == "it has no schedule: it was due when submitted, and runs by trigger"
    assert "paused" in next_of(web, web.submit(paused=True))["reason"]


@pytest.mark.parametrize("change", ["cron_expr = '61 * * * *'", "timezone = 'Mars/Olympus'"])
def test_next_of_a_job_whose_schedule_is_no_longer_read_says_so(
    web: WebServer, rows: psycopg.Connection[Any], change: str
) -> None:
    job = web.submit(cron_expr="0 9 * * *")
    rows.execute(f"UPDATE jobs SET {change}")
    upcoming = next_of(web, job)
    assert upcoming["times"] == []
    assert upcoming["reason"].startswith("its schedule cannot be read: ")


@pytest.mark.parametrize("count", ["0", "101", "x", "", "-1", "1.0", "%D9%A1", "1_0"])
def test_bad_count_is_named(web: WebServer, count: str) -> None:
    answer = web.get(f"/api/jobs/{web.submit()['id']}/next?count={count}")
    assert answer.status == 422
    assert [one["parameter"] for one in answer.json()["errors"]] == ["count"]
    assert web.get(f"/api/jobs/{uuid4()}/next?limit=5").json()["errors"][0]["parameter"] == "limit"


def test_next_of_an_unknown_job_is_not_found(web: WebServer) -> None:
    assert web.get(f"/api/jobs/{uuid4()}/next").json()["type"] == "/problems/not-found"
    assert web.get("/api/jobs/x/next").status == 404
