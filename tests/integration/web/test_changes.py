"""Pause, resume, cancel and trigger: what they do to the rows, and what they refuse."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.support.web import WebServer, row_counts, start_run, table_digest

COMMANDS = ("pause", "resume", "cancel", "trigger")


def command(web: WebServer, job: dict[str, Any], name: str, *, status: int = 200) -> dict[str, Any]:
    answer = web.post(f"/api/jobs/{job['id']}/{name}")
    assert answer.status == status, answer.text
    document: dict[str, Any] = answer.json()
    return document


def run_statuses(rows: psycopg.Connection[Any], job: dict[str, Any]) -> list[str]:
    found = rows.execute("SELECT status FROM runs WHERE job_id = %s ORDER BY status", [job["id"]])
    return [row[0] for row in found.fetchall()]


def test_pause_cancels_pending_runs_and_manual_ones_too(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit(cron_expr="* * * * *")
    command(web, job, "trigger", status=201)
    command(web, job, "trigger", status=201)
    paused = command(web, job, "pause")
    assert (paused["status"], paused["next_run_at"], paused["version"]) == ("paused", None, 2)
    assert run_statuses(rows, job) == ["cancelled", "cancelled"]


def test_pause_lets_running_runs_go_on(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit()
    start_run(rows, job["latest_run_id"])
    command(web, job, "pause")
    assert run_statuses(rows, job) == ["running"]
    assert rows.execute("SELECT count(*) FROM queue WHERE cancel_requested_at IS NOT NULL").fetchone() == (0,)


def test_pause_touches_no_other_job(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job, other = web.submit(), web.submit()
    command(web, job, "pause")
    assert (run_statuses(rows, job), run_statuses(rows, other)) == (["cancelled"], ["pending"])
    assert web.get(f"/api/jobs/{other['id']}").json() == other


def test_resume_computes_a_tick_in_the_future_and_owes_nothing(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit(cron_expr="0 * * * *", catch_up="all")
    command(web, job, "pause")
    rows.execute("UPDATE jobs SET created_at = now() - interval '3 days', updated_at = now() - interval '2 days'")
    resumed = command(web, job, "resume")
    assert (resumed["status"], resumed["version"]) == ("active", 3)
    assert datetime.fromisoformat(resumed["next_run_at"]) > datetime.now(UTC)
    assert row_counts(rows)["queue"] == 0


def test_resume_of_a_run_at_keeps_it_only_when_it_lies_ahead(web: WebServer) -> None:
    ahead, passed = web.submit(run_at="2099-01-01T00:00:00Z"), web.submit(run_at="2020-01-01T00:00:00Z")
    for job in (ahead, passed):
        command(web, job, "pause")
    assert command(web, ahead, "resume")["next_run_at"] == "2099-01-01T00:00:00Z"
    resumed = command(web, passed, "resume")
    assert (resumed["next_run_at"], resumed["status"]) == (None, "completed")


def test_cancel_ends_pending_runs_and_asks_running_ones_to_stop(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit()
    start_run(rows, job["latest_run_id"])
    command(web, job, "trigger", status=201)
    rows.execute("LISTEN forgeflow_due")
    cancelled = command(web, job, "cancel")
    heard = [note.payload for note in rows.notifies(timeout=5.0, stop_after=1)]
    rows.execute("UNLISTEN *")
    assert (cancelled["status"], cancelled["next_run_at"]) == ("cancelled", None)
    assert run_statuses(rows, job) == ["cancelled", "running"]
    assert rows.execute("SELECT count(*) FROM queue WHERE cancel_requested_at IS NOT NULL").fetchone() == (1,)
    assert heard == ["cancel"]


def test_cancel_is_for_good(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit(cron_expr="* * * * *")
    command(web, job, "cancel")
    before = table_digest(rows)
    for name in ("resume", "pause", "trigger"):
        assert command(web, job, name, status=409)["type"] == "/problems/job-cancelled"
    assert command(web, job, "cancel")["status"] == "cancelled"
    assert table_digest(rows) == before


def test_cancelled_job_keeps_its_idempotency_key(web: WebServer) -> None:
    job = web.submit(idempotency_key="k")
    command(web, job, "cancel")
    again = web.post(
        "/api/jobs", {"name": "hello", "executor": "shell", "payload": job["payload"], "idempotency_key": "k"}
    )
    assert (again.status, again.json()["id"], again.json()["status"]) == (200, job["id"], "cancelled")


@pytest.mark.parametrize(("name", "undo"), [("pause", None), ("resume", None), ("cancel", None), ("resume", "pause")])
def test_repeat_of_a_command_changes_nothing(
    web: WebServer, rows: psycopg.Connection[Any], name: str, undo: str | None
) -> None:
    job = web.submit(cron_expr="0 0 1 1 *")
    if undo:
        command(web, job, undo)
    first, before = command(web, job, name), table_digest(rows)
    assert command(web, job, name) == first
    assert table_digest(rows) == before


def test_trigger_makes_a_manual_run_that_is_due(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit(cron_expr="0 0 1 1 *", priority=2, max_attempts=7)
    rows.execute("LISTEN forgeflow_due")
    answer = web.post(f"/api/jobs/{job['id']}/trigger")
    heard = [note.payload for note in rows.notifies(timeout=5.0, stop_after=1)]
    rows.execute("UNLISTEN *")
    run = answer.json()
    assert (answer.status, answer.headers["Location"]) == (201, f"/api/runs/{run['id']}")
    assert (run["trigger"], run["status"], run["max_attempts"], run["job_id"]) == ("manual", "pending", 7, job["id"])
    assert web.get(answer.headers["Location"]).json().items() >= run.items()
    assert heard == [""]
    assert web.get(f"/api/jobs/{job['id']}").json()["next_run_at"] == job["next_run_at"]


def test_trigger_works_on_a_paused_and_on_a_completed_job(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    paused = web.submit(paused=True)
    command(web, paused, "trigger", status=201)
    assert (run_statuses(rows, paused), web.get(f"/api/jobs/{paused['id']}").json()["status"]) == (
        ["pending"],
        "paused",
    )
    completed = command(web, paused, "resume")
    rows.execute("DELETE FROM queue")
    assert web.get(f"/api/jobs/{completed['id']}").json()["status"] == "completed"
    command(web, completed, "trigger", status=201)


@pytest.mark.parametrize("name", COMMANDS)
def test_unknown_or_malformed_job_is_not_found(web: WebServer, name: str) -> None:
    for job_id in (str(uuid4()), "x", "%00"):
        answer = web.post(f"/api/jobs/{job_id}/{name}")
        assert (answer.status, answer.json()["type"]) == (404, "/problems/not-found")


@pytest.mark.parametrize("name", COMMANDS)
def test_body_that_would_be_ignored_is_refused(web: WebServer, rows: psycopg.Connection[Any], name: str) -> None:
    job = web.submit()
    before = table_digest(rows)
    answer = web.post(f"/api/jobs/{job['id']}/{name}", {"version": 1, "a/b": 1})
    assert answer.status == 422
    assert [one["pointer"] for one in answer.json()["errors"]] == ["#/version", "#/a~1b"]
    assert web.post(f"/api/jobs/{job['id']}/{name}?force=1").status == 422
    assert table_digest(rows) == before


@pytest.mark.parametrize("name", ["pause", "resume", "cancel"])
def test_empty_object_is_no_body(web: WebServer, name: str) -> None:
    job = web.submit()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert web.request("POST", f"/api/jobs/{job['id']}/{name}", "{}", form).status == 200
