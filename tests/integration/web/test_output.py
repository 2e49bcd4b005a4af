"""GET /api/runs/{id}/output: parts, long polls, downloads, and what is refused."""

import os
import signal
import threading
import time
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.waiting import wait_for
from tests.support.web import Answer, WebServer, end_run, start_run, web_server

Rows = psycopg.Connection[Any]


def running(web: WebServer, rows: Rows) -> str:
    """A run that goes on."""
    run_id = submitted(web)
    start_run(rows, run_id)
    return run_id


def submitted(web: WebServer) -> str:
    job = web.submit()
    return str(web.get(f"/api/runs?job_id={job['id']}").json()["items"][0]["id"])


def show(rows: Rows, run_id: str, first: int, text: str) -> None:
    rows.execute(
        "INSERT INTO output_chunks (run_id, attempt, first, text) VALUES (%s, 1, %s, %s)", [run_id, first, text]
    )


def test_run_that_goes_on_has_what_was_seen_of_it(web: WebServer, rows: Rows) -> None:
    run_id = running(web, rows)
    show(rows, run_id, 0, "one")
    show(rows, run_id, 10, "two")
    path = f"/api/runs/{run_id}/output"
    assert web.get(path).json() == {"attempt": 1, "data": "one", "next_offset": 3, "finished": False}
    assert web.get(f"{path}?attempt=1&offset=3").json() == {
        "attempt": 1,
        "data": "two",
        "next_offset": 13,
        "finished": False,
        "skipped": 7,
    }


def test_run_that_has_not_begun_can_be_followed_from_its_answer(web: WebServer, rows: Rows) -> None:
    run_id = submitted(web)
    answer = web.get(f"/api/runs/{run_id}/output").json()
    assert answer == {"attempt": 0, "data": "", "next_offset": 0, "finished": False}
    start_run(rows, run_id)
    end_run(rows, run_id, "succeeded")
    answer = web.get(f"/api/runs/{run_id}/output?attempt=0&offset=0").json()
    assert answer == {"attempt": 1, "data": "some output", "next_offset": 11, "finished": True}


def test_download_is_plain_text(web: WebServer, rows: Rows) -> None:
    run_id = running(web, rows)
    show(rows, run_id, 3, "<b>ä")
    answer = web.get(f"/api/runs/{run_id}/output", {"Accept": "text/plain"})
    assert answer.body.decode() == "\n[… 3 bytes not kept …]\n<b>ä"
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{run_id}.txt"'


def test_unknown_run_has_no_output(web: WebServer) -> None:
    for accept in ("application/json", "text/plain"):
        assert web.get(f"/api/runs/{uuid4()}/output", {"Accept": accept}).status == 404


@pytest.mark.parametrize(
    ("query", "parameter", "detail"),
    [
        ("offset=-1", "offset", "expected a whole number from 0 to 9007199254740991"),
        ("offset=99999999999999999999", "offset", "expected a whole number from 0 to 9007199254740991"),
        ("wait=21", "wait", "expected a whole number from 0 to 20"),
        ("attempt=x", "attempt", "expected a whole number from 0 to 2147483647"),
        ("tail=5", "tail", "is not a parameter here; known are attempt, offset, wait"),
    ],
)
def test_bad_parameter_is_named(web: WebServer, query: str, parameter: str, detail: str) -> None:
    answer = web.get(f"/api/runs/{UUID(int=1)}/output?{query}")
    (error,) = answer.json()["errors"]
    assert (answer.status, error["parameter"], error["detail"]) == (422, parameter, detail)


def test_more_waiters_than_half_of_the_threads_are_answered_at_once(web: WebServer, rows: Rows) -> None:
    run_id = running(web, rows)
    answers: list[tuple[float, Answer]] = []
    began = time.monotonic()

    def wait() -> None:
        answer = web.get(f"/api/runs/{run_id}/output?wait=20")
        answers.append((time.monotonic() - began, answer))

    threads = [threading.Thread(target=wait) for _ in range(6)]
    for thread in threads:
        thread.start()
    while len(answers) < 2:  # of eight threads four may wait
        time.sleep(0.01)
    assert web.get("/healthz").status == 200
    show(rows, run_id, 0, "come")
    for thread in threads:
        thread.join()
    assert sorted(answer.json()["data"] for _, answer in answers) == ["", "", "come", "come", "come", "come"]
    assert max(seconds for seconds, _ in answers) < 10


def test_process_that_is_told_to_stop_answers_those_who_wait(web_database: str, rows: Rows) -> None:
    with web_server(web_database) as stopping:
        run_id = running(stopping, rows)
        answers: list[Answer] = []
        waiter = threading.Thread(
            target=lambda: answers.append(stopping.get(f"/api/runs/{run_id}/output?wait=20")), daemon=True
        )
        waiter.start()
        wait_for(lambda: look_ups(rows), why="it waits")
        began = time.monotonic()
        os.kill(stopping.pid, signal.SIGTERM)
        waiter.join()
    assert answers[0].json()["data"] == ""
    assert time.monotonic() - began < 10


def look_ups(rows: Rows) -> bool:
    """Whether a session of a web process has just read the output of a run."""
    found = rows.execute(
        "SELECT 1 FROM pg_stat_activity WHERE application_name = 'forgeflow:web' AND query LIKE '%output_chunks%'"
        " AND datname = current_database() AND pid <> pg_backend_pid()"
    )
    return found.fetchone() is not None
