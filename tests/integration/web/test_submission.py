"""Submitting jobs: the seed's quick start, the answer, idempotency."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.web import HELLO, WebServer, end_run, row_counts

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}
JOB_FIELDS = {
    *("id", "name", "description", "tags", "executor", "payload", "cron_expr", "run_at", "timezone", "priority"),
    *("max_attempts", "timeout_seconds", "catch_up", "catch_up_limit", "idempotency_key", "status", "next_run_at"),
    *("last_run", "latest_run_id", "version", "source", "created_at", "updated_at"),
}
RUN_FIELDS = {
    *("id", "job_id", "job_name", "status", "attempt", "max_attempts", "trigger", "is_catch_up", "scheduled_for"),
    *("started_at", "finished_at", "delay_seconds", "duration_seconds", "worker_id", "lease_expires"),
    *("next_attempt_at", "outcome", "exit_code", "signal", "http_status", "progress", "error", "error_type"),
    *("cancel_requested_at", "retry_of", "output", "output_truncated", "attempts"),
}


def instant(text: str) -> datetime:
    assert text.endswith("Z")
    return datetime.fromisoformat(text)


@pytest.mark.parametrize("headers", [FORM, {}, {"Content-Type": "application/json; charset=utf-8"}])
def test_seed_curl_works_whatever_it_calls_its_body(web: WebServer, headers: dict[str, str]) -> None:
    answer = web.request("POST", "/api/jobs", json.dumps(HELLO, indent=2), headers)
    assert answer.status == 201, answer.text
    job = answer.json()
    assert answer.headers["Location"] == f"/api/jobs/{job['id']}"
    assert answer.headers["ETag"] == '"1"'
    assert answer.headers["Content-Type"] == "application/json"
    assert job.keys() >= JOB_FIELDS
    assert (job["name"], job["status"], job["source"], job["version"]) == ("hello", "active", "api", 1)
    assert (job["payload"], job["timezone"], job["priority"]) == (HELLO["payload"], "UTC", 5)
    assert (job["max_attempts"], job["timeout_seconds"], job["catch_up"]) == (3, 300, "skip")
    assert web.get(answer.headers["Location"]).json() == job


def test_job_without_a_schedule_has_one_run_that_is_due(web: WebServer) -> None:
    job = web.submit()
    run = web.get(f"/api/runs/{job['latest_run_id']}").json()
    assert run.keys() >= RUN_FIELDS
    assert (run["job_id"], run["job_name"], run["status"], run["trigger"]) == (job["id"], "hello", "pending", "once")
    assert (run["attempt"], run["attempts"], run["output"]) == (0, [], "")
    assert instant(run["next_attempt_at"]) <= datetime.now(UTC) + timedelta(seconds=1)
    assert job["last_run"] == {"id": run["id"], "status": "pending", "finished_at": None}


def test_cron_with_a_zone_gets_its_next_tick(web: WebServer) -> None:
    answer = web.request(
        "POST",
        "/api/jobs",
        """{
  "name": "report",
  "executor": "shell",
  "cron_expr": "*/5 * * * *",
  "timezone": "Asia/Kolkata",
  "payload": {"command": "date"}
}""",
        FORM,
    )
    job = answer.json()
    assert answer.status == 201
    assert (job["cron_expr"], job["timezone"], job["latest_run_id"]) == ("*/5 * * * *", "Asia/Kolkata", None)
    tick = instant(job["next_run_at"])
    assert timedelta(0) < tick - datetime.now(UTC) <= timedelta(minutes=5)
    assert (tick.minute % 5, tick.second) == (0, 0)


def test_cron_is_read_in_its_zone(web: WebServer) -> None:
    job = web.submit(cron_expr="30 5 * * *", timezone="Asia/Kolkata")
    assert job["next_run_at"].endswith("T00:00:00Z")


def test_far_first_tick_is_kept(web: WebServer) -> None:
    job = web.submit(cron_expr="0 0 29 2 1")  # a Monday the 29th of February, or any Monday: day or weekday
    assert instant(job["next_run_at"]) > datetime.now(UTC)
    leap = web.submit(cron_expr="0 0 29 2 *")
    assert (instant(leap["next_run_at"]).month, instant(leap["next_run_at"]).day) == (2, 29)


def test_idempotent_submission_twice_creates_one_job(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    body = {**HELLO, "name": "billing-july", "idempotency_key": "billing-2026-07"}
    first, second = web.post("/api/jobs", body), web.post("/api/jobs", body)
    assert (first.status, second.status) == (201, 200)
    assert "Idempotent-Replayed" not in first.headers
    assert second.headers["Idempotent-Replayed"] == "true"
    assert second.headers["Location"] == first.headers["Location"]
    assert second.json() == first.json()
    assert (row_counts(rows)["jobs"], row_counts(rows)["queue"]) == (1, 1)


def test_key_may_stand_in_the_header_or_the_body_or_both(web: WebServer) -> None:
    header = {"Idempotency-Key": "k-1"}
    first = web.post("/api/jobs", HELLO, header)
    assert first.json()["idempotency_key"] == "k-1"
    for body, headers in (
        (HELLO, header),
        ({**HELLO, "idempotency_key": "k-1"}, {}),
        ({**HELLO, "idempotency_key": "k-1"}, header),
        ({**HELLO, "idempotency_key": None}, header),
    ):
        again = web.post("/api/jobs", body, headers)
        assert (again.status, again.json()["id"]) == (200, first.json()["id"])


def test_defaults_written_out_are_the_same_submission(web: WebServer) -> None:
    first = web.post("/api/jobs", {**HELLO, "idempotency_key": "k"})
    body = {**HELLO, "idempotency_key": "k", "timeout_seconds": 300, "timezone": "UTC", "tags": [], "run_at": None}
    second = web.post("/api/jobs", body)
    assert (second.status, second.json()["id"]) == (200, first.json()["id"])


def test_replay_after_the_run_has_finished_gives_the_same_job(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    body = {**HELLO, "idempotency_key": "k"}
    first = web.post("/api/jobs", body).json()
    end_run(rows, first["latest_run_id"], "succeeded")
    again = web.post("/api/jobs", body)
    assert (again.status, again.json()["id"], again.json()["status"]) == (200, first["id"], "completed")
    assert again.json()["last_run"]["status"] == "succeeded"


@pytest.mark.parametrize("other", [{"name": "other"}, {"payload": {"command": "false"}}, {"paused": True}])
def test_key_with_another_body_is_refused(web: WebServer, rows: psycopg.Connection[Any], other: dict[str, Any]) -> None:
    web.submit(idempotency_key="k")
    answer = web.post("/api/jobs", {**HELLO, **other, "idempotency_key": "k"})
    assert (answer.status, answer.json()["type"]) == (422, "/problems/idempotency-key-reused")
    assert row_counts(rows)["jobs"] == 1


def test_two_different_keys_are_refused(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    answer = web.post("/api/jobs", {**HELLO, "idempotency_key": "a"}, {"Idempotency-Key": "b"})
    assert answer.status == 422
    assert [one["pointer"] for one in answer.json()["errors"]] == ["#/idempotency_key"]
    assert row_counts(rows)["jobs"] == 0


@pytest.mark.parametrize("key", ["", "x" * 201, "\xe9"])
def test_bad_key_in_the_header_is_named(web: WebServer, rows: psycopg.Connection[Any], key: str) -> None:
    answer = web.post("/api/jobs", HELLO, {"Idempotency-Key": key})
    assert answer.status == 422
    named = answer.json()["errors"][0]
    assert named.get("pointer", named.get("parameter")) in ("#/idempotency_key", "Idempotency-Key")
    assert row_counts(rows)["jobs"] == 0


def test_twenty_equal_submissions_at_once_make_one_job(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    for round_ in range(5):
        body = {**HELLO, "idempotency_key": f"race-{round_}"}
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda _, body=body: web.post("/api/jobs", body), range(20)))
        assert sorted(answer.status for answer in answers) == [200] * 19 + [201]
        assert len({answer.json()["id"] for answer in answers}) == 1
        assert (row_counts(rows)["jobs"], row_counts(rows)["queue"]) == (round_ + 1, round_ + 1)


def test_function_is_submitted_edited_and_triggered_by_name_and_arguments(web: WebServer) -> None:
    job = web.submit(executor="python", payload={"function": "shop.send"})
    assert (job["executor"], job["payload"]) == ("python", {"function": "shop.send"})
    path = f"/api/jobs/{job['id']}"
    payload = {"function": "shop.send", "args": {"amount": 1.5, "to": ["a", None]}}
    assert web.request("PATCH", path, json.dumps({"payload": payload}), JSON).json()["payload"] == payload
    own = web.post(f"{path}/trigger", {"payload": {"function": "shop.refund", "args": {"amount": 2}}})
    assert own.json()["payload"] == {"function": "shop.refund", "args": {"amount": 2}}
    bad = web.post(f"{path}/trigger", {"payload": {"command": "true"}})
    assert (bad.status, len(bad.json()["errors"])) == (422, 2)
    assert web.request("PATCH", path, '{"executor": "shell"}', JSON).status == 422


def test_run_at_in_the_past_is_due_at_once(web: WebServer) -> None:
    job = web.submit(run_at="2020-01-01T00:00:00Z")
    assert job["run_at"] == job["next_run_at"] == "2020-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("2099-07-01T09:00:00Z", "2099-07-01T09:00:00Z"),
        ("2099-07-01T09:00:00+05:30", "2099-07-01T03:30:00Z"),
        ("2099-07-01t09:00:00.25z", "2099-07-01T09:00:00.250000Z"),
        ("2099-07-01 09:00:00.123456789-00:00", "2099-07-01T09:00:00.123456Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
    ],
)
def test_run_at_with_any_offset_is_kept_in_utc(web: WebServer, given: str, stored: str) -> None:
    assert web.submit(run_at=given)["run_at"] == stored


def test_paused_job_has_no_tick_and_no_run(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    for fields in ({}, {"cron_expr": "* * * * *"}, {"run_at": "2020-01-01T00:00:00Z"}):
        job = web.submit(paused=True, **fields)
        assert (job["status"], job["next_run_at"], job["latest_run_id"]) == ("paused", None, None)
    assert row_counts(rows)["queue"] == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "n" * 200},
        {"name": "\N{GRINNING FACE}" * 200},
        {"description": "d" * 2000},
        {"tags": ["t" * 50] * 20},
        {"tags": []},
        {"idempotency_key": "\N{GRINNING FACE}" * 200},
        {"payload": {"command": "c" * 131_071}},
        {"priority": 1},
        {"priority": 9},
        {"max_attempts": 1},
        {"max_attempts": 1000},
        {"catch_up_limit": 1000, "catch_up": "all"},
        {"timeout_seconds": 1},
        {"timeout_seconds": 0.001},
        {"timeout_seconds": 31_622_400},
        {"cron_expr": "0 0 1 1 *" + " " * 247},
    ],
)
def test_values_at_the_limit_come_back_unchanged(web: WebServer, fields: dict[str, Any]) -> None:
    job = web.submit(**fields)
    assert {name: job[name] for name in fields} == fields


def test_control_characters_in_a_name_come_back_unchanged(web: WebServer) -> None:
    name = "a\nb\r\t\x1b[31mc\x7f\u202e\u2028"
    job = web.submit(name=name)
    assert UUID(job["id"]).version == 7
    assert job["name"] == name
    assert all(line.startswith("{") and line.endswith("}") for line in web.log.read_text().splitlines())
