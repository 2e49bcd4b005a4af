"""`forgeflow explain` and `forgeflow next JOB`."""

import json
import shlex
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from click.testing import CliRunner

from forgeflow.cli.main import cli
from forgeflow.config import Config
from forgeflow.domain.run import Ending, Failure
from forgeflow.scheduler.ticks import TickPasses
from forgeflow.service import lifecycle
from forgeflow.service.explain import explain_tick
from forgeflow.service.jobs import get_job
from forgeflow.service.requests import read_pause_request
from forgeflow.service.retries import retry_run
from forgeflow.service.upcoming import preview_job
from forgeflow.store.connection import Connection
from forgeflow.web.api.documents import explanation_document, upcoming_document
from tests.support.commands import SECRET, command, environment, refused, run
from tests.support.scenario import claim, fail, make_worker
from tests.support.wire import Mode, Wire
from tests.support.work import only_run, submit

# New year on the clock of Berlin, and the instant of one of them.
YEARLY: dict[str, Any] = {"name": "yearly", "cron_expr": "0 0 1 1 *", "timezone": "Europe/Berlin"}
NEW_YEAR = "2024-12-31T23:00:00Z"
COMMANDS = [("next",), ("explain", "2025-01-01T00:00")]


def here(url: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `forgeflow` within this process, for what is asked many times."""
    done = CliRunner().invoke(cli, arguments, env=environment(FORGEFLOW_DATABASE_URL=url))
    assert isinstance(done.exception, SystemExit | None), done.exception
    return done.exit_code, done.stdout, done.stderr


def shown(url: str, *arguments: str) -> list[str]:
    code, output, complaint = here(url, *arguments)
    assert (code, complaint) == (0, ""), complaint
    return output.splitlines()


def document(url: str, *arguments: str) -> dict[str, Any]:
    printed: dict[str, Any] = json.loads("\n".join(shown(url, *arguments, "--json")))
    return printed


def complaint(url: str, *arguments: str) -> tuple[int, str]:
    """Exit code and the one sentence."""
    code, output, told = here(url, *arguments)
    assert (output, told[:11], told.count("\n")) == ("", "forgeflow: ", 1)
    return code, told.removeprefix("forgeflow: ").rstrip("\n")


def asked(arguments: tuple[str, ...], job: object) -> list[str]:
    """The command with the job in its place."""
    return [arguments[0], str(job), *arguments[1:]]


def owe(connection: Connection, config: Config, **fields: Any) -> UUID:
    """A job that was due at NEW_YEAR, and not since, until a leader came."""
    job_id = submit(connection, "true", **{**YEARLY, **fields})
    connection.execute("UPDATE jobs SET created_at = '2020-01-01Z', next_run_at = %s WHERE id = %s", [NEW_YEAR, job_id])
    TickPasses(connection, config, 1).run_pass()
    return job_id


# explain


def test_explain_says_in_one_line_what_became_of_a_tick(
    tmp_path: Path, database_url: str, connection: Connection, config: Config
) -> None:
    """As a process of its own."""
    job_id = owe(connection, config)
    code, output, _ = run(tmp_path, "explain", "yearly", NEW_YEAR, FORGEFLOW_DATABASE_URL=database_url)
    assert code == 0
    line, *facts = output.splitlines()
    assert line == "MISSED  nobody led at that time, and catch_up, skip, did not want this tick"
    gap = facts.pop()
    assert facts == [
        f"job   yearly {job_id}",
        "time  Wed 2025-01-01 00:00 +01:00 Europe/Berlin, Tue 2024-12-31 23:00 UTC",
    ]
    assert gap.startswith("gap   from Tue 2024-12-31 23:00:00 UTC to ")


def test_explain_names_the_run_of_a_tick_and_how_it_ended(
    database_url: str, connection: Connection, config: Config
) -> None:
    job_id = owe(connection, config, cron_expr=None, run_at=NEW_YEAR)
    run_id = only_run(connection, job_id).id
    line, *facts = shown(database_url, "explain", "yearly", NEW_YEAR)
    assert line.startswith("LATE, PENDING  it got its run ")
    assert line.endswith("late: its run waits for a worker")
    assert facts[-1] == f"run   {run_id} pending"
    lifecycle.pause_job(connection, job_id)
    line, *facts = shown(database_url, "explain", "yearly", NEW_YEAR)
    assert line.endswith("late: its run was cancelled, never begun: its job was paused")
    assert facts[-1] == f"run   {run_id} cancelled"


def test_explain_says_how_a_run_ended_and_with_which_code(
    database_url: str, connection: Connection, config: Config
) -> None:
    job_id = owe(connection, config, cron_expr=None, run_at=NEW_YEAR, max_attempts=1)
    owner = make_worker(connection)
    (claimed,) = claim(connection, owner)
    late = Failure("timed_out", "still running after 300 s, stopped", charged=True)
    fail(connection, owner, Ending(claimed.id, claimed.attempt, late, signal=15))
    line, *facts = shown(database_url, "explain", str(job_id), NEW_YEAR)
    assert line.startswith("LATE, TIMED OUT  it got its run ")
    assert line.endswith(": still running after 300 s, stopped")
    assert facts[-1] == f"run   {claimed.id} dead, timed out, signal 15"
    again = retry_run(connection, claimed.id).id
    (line, *_) = shown(database_url, "explain", str(job_id), NEW_YEAR)
    assert line.endswith(f": still running after 300 s, stopped; run {again} retried it")
    told = document(database_url, "explain", str(job_id), NEW_YEAR)["run"]
    expected = {"status": "dead", "outcome": "timed_out", "exit_code": None, "signal": 15, "http_status": None}
    assert told == {"id": str(claimed.id), **expected}


def test_explain_of_a_pause_tells_its_reason_and_that_it_goes_on(database_url: str, connection: Connection) -> None:
    job_id = submit(connection, "true", name="utc", cron_expr="0 0 1 1 *")
    lifecycle.pause_job(connection, job_id, read_pause_request({"reason": "a new \x1b[31mdatabase"}))
    line, _, when, gap = shown(database_url, "explain", "utc", "2999-01-01T00:00")
    assert line == "PAUSED  the job was paused: a new \\x1b[31mdatabase"
    assert when == "time  Tue 2999-01-01 00:00 UTC"
    assert gap.startswith("gap   from ")
    assert gap.endswith(" UTC on")
    lifecycle.pause_job(connection, job_id, read_pause_request({"until": "2999-06-01T00:00:00Z"}))
    line, *_, gap = shown(database_url, "explain", "utc", "2999-01-01T00:00")
    assert line == "PAUSED  the job was paused"
    assert gap.endswith(" UTC until Sat 2999-06-01 00:00:00 UTC")


def test_explain_takes_the_time_on_the_clock_of_the_job(
    database_url: str, connection: Connection, config: Config
) -> None:
    owe(connection, config)
    given = ["2025-01-01T00:00", "2025-01-01 00:00:00", NEW_YEAR, "2025-01-01T04:30:00+05:30"]
    told = [shown(database_url, "explain", "yearly", text) for text in given]
    assert all(lines == told[0] for lines in told)
    line, _, when = shown(database_url, "explain", "yearly", "2025-01-01T00:00Z")
    assert line.startswith("NO TICK  the schedule has no tick then; the one before is 2025-01-01 00:00:00+01:00; ")
    assert when == "time  Wed 2025-01-01 01:00 +01:00 Europe/Berlin, Wed 2025-01-01 00:00 UTC"
    (when,) = shown(database_url, "explain", "yearly", "2025-01-01T00:00:00.25Z")[2:]
    assert when.endswith(", Wed 2025-01-01 00:00:00.250000 UTC")


def test_explain_as_json_is_the_document_of_the_api(database_url: str, connection: Connection, config: Config) -> None:
    job_id = owe(connection, config, catch_up="all")
    told = document(database_url, "explain", "yearly", "2025-01-01T00:00")
    assert told == explanation_document(explain_tick(connection, job_id, NEW_YEAR))
    assert (told["outcome"], told["at"]) == ("caught_up", NEW_YEAR)


@pytest.mark.parametrize(
    "at", ["", "now", "2025-01-01", "2025-02-30T00:00", "0000-01-01T00:00Z", "\x1b[31m", "é\udcff"]
)
def test_explain_of_what_is_no_time_is_2_and_says_what_is_expected(
    database_url: str, connection: Connection, at: str
) -> None:
    submit(connection, "true", **YEARLY)
    code, line = complaint(database_url, "explain", "yearly", at)
    assert code == 2
    assert line.startswith("the time cannot be read: expected a")


# Which job is meant


@pytest.mark.parametrize("arguments", COMMANDS)
def test_job_is_found_by_id_prefix_and_name(
    database_url: str, connection: Connection, arguments: tuple[str, ...]
) -> None:
    job_id = submit(connection, "true", **YEARLY)
    other = submit(connection, "true", **{**YEARLY, "name": "other"})
    connection.execute("UPDATE jobs SET id = 'abcd0123-4567-4000-8000-000000000000' WHERE id = %s", [other])
    text = str(job_id)
    for name in ("yearly", text, text[:-1], text[:4], text.upper(), text.replace("-", "")):
        assert document(database_url, *asked(arguments, name))["job_id"] == text, name


@pytest.mark.parametrize("arguments", COMMANDS)
def test_unknown_and_ambiguous_jobs_are_refused(
    database_url: str, connection: Connection, arguments: tuple[str, ...]
) -> None:
    twins = sorted(str(submit(connection, "true", **{**YEARLY, "name": "t\x1b[31m"})) for _ in range(2))
    begins = twins[0][:4]
    for name in ("yearl", "YEARLY", begins[:3], str(uuid4()), "%", "\udcff", "n" * 300):
        assert complaint(database_url, *asked(arguments, name)) == (3, "there is no job of that name or id")
    for name in ("t\x1b[31m", begins):
        code, line = complaint(database_url, *asked(arguments, name))
        assert code == 2
        told = ", ".join(f"{job_id} (t\\x1b[31m)" for job_id in twins)
        assert line == f"more than one job is called so; give an id: {told}"


def test_whole_id_is_never_ambiguous(database_url: str, connection: Connection) -> None:
    job_id = submit(connection, "true", **YEARLY)
    submit(connection, "true", name=str(job_id))
    assert shown(database_url, "next", str(job_id))[0].startswith("yearly: ")


# next JOB


def test_next_shows_the_times_of_a_job(database_url: str, connection: Connection) -> None:
    submit(connection, "true", **YEARLY, start_at="2997-11-01T00:00:00Z", end_at="2998-06-01T00:00:00Z")
    assert shown(database_url, "next", "yearly") == [
        "yearly: At 00:00, on day 1 of the month, only in January",
        "Europe/Berlin                UTC",
        "Mon 2998-01-01 00:00 +01:00  Sun 2997-12-31 23:00",
    ]
    submit(connection, "true", **{**YEARLY, "name": "endless"})
    assert len(document(database_url, "next", "endless")["times"]) == 10
    assert len(document(database_url, "next", "endless", "--count", "1")["times"]) == 1


def test_next_of_a_job_tells_of_jitter_and_of_a_pause(database_url: str, connection: Connection) -> None:
    job_id = submit(connection, "true", **YEARLY, jitter_seconds=30)
    told = shown(database_url, "next", "yearly", "--count", "1")
    assert told[-1] == "each run waits up to 30 s more"
    request = read_pause_request({"until": "2998-11-01T00:00:00Z", "reason": "too early"})
    lifecycle.pause_job(connection, job_id, request)
    assert shown(database_url, "next", "yearly", "--count", "1")[1:] == [
        "paused until Thu 2998-11-01 01:00 +01:00: too early",
        "Europe/Berlin                UTC",
        "Tue 2999-01-01 00:00 +01:00  Mon 2998-12-31 23:00",
        "each run waits up to 30 s more",
    ]
    lifecycle.pause_job(connection, job_id, read_pause_request({"reason": "too early"}))
    assert shown(database_url, "next", "yearly")[1:] == [
        "the job is paused: until it is resumed it runs by trigger only",
        "paused: too early",
    ]


def test_next_of_a_job_as_json_is_the_document_of_the_api(database_url: str, connection: Connection) -> None:
    job_id = submit(connection, "true", **YEARLY)
    told = document(database_url, "next", "yearly", "--count", "3")
    assert told == upcoming_document(preview_job(connection, job_id, count=3))
    assert len(told["times"]) == 3


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("yearly --tz UTC", "--tz is for an expression; a single word names a job, which has a zone of its own"),
        ("yearly --after 2025-01-01T00:00Z", "--after is for an expression; a single word names a job, which is"),
        ("yearly --count 101", "--count: expected a whole number from 1 to 100"),
        ("yearly other", "expected a job, or one expression in quotes, such as '0 9 * * MON-FRI'; got 2 arguments"),
    ],
)
def test_options_of_an_expression_are_refused_for_a_job(arguments: str, told: str) -> None:
    code, line = complaint("", "next", *shlex.split(arguments))
    assert code == 2
    assert line.startswith(told)


# The database


@pytest.mark.parametrize("arguments", COMMANDS)
def test_database_that_is_away_or_not_ours_has_its_exit_code(
    tmp_path: Path, empty_database: str, arguments: tuple[str, ...]
) -> None:
    call = asked(arguments, "yearly")
    nowhere = f"postgresql://me:{SECRET}@127.0.0.1:1/forge"
    assert refused(tmp_path, *call, FORGEFLOW_DATABASE_URL=nowhere)[0] == 69
    code, line = refused(tmp_path, *call, FORGEFLOW_DATABASE_URL=empty_database)
    assert (code, line[-len("run `forgeflow migrate`") :]) == (4, "run `forgeflow migrate`")
    assert refused(tmp_path, *call, FORGEFLOW_CONFIG="/dev/null")[0] == 78
    (tmp_path / "bad.ini").write_text("[nonsense]\n")
    assert refused(tmp_path, *call, "--config", "bad.ini")[0] == 78


@pytest.mark.parametrize("arguments", COMMANDS)
def test_database_that_hangs_does_not_hang_the_command(
    tmp_path: Path, database_url: str, arguments: tuple[str, ...]
) -> None:
    began = time.monotonic()
    with Wire(database_url) as wire, wire.broken(Mode.HOLE):
        settings = {"FORGEFLOW_DATABASE_URL": wire.url, "FORGEFLOW_DATABASE_CONNECT_TIMEOUT": "2s"}
        code, _ = refused(tmp_path, *asked(arguments, "yearly"), **settings)
    assert code == 69
    assert time.monotonic() - began < 35


@pytest.mark.parametrize("arguments", COMMANDS)
def test_asking_changes_nothing(database_url: str, connection: Connection, arguments: tuple[str, ...]) -> None:
    job_id = submit(connection, "true", **YEARLY)
    before = get_job(connection, job_id)
    shown(database_url, *asked(arguments, "yearly"))
    assert get_job(connection, job_id) == before
    assert connection.execute("SELECT count(*) FROM ticks").fetchone() == (0,)


# Help


def test_help_has_examples_that_work(tmp_path: Path, database_url: str, connection: Connection) -> None:
    at = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    job_id = submit(connection, "true", name="nightly", cron_expr="30 2 * * *", timezone="Europe/Berlin")
    created_at = at - timedelta(days=1)
    connection.execute("UPDATE jobs SET created_at = %s, next_run_at = %s WHERE id = %s", [created_at, at, job_id])
    examples = [
        line.strip()
        for name in ("next", "explain")
        for line in CliRunner().invoke(cli, [name, "--help"], prog_name="forgeflow").output.splitlines()
        if line.startswith("    forgeflow ")
    ]
    assert len(examples) == 4
    for example in examples:
        line = example.replace("forgeflow", shlex.join(command()), 1).replace("jq -r .outcome", "grep outcome")
        told = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=tmp_path,
            env=environment(FORGEFLOW_DATABASE_URL=database_url),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (told.returncode, told.stderr) == (0, ""), example
        assert told.stdout
