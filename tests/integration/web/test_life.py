"""The life of a job over HTTP."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest

from forgeflow.scheduler.ticks import TickPasses
from forgeflow.store.connection import connect
from tests.integration.web.test_bad_input import FIELDS, INTERNAL, SECRET, WRONG
from tests.support.databases import config_for
from tests.support.web import Answer, WebServer, start_run, table_digest

YEARLY = {"cron_expr": "0 0 1 1 *"}
PASSED, AHEAD = "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z"
EDITABLE = {name: kind for name, kind in FIELDS.items() if name not in ("idempotency_key", "paused")}
NO_TIMES = ["", SECRET, "2026-07-01", "2026-07-01T09:00:00", "0000-01-01T00:00:00Z", "2026-02-30T00:00:00Z"]
NO_TIME_VALUES = [*NO_TIMES, 5, 1.5, True, [SECRET], {"a": SECRET}]
CODES = ("outcome", "exit_code", "signal", "http_status")
RETRY_SECONDS = ("retry_base_seconds", "retry_cap_seconds")
NO_SECONDS: list[Any] = [0, -1, 31_622_401, float("nan"), float("inf"), 1e300, "5", True, [5], {}]
NO_WORDS: list[Any] = [None, "", "Skip", SECRET, 5, [], {}]
COMMANDS = ("pause", "skip-next", "trigger")


def at(instant: datetime) -> str:
    return instant.isoformat().replace("+00:00", "Z")


def soon(**span: float) -> str:
    return at(datetime.now(UTC) + timedelta(**span))


def patch(web: WebServer, job: dict[str, Any], if_match: str | None = None, /, **fields: Any) -> Answer:
    headers = {"Content-Type": "application/json", **({} if if_match is None else {"If-Match": if_match})}
    return web.request("PATCH", f"/api/jobs/{job['id']}", json.dumps(fields), headers)


def command(web: WebServer, job: dict[str, Any], name: str, body: Any = None, *, status: int = 200) -> dict[str, Any]:
    answer = web.post(f"/api/jobs/{job['id']}/{name}", body)
    assert answer.status == status, answer.text
    document: dict[str, Any] = answer.json()
    return document


def of(web: WebServer, job: dict[str, Any], what: str = "") -> dict[str, Any]:
    answer = web.get(f"/api/jobs/{job['id']}{what}")
    assert answer.status == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def explained(web: WebServer, job: dict[str, Any], instant: str) -> dict[str, Any]:
    return of(web, job, f"/explain?at={quote(instant, safe='')}")


def named(answer: Answer, *, status: int = 422) -> list[str]:
    """The places of the faults of an answer that repeats nothing."""
    assert answer.status == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert SECRET not in answer.text
    return [one.get("pointer") or one["parameter"] for one in answer.json()["errors"]]


def run_pass(database_url: str) -> None:
    """What a leader does."""
    config = config_for(database_url)
    with connect(config, "test") as opened:
        TickPasses(opened, config, 1).run_pass()


# Pause


def test_pause_takes_an_end_and_a_reason(web: WebServer) -> None:
    job = web.submit(**YEARLY)
    paused = command(web, job, "pause", {"until": "2998-06-01T02:00:00+02:00", "reason": "a new database"})
    assert paused["status"] == "paused"
    assert (paused["paused_until"], paused["next_run_at"]) == ("2998-06-01T00:00:00Z", None)
    assert paused["pause_reason"] == "a new database"
    assert of(web, job) == paused
    resumed = command(web, job, "resume")
    assert (resumed["paused_until"], resumed["pause_reason"]) == (None, None)
    assert resumed["next_run_at"] == job["next_run_at"]


def test_second_pause_changes_end_and_reason_and_a_repeat_nothing(
    web: WebServer, rows: psycopg.Connection[Any]
) -> None:
    job = web.submit(**YEARLY)
    command(web, job, "pause", {"until": AHEAD, "reason": "first"})
    second = command(web, job, "pause", {"until": None, "reason": "second"})
    assert (second["paused_until"], second["next_run_at"], second["pause_reason"]) == (None, None, "second")
    before = table_digest(rows)
    assert command(web, job, "pause", {"reason": "second"}) == second
    assert table_digest(rows) == before


@pytest.mark.parametrize("until", [PASSED, "0001-01-01T00:00:00Z"])
def test_pause_refuses_an_end_that_has_passed(web: WebServer, rows: psycopg.Connection[Any], until: str) -> None:
    job = web.submit()
    before = table_digest(rows)
    answer = web.post(f"/api/jobs/{job['id']}/pause", {"until": until})
    assert named(answer) == ["#/until"]
    assert answer.json()["errors"][0]["code"] == "time-passed"
    assert table_digest(rows) == before


@pytest.mark.parametrize(
    ("body", "places"),
    [
        *[({"until": value}, ["#/until"]) for value in NO_TIME_VALUES],
        *[
            ({"reason": value}, ["#/reason"])
            for value in ("", " ", "r" * 501, 5, True, [SECRET], {"a": 1}, "\0", "\ud800")
        ],
        ({"until": SECRET, "reason": 5, "nope": 1}, ["#/until", "#/reason", "#/nope"]),
    ],
)
def test_every_bad_field_of_a_pause_is_named(
    web: WebServer, rows: psycopg.Connection[Any], body: dict[str, Any], places: list[str]
) -> None:
    job = web.submit(**YEARLY)
    before = table_digest(rows)
    assert sorted(named(web.post(f"/api/jobs/{job['id']}/pause", body))) == sorted(places)
    assert table_digest(rows) == before


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(("body", "status"), [(b"[]", 422), (b"null", 422), (b"{", 400), (b'{"a": 1, "a": 2}', 422)])
def test_body_that_is_no_object_is_refused(
    web: WebServer, rows: psycopg.Connection[Any], name: str, body: bytes, status: int
) -> None:
    job = web.submit(**YEARLY)
    before = table_digest(rows)
    assert web.request("POST", f"/api/jobs/{job['id']}/{name}", body).status == status
    assert table_digest(rows) == before


# Edit


def test_patch_changes_what_it_names_and_nothing_else(web: WebServer) -> None:
    job = web.submit(**YEARLY, tags=["a"], description="d", idempotency_key="k")
    changed = {
        "name": "other",
        "description": "",
        "tags": ["b", "c"],
        "payload": {"command": "true"},
        "priority": 1,
        "max_attempts": 7,
        "timeout_seconds": 1.5,
        "catch_up": "all",
        "catch_up_limit": 3,
        "overlap": "queue",
        "jitter_seconds": 2.5,
        "on_lease_loss": "continue",
        "retry_mode": "exponential",
        "retry_base_seconds": 2.5,
        "retry_cap_seconds": 60.0,
    }
    for version, (name, value) in enumerate(changed.items(), start=2):
        answer = patch(web, job, **{name: value})
        assert answer.status == 200, answer.text
        edited = answer.json()
        assert edited == {**job, name: value, "version": version, "updated_at": edited["updated_at"]}
        assert answer.headers["ETag"] == f'"{version}"'
        assert of(web, job) == edited
        job = edited


def test_patch_of_its_times_moves_the_clock_and_makes_no_run(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit(**YEARLY)
    edited = patch(web, job, cron_expr=None, run_at=AHEAD).json()
    assert (edited["cron_expr"], edited["run_at"], edited["next_run_at"]) == (None, AHEAD, AHEAD)
    edited = patch(web, job, cron_expr="0 12 * * *", run_at=None, timezone="Asia/Kolkata").json()
    assert edited["next_run_at"].endswith("T06:30:00Z")
    edited = patch(web, job, start_at="2998-06-01T00:00:00Z", end_at="2998-06-03T00:00:00Z").json()
    assert edited["next_run_at"] == "2998-06-01T06:30:00Z"
    before = table_digest(rows)
    refused = patch(web, job, cron_expr=None, start_at=None, end_at=None)
    assert (refused.status, named(refused)) == (422, ["#/cron_expr"])
    assert table_digest(rows) == before
    assert rows.execute("SELECT count(*) FROM runs").fetchone() == (0,)


@pytest.mark.parametrize("field", EDITABLE)
def test_wrong_type_in_a_patch_is_named(web: WebServer, rows: psycopg.Connection[Any], field: str) -> None:
    job = web.submit(**YEARLY)
    before = table_digest(rows)
    for value in WRONG[EDITABLE[field]]:
        assert f"#/{field}" in named(patch(web, job, **{field: value})), value
    assert table_digest(rows) == before


@pytest.mark.parametrize(
    ("fields", "places"),
    [
        *[({name: value}, [name]) for name in ("start_at", "end_at") for value in NO_TIME_VALUES],
        *[({"run_at": value}, ["cron_expr", "run_at"]) for value in (SECRET, 5, AHEAD)],
        *[({"overlap": value}, ["overlap"]) for value in NO_WORDS],
        *[({"on_lease_loss": value}, ["on_lease_loss"]) for value in NO_WORDS],
        *[({"retry_mode": value}, ["retry_mode"]) for value in NO_WORDS],
        *[({name: value}, [name]) for name in RETRY_SECONDS for value in NO_SECONDS],
        ({"retry_base_seconds": 60.5, "retry_cap_seconds": 60}, ["retry_base_seconds"]),
        *[
            ({"jitter_seconds": jitter}, ["jitter_seconds"])
            for jitter in (None, -1, -0.001, 86_400.5, float("nan"), float("inf"), 1e300, "5", True, [5])
        ],
        *[({name: SECRET}, [name]) for name in ("idempotency_key", "paused")],
        *[({name: SECRET}, [name]) for name in INTERNAL],
        ({"payload": {}}, ["payload"]),
        ({"payload": {"command": "true", "nope": SECRET}}, ["payload/nope"]),
        ({"tags": ["a", ""]}, ["tags/1"]),
        ({"cron_expr": "61 * * * *", "timezone": "Mars"}, ["cron_expr", "timezone"]),
        (
            {"name": "\0", "priority": 0, "idempotency_key": None, "nope": 1},
            ["name", "priority", "idempotency_key", "nope"],
        ),
    ],
)
def test_patch_names_every_bad_field(
    web: WebServer, rows: psycopg.Connection[Any], fields: dict[str, Any], places: list[str]
) -> None:
    job = web.submit(**YEARLY)
    before = table_digest(rows)
    answer = patch(web, job, **fields)
    assert sorted(set(named(answer))) == sorted(f"#/{place}" for place in places)
    assert answer.json()["detail"].endswith("of the job cannot be accepted")
    assert table_digest(rows) == before


@pytest.mark.parametrize(
    ("tag", "status"),
    [
        *[(tag, 200) for tag in ('"2"', "*", '"1", "2"', '"2", "1"', 'W/"2", "2"', '"nope", "2"', "2")],
        *[(tag, 412) for tag in ('"1"', '"3"', 'W/"2"', '"02"', '"2', '""', "", " ", ", ,", "nope", '"*"')],
        *[(tag, 412) for tag in ('"2" "2"', f'"{"2" * 5000}"', '"-2"', '"2.0"', '"\xb2"')],
    ],
)
def test_patch_of_another_version_is_refused(
    web: WebServer, rows: psycopg.Connection[Any], tag: str, status: int
) -> None:
    job = patch(web, web.submit(**YEARLY), priority=1).json()
    before = table_digest(rows)
    answer = patch(web, job, tag, priority=2)
    assert answer.status == status, answer.text
    if status == 412:
        assert answer.json()["type"] == "/problems/version-mismatch"
        assert table_digest(rows) == before


def test_patch_that_changes_nothing_keeps_the_version(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit(**YEARLY, start_at="2026-01-01T00:00:00.123456Z", jitter_seconds=1, tags=["a"], timeout_seconds=5)
    before = table_digest(rows)
    assert patch(web, job).json() == job
    same = {name: job[name] for name in ("name", "tags", "payload", "cron_expr", "run_at", "start_at", "end_at")}
    assert patch(web, job, **same, jitter_seconds=1.0, timeout_seconds=5.0).json() == job
    assert table_digest(rows) == before


def test_patch_of_a_cancelled_job_is_refused(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit(**YEARLY)
    command(web, job, "cancel")
    before = table_digest(rows)
    for fields in ({"name": "other"}, {"priority": SECRET}, {}):
        answer = patch(web, job, **fields)
        assert (answer.status, answer.json()["type"]) == (409, "/problems/job-cancelled")
    assert table_digest(rows) == before


def test_patch_of_an_unknown_job_is_not_found(web: WebServer) -> None:
    assert patch(web, {"id": uuid4()}, priority=1).status == 404
    assert patch(web, {"id": "x"}, priority=1).status == 404
    assert web.request("PATCH", f"/api/jobs/{web.submit()['id']}?x=1", "{}").status == 422
    assert web.request("PATCH", f"/api/jobs/{web.submit()['id']}", b"").status == 400


def test_patch_refuses_a_time_that_has_passed(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit(run_at=AHEAD)
    before = table_digest(rows)
    answer = patch(web, job, run_at=PASSED)
    assert (named(answer), answer.json()["errors"][0]["code"]) == (["#/run_at"], "time-passed")
    assert table_digest(rows) == before


def test_zone_of_a_job_whose_time_has_passed_can_be_changed(web: WebServer) -> None:
    job = web.submit(run_at=PASSED)
    edited = patch(web, job, timezone="Europe/Berlin")
    assert edited.status == 200, edited.text
    assert edited.json()["schedule_text"] == "Once, on 2020-01-01 at 01:00"
    assert edited.json()["next_run_at"] == PASSED


# Window and jitter


@pytest.mark.parametrize(
    ("fields", "places"),
    [
        ({**YEARLY, "start_at": AHEAD, "end_at": PASSED}, ["#/end_at"]),
        ({**YEARLY, "start_at": AHEAD, "end_at": PASSED, "jitter_seconds": -1}, ["#/end_at", "#/jitter_seconds"]),
        ({"run_at": AHEAD, "start_at": PASSED}, ["#/start_at"]),
        ({"run_at": AHEAD, "end_at": AHEAD}, ["#/end_at"]),
        ({"start_at": PASSED, "end_at": AHEAD}, ["#/end_at", "#/start_at"]),
        (
            {**YEARLY, "start_at": SECRET, "end_at": 5, "jitter_seconds": 86_401},
            ["#/end_at", "#/jitter_seconds", "#/start_at"],
        ),
        ({**YEARLY, "jitter_seconds": "1", "overlap": SECRET}, ["#/jitter_seconds", "#/overlap"]),
    ],
)
def test_window_and_jitter_are_checked_together(
    web: WebServer, rows: psycopg.Connection[Any], fields: dict[str, Any], places: list[str]
) -> None:
    body = {"name": "x", "executor": "shell", "payload": {"command": "true"}, **fields}
    before = table_digest(rows)
    assert sorted(named(web.post("/api/jobs", body))) == places
    assert table_digest(rows) == before
    job = web.submit(**YEARLY)
    assert sorted(named(patch(web, job, **{"cron_expr": None, **fields}))) == places


def test_window_is_checked_with_what_the_job_has(web: WebServer) -> None:
    job = web.submit(**YEARLY, start_at="2998-01-01T00:00:00Z")
    assert named(patch(web, job, end_at="2997-01-01T00:00:00Z")) == ["#/end_at"]
    assert named(patch(web, job, cron_expr=None)) == ["#/start_at"]


@pytest.mark.parametrize(
    "window", [{"end_at": PASSED}, {"start_at": "2998-02-01T00:00:00Z", "end_at": "2998-03-01T00:00:00Z"}]
)
def test_window_without_a_tick_is_refused(
    web: WebServer, rows: psycopg.Connection[Any], window: dict[str, str]
) -> None:
    job = web.submit(**YEARLY)
    before = table_digest(rows)
    body = {"name": "x", "executor": "shell", "payload": {"command": "true"}, **YEARLY, **window}
    for answer in (web.post("/api/jobs", body), patch(web, job, **window)):
        assert (named(answer), answer.json()["errors"][0]["code"]) == (["#/end_at"], "empty-window")
    assert table_digest(rows) == before


def test_window_that_is_one_tick_or_all_time_is_accepted(web: WebServer) -> None:
    new_year = "2998-01-01T00:00:00Z"
    assert web.submit(**YEARLY, start_at=new_year, end_at=new_year)["next_run_at"] == new_year
    job = web.submit(**YEARLY, start_at="0001-01-01T00:00:00Z", end_at="9999-12-31T23:59:59.999999Z")
    assert len(of(web, job, "/next")["times"]) == 10
    assert patch(web, job, cron_expr="0 0 2 1 *").status == 200
    assert command(web, job, "pause", {"until": "9999-12-31T23:59:59.999999Z"})["status"] == "paused"
    assert of(web, job, "/next")["reason"] == "its window has ended"
    assert command(web, job, "resume")["status"] == "active"


# Skip


def test_skip_next_moves_the_clock_by_one_tick(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit(cron_expr="0 0 1 1 *", start_at="2990-06-01T00:00:00Z")
    for year in (2992, 2993):
        moved = command(web, job, "skip-next")
        assert moved["next_run_at"] == f"{year}-01-01T00:00:00Z"
    assert moved["version"] == 3
    assert explained(web, job, "2992-01-01T00:00:00Z")["outcome"] == "skip_next"
    assert explained(web, job, "2993-01-01T00:00:00Z")["outcome"] == "planned"
    assert rows.execute("SELECT count(*) FROM queue").fetchone() == (0,)


def test_skip_next_of_a_named_tick_is_done_once(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit(cron_expr="0 0 1 1 *", start_at="2990-06-01T00:00:00Z")
    moved = command(web, job, "skip-next", {"tick_at": "2991-01-01T01:00:00+01:00"})
    before = table_digest(rows)
    assert command(web, job, "skip-next", {"tick_at": "2991-01-01T00:00:00Z"}) == moved
    for other in ("2993-01-01T00:00:00Z", "2992-01-01T00:00:01Z", PASSED):
        told = command(web, job, "skip-next", {"tick_at": other}, status=409)
        assert told["type"] == "/problems/conflict"
        assert "2992-01-01T00:00:00" in told["detail"]
    assert table_digest(rows) == before


def test_skip_next_without_a_tick_is_refused(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    unscheduled, paused, cancelled = web.submit(), web.submit(**YEARLY), web.submit(**YEARLY)
    command(web, paused, "pause", {"until": AHEAD})
    command(web, cancelled, "cancel")
    before = table_digest(rows)
    for job, kind in ((unscheduled, "conflict"), (paused, "conflict"), (cancelled, "job-cancelled")):
        assert command(web, job, "skip-next", status=409)["type"] == f"/problems/{kind}"
    assert table_digest(rows) == before


def test_skip_next_of_an_only_time_leaves_none(web: WebServer) -> None:
    job = web.submit(run_at=AHEAD)
    assert command(web, job, "skip-next")["status"] == "completed"
    assert of(web, job, "/next")["reason"] == "its time was taken out"
    command(web, job, "pause", {"until": "2998-01-01T00:00:00Z"})
    assert (of(web, job, "/next")["times"], of(web, job, "/next")["reason"]) == ([], "its time was taken out")
    assert command(web, job, "resume")["status"] == "completed"


@pytest.mark.parametrize(
    ("body", "places"),
    [
        *[({"tick_at": value}, ["#/tick_at"]) for value in NO_TIME_VALUES],
        ({"tick_at": 5, "at": AHEAD, "count": 1}, ["#/at", "#/count", "#/tick_at"]),
    ],
)
def test_every_bad_field_of_a_skip_is_named(
    web: WebServer, rows: psycopg.Connection[Any], body: dict[str, Any], places: list[str]
) -> None:
    job = web.submit(**YEARLY)
    before = table_digest(rows)
    assert sorted(named(web.post(f"/api/jobs/{job['id']}/skip-next", body))) == places
    assert table_digest(rows) == before


# Trigger


def test_trigger_takes_a_payload_of_its_own(web: WebServer) -> None:
    job = web.submit(**YEARLY)
    own = command(web, job, "trigger", {"payload": {"command": "echo own"}}, status=201)
    assert own["payload"] == {"command": "echo own"}
    assert of(web, job)["payload"] == job["payload"]
    for body in (None, {}, {"payload": None}):
        assert command(web, job, "trigger", body, status=201)["payload"] is None


@pytest.mark.parametrize(
    ("payload", "places"),
    [
        *[(value, ["#/payload"]) for value in (SECRET, 5, True, [SECRET])],
        *[(value, ["#/payload"]) for value in ({}, {"command": None}, {"command": "true", "argv": ["true"]})],
        *[({"command": value}, ["#/payload/command"]) for value in (5, "", "\0", "\ud800", [SECRET], "c" * 131_072)],
        ({"command": "true", "env": 5, "a/b": SECRET}, ["#/payload/a~1b", "#/payload/env"]),
        ({"command": float("nan")}, ["#/payload/command"]),
        ({"command": {"a": [2**70]}}, ["#/payload/command/a/0"]),
    ],
)
def test_every_bad_field_of_a_payload_is_named(
    web: WebServer, rows: psycopg.Connection[Any], payload: Any, places: list[str]
) -> None:
    job = web.submit(**YEARLY)
    before = table_digest(rows)
    assert sorted(named(web.post(f"/api/jobs/{job['id']}/trigger", {"payload": payload}))) == places
    assert table_digest(rows) == before


def test_unknown_field_of_a_trigger_is_named_beside_its_payload(web: WebServer) -> None:
    job = web.submit()
    assert sorted(named(web.post(f"/api/jobs/{job['id']}/trigger", {"payload": 5, "priority": 1}))) == [
        "#/payload",
        "#/priority",
    ]


def test_trigger_that_overlaps_is_refused_by_skip(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit(**YEARLY, overlap="skip")
    run = command(web, job, "trigger", status=201)
    before = table_digest(rows)
    told = command(web, job, "trigger", status=409)
    assert told["type"] == "/problems/conflict"
    assert told["detail"] == f"a run of this job is in the way, and its overlap is skip: {run['id']}"
    assert table_digest(rows) == before


def test_trigger_that_overlaps_is_held_by_queue_and_takes_over_by_replace(
    web: WebServer, rows: psycopg.Connection[Any]
) -> None:
    job = web.submit(**YEARLY, overlap="queue", catch_up_limit=1)
    first = command(web, job, "trigger", status=201)
    start_run(rows, first["id"])
    second = command(web, job, "trigger", status=201)
    assert (second["is_held"], second["next_attempt_at"]) == (True, None)
    assert first["id"] in command(web, job, "trigger", status=409)["detail"]
    assert patch(web, job, overlap="replace").status == 200
    third = command(web, job, "trigger", status=201)
    assert third["is_held"] is True
    replaced = web.get(f"/api/runs/{second['id']}").json()
    assert (replaced["status"], replaced["error"]) == ("cancelled", "replaced by a newer run of its job")
    assert rows.execute("SELECT cancel_requested_at IS NULL FROM queue WHERE id = %s", [first["id"]]).fetchone() == (
        False,
    )


# Explain


def test_explain_answers_from_the_ledger(web: WebServer, web_database: str) -> None:
    job = web.submit(name="once", run_at=PASSED, timezone="Europe/Berlin")
    assert explained(web, job, PASSED)["outcome"] == "not_submitted"
    run_pass(web_database)
    ran = explained(web, job, PASSED)
    run_id = web.get("/api/runs").json()["items"][0]["id"]
    assert datetime.fromisoformat(ran.pop("fired_at")) > datetime.fromisoformat(job["created_at"])
    assert ran.pop("reason").endswith("late: its run waits for a worker")
    assert ran == {
        "job_id": job["id"],
        "job_name": "once",
        "at": PASSED,
        "local": "2020-01-01T01:00:00+01:00",
        "timezone": "Europe/Berlin",
        "outcome": "late",
        "run": {"id": run_id, "status": "pending", **dict.fromkeys(CODES)},
        "delay_seconds": None,
        "notes": [],
        "blocked_by": None,
        "gap": None,
        "previous_tick": None,
        "next_tick": None,
    }
    assert explained(web, job, "2020-01-01T01:00:00") == explained(web, job, PASSED)


def test_explain_of_a_pause_has_its_stretch_and_of_no_tick_its_neighbours(web: WebServer) -> None:
    job = web.submit(**YEARLY)
    between = explained(web, job, "2998-06-01T00:00:00Z")
    assert (between["outcome"], between["gap"], between["run"]) == ("no_tick", None, None)
    assert (between["previous_tick"], between["next_tick"]) == ("2998-01-01T00:00:00Z", "2999-01-01T00:00:00Z")
    command(web, job, "pause", {"reason": "too early"})
    paused = explained(web, job, AHEAD)
    assert (paused["outcome"], paused["reason"]) == ("paused", "the job was paused: too early")
    assert paused["gap"].keys() == {"from", "to"}
    assert paused["gap"]["to"] is None


@pytest.mark.parametrize(
    "text", ["2999-01-01T05:30:00+05:30", "2999-01-01T05:30:00%2B05:30", "2999-01-01T05:30%2b05:30"]
)
def test_explain_takes_a_plus_that_was_not_escaped(web: WebServer, text: str) -> None:
    assert of(web, web.submit(**YEARLY), f"/explain?at={text}")["at"] == AHEAD


@pytest.mark.parametrize(
    ("query", "places"),
    [
        ("", ["at"]),
        ("?at=", ["at"]),
        (f"?at={AHEAD}&at={AHEAD}", ["at"]),
        ("?at=now&nope=1", ["nope"]),
        (f"?tick_at={AHEAD}", ["at", "tick_at"]),
        *[
            (f"?at={quote(text)}", ["at"])
            for text in (*filter(None, NO_TIMES), "0001-01-01T00:00:00", "9999-12-31T23:59:59-12:00", "\0", "T 05:30")
            if text != "2026-07-01T09:00:00"
        ],
        *[(f"?at={text}", ["at"]) for text in ("%ff", "%D9%A2026-07-01T09:00:00Z", "2" * 4000, "2026-07-01T09:00+5")],
    ],
)
def test_explain_refuses_what_is_no_time(web: WebServer, query: str, places: list[str]) -> None:
    job = web.submit(**YEARLY, timezone="Europe/Berlin")
    assert sorted(named(web.get(f"/api/jobs/{job['id']}/explain{query}"))) == places


@pytest.mark.parametrize("instant", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "9999-12-31T00:00:00Z"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_ends_of_the_calendar_are_explained(web: WebServer, instant: str, zone: str) -> None:
    for fields in (YEARLY, {"cron_expr": "* * * * * *"}, {"run_at": instant}, {}):
        told = explained(web, web.submit(**fields, timezone=zone), instant)
        assert told["at"] == instant
        assert told["outcome"] in ("not_submitted", "no_tick", "planned")


def test_explain_of_an_unknown_job_is_not_found(web: WebServer) -> None:
    for job_id in (uuid4(), "x"):
        assert web.get(f"/api/jobs/{job_id}/explain?at={AHEAD}").status == 404


# What a job shows


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"cron_expr": "30 2 * * MON-FRI"}, "At 02:30, Monday through Friday"),
        ({"run_at": AHEAD, "timezone": "Asia/Tokyo"}, "Once, on 2999-01-01 at 09:00"),
        ({}, "Once, when submitted"),
    ],
)
def test_job_says_its_schedule_in_words(web: WebServer, fields: dict[str, Any], told: str) -> None:
    job = web.submit(**fields)
    assert job["schedule_text"] == told
    assert [one["schedule_text"] for one in web.get("/api/jobs").json()["items"]] == [told]


def test_schedule_that_is_no_longer_read_is_shown_as_it_stands(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit(**YEARLY)
    rows.execute("UPDATE jobs SET timezone = 'Mars/Olympus'")
    assert of(web, job)["schedule_text"] == "0 0 1 1 *"
    rows.execute("UPDATE jobs SET created_at = '2020-01-01Z'")
    assert explained(web, job, AHEAD)["outcome"] == "unrecorded"
    assert named(patch(web, job, priority=1)) == ["#/timezone"]
    assert patch(web, job, timezone="UTC").json()["schedule_text"] == "At 00:00, on day 1 of the month, only in January"


def test_skipped_ticks_can_be_taken_back_in(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit(**YEARLY)
    first = job["next_run_at"]
    second = command(web, job, "skip-next")["next_run_at"]
    command(web, job, "skip-next")
    assert of(web, job, "/next")["skipped"] == [first, second]
    assert command(web, job, "unskip", {"tick_at": second})["next_run_at"] == second
    assert command(web, job, "unskip")["next_run_at"] == first
    assert of(web, job, "/next")["skipped"] == []
    before = table_digest(rows)
    assert command(web, job, "unskip")["next_run_at"] == first
    assert table_digest(rows) == before


def test_time_that_the_clock_skipped_is_told_with_the_answer(web: WebServer) -> None:
    nightly = web.submit(cron_expr="30 2 * * *", timezone="Europe/Berlin")
    quarters = web.submit(cron_expr="*/15 * * * *", timezone="Europe/Berlin")
    moved = explained(web, nightly, "2099-03-29T02:30")
    assert (moved["outcome"], moved["local"]) == ("planned", "2099-03-29T03:00:00+02:00")
    assert moved["notes"] == ["the clock skipped 02:30:00 that day, and went on at 03:00:00"]
    assert explained(web, nightly, "2099-03-29T02:45")["outcome"] == "no_tick"
    dropped = explained(web, quarters, "2099-03-29T02:15")
    assert (dropped["outcome"], len(dropped["notes"])) == ("no_tick", 1)
    twice = explained(web, nightly, "2099-10-25T02:30")
    assert (twice["outcome"], twice["local"]) == ("planned", "2099-10-25T02:30:00+02:00")
    assert twice["notes"][0].startswith("the clock shows this time twice that day")


def test_next_respects_window_pause_and_skips(web: WebServer) -> None:
    job = web.submit(**YEARLY, start_at="2990-06-01T00:00:00Z", end_at="2996-06-01T00:00:00Z")

    def years() -> list[int]:
        return [int(time["at"][:4]) for time in of(web, job, "/next")["times"]]

    assert years() == [2991, 2992, 2993, 2994, 2995, 2996]
    command(web, job, "skip-next")
    assert years() == [2992, 2993, 2994, 2995, 2996]
    command(web, job, "pause", {"until": "2994-01-01T00:00:00Z"})
    assert years() == [2994, 2995, 2996]
    command(web, job, "pause", {"until": "2994-01-01T00:00:00.000001Z"})
    assert years() == [2995, 2996]
    command(web, job, "pause", {"until": "2997-01-01T00:00:00Z"})
    assert (years(), of(web, job, "/next")["reason"]) == ([], "its window has ended")
    command(web, job, "resume")
    assert years() == [2992, 2993, 2994, 2995, 2996]


def test_next_of_a_time_within_a_second_has_its_offset(web: WebServer) -> None:
    (only,) = of(web, web.submit(run_at="2999-01-01T00:00:00.5Z"), "/next")["times"]
    assert (only["at"], only["offset"]) == ("2999-01-01T00:00:00.500000Z", "+00:00")
