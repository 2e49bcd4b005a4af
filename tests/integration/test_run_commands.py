"""`forgeflow retry` and `forgeflow cancel`."""

import json
import os
import pty
import shlex
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from click.testing import CliRunner

from forgeflow.cli.main import cli
from forgeflow.service.lifecycle import trigger_job
from forgeflow.service.runs import cancel_run
from forgeflow.store.connection import Connection
from tests.integration.test_explain import complaint, document, here, shown
from tests.support.commands import command, environment, refused
from tests.support.scenario import claim, fail, failure, look, make_worker
from tests.support.work import only_run, submit

AT = "2026-07-01T02:00:00Z"


def waiting(connection: Connection, **fields: Any) -> UUID:
    return only_run(connection, submit(connection, "true", **{"name": "nightly", "max_attempts": 1, **fields})).id


def dead(connection: Connection, **fields: Any) -> UUID:
    run_id = waiting(connection, **fields)
    owner = make_worker(connection)
    fail(connection, owner, failure(claim(connection, owner)[0]))
    assert look(connection, run_id).status == "dead"
    return run_id


def retries(connection: Connection) -> dict[UUID, UUID]:
    rows = connection.execute("SELECT retry_of, id FROM queue WHERE retry_of IS NOT NULL").fetchall()
    return dict(rows)


def test_retry_of_one_run_names_the_new_one(database_url: str, connection: Connection) -> None:
    run_id = dead(connection)
    (line,) = shown(database_url, "retry", str(run_id))
    assert line == f"{run_id} retried by {retries(connection)[run_id]}"
    code, told = complaint(database_url, "retry", str(run_id))
    assert (code, told) == (4, f"the run is being retried already, by {retries(connection)[run_id]}")
    assert complaint(database_url, "retry", str(uuid4()))[0] == 3
    other = dead_beside(connection)
    printed = document(database_url, "retry", str(other))
    assert (printed["retry_of"], printed["status"]) == (str(other), "pending")


def dead_beside(connection: Connection) -> UUID:
    """A run that was cancelled, for others are before it in the queue."""
    run_id = waiting(connection)
    cancel_run(connection, run_id)
    return run_id


def test_cancel_of_one_run_says_whether_it_had_begun(database_url: str, connection: Connection) -> None:
    running, pending = waiting(connection), waiting(connection)
    claim(connection, make_worker(connection))
    assert shown(database_url, "cancel", str(running)) == [f"{running} asked to stop"]
    assert shown(database_url, "cancel", str(pending)) == [f"{pending} cancelled"]
    told = complaint(database_url, "cancel", str(pending))
    assert told == (4, "the run has ended, and stays what it is: cancelled")
    assert look(connection, running).cancel_requested_at


def test_many_runs_are_changed_by_what_they_have_in_common(database_url: str, connection: Connection) -> None:
    first, other = dead(connection), dead(connection, name="other")
    second = trigger_job(connection, look(connection, first).job_id).id
    owner = make_worker(connection)
    fail(connection, owner, failure(claim(connection, owner)[0]))
    connection.execute("ALTER TABLE finished_runs DISABLE TRIGGER finished_runs_are_final")
    connection.execute("UPDATE finished_runs SET scheduled_for = %s WHERE id = %s", [AT, first])
    assert shown(database_url, "retry", "--job", "nightly", "--dry-run") == ["2 runs would be retried"]
    assert shown(database_url, "retry", "--until", AT, "--dry-run") == ["1 run would be retried"]
    assert shown(database_url, "retry", "--job", "nightly", "--since", "24h", "--yes") == ["1 run retried, 0 skipped"]
    assert list(retries(connection)) == [second]
    assert document(database_url, "retry", "--status", "dead", "--dry-run")["selected"] == 2
    assert shown(database_url, "retry", "--status", "dead", "--yes") == ["2 runs retried, 0 skipped"]
    assert set(retries(connection)) == {first, second, other}
    told = document(database_url, "cancel", "--job", "other", "--status", "pending", "--yes")
    assert told == {"action": "cancel", "dry_run": False, "selected": 1, "done": 1, "skipped": []}
    assert set(retries(connection)) == {first, second}


def test_run_that_is_skipped_is_told_with_its_reason(database_url: str, connection: Connection) -> None:
    ended, pending = dead_beside(connection), waiting(connection)
    code, output, told = here(database_url, "cancel", str(ended), str(pending))
    assert (code, told) == (1, "")
    assert output.splitlines() == [
        f"{ended} skipped: the run has ended, and stays what it is: cancelled",
        "1 run cancelled, 1 skipped",
    ]


@pytest.mark.parametrize("name", ["retry", "cancel"])
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "expected either ids of runs, or some of --job, --status, --since and --until"),
        ((str(uuid4()), "--since", "2h"), "expected either ids of runs, or some of --job"),
        (("0199",), "RUN: expected an id of a run, whole"),
        (("--since", "yesterday"), "--since: expected how long ago, such as 90m or 24h, or a time"),
        (("--until", "2h30", "--yes"), "--until: expected how long ago"),
        (("--since", "1h", "--until", "2h"), "--until: is before --since"),
        (("--since", "99999999h"), "--since: expected how long ago"),
        (("--since", "2h"), "0 runs would be "),
    ],
)
def test_what_is_not_clear_changes_nothing(
    database_url: str, connection: Connection, name: str, arguments: tuple[str, ...], told: str
) -> None:
    """The last one is clear, but nobody is there to be asked."""
    code, sentence = complaint(database_url, name, *arguments)
    assert (code, sentence[: len(told)]) == (2, told)
    assert complaint(database_url, name, "--job", "nobody", "--yes")[0] == 3
    assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)


@pytest.mark.parametrize(("answer", "code", "status"), [(b"y\n", 0, "cancelled"), (b"n\n", 1, "pending")])
def test_somebody_at_a_terminal_is_asked_before_many_are_changed(
    database_url: str, connection: Connection, answer: bytes, code: int, status: str
) -> None:
    run_id = waiting(connection)
    terminal, theirs = pty.openpty()
    try:
        os.write(terminal, answer)
        done = subprocess.run(
            command("cancel", "--job", "nightly"),
            env=environment(FORGEFLOW_DATABASE_URL=database_url),
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(terminal)
        os.close(theirs)
    assert done.returncode == code
    assert done.stderr.startswith("1 run would be cancelled. Go on? [y/N]: ")
    assert look(connection, run_id).status == status


def test_database_that_is_away_has_its_exit_code(tmp_path: Path) -> None:
    code, told = refused(tmp_path, "retry", str(uuid4()), FORGEFLOW_DATABASE_URL="postgresql://u@127.0.0.1:1/x")
    assert (code, told[:31]) == (69, "cannot connect to the database:")


@pytest.mark.parametrize("name", ["retry", "cancel"])
def test_help_has_examples_that_work(database_url: str, connection: Connection, name: str) -> None:
    waiting(connection)
    text = CliRunner().invoke(cli, [name, "--help"], prog_name="forgeflow").output
    examples = [line.strip() for line in text.splitlines() if line.startswith("    forgeflow ")]
    assert len(examples) == 2
    for example in examples:
        assert shown(database_url, *shlex.split(example)[1:]), example


def test_answer_is_one_json_document(database_url: str, connection: Connection) -> None:
    run_id = waiting(connection)
    code, output, _ = here(database_url, "cancel", str(run_id), str(uuid4()), "--json")
    assert code == 1
    assert [json.loads(output)[name] for name in ("selected", "done")] == [2, 1]
