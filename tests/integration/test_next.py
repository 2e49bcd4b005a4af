"""`forgeflow next` as a user starts it."""

import json
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from forgeflow.cli.main import cli
from tests.support.commands import command, environment, refused, run

AUTUMN = "clocks go back on 2026-10-25 from 03:00 to 02:00"
NIGHTLY = ("30 2 * * *", "--tz", "Europe/Berlin", "--after", "2026-10-24T12:00Z")


def shown(folder: Path, *arguments: str) -> list[str]:
    code, output, complaint = run(folder, "next", *arguments)
    assert (code, complaint) == (0, "")
    return output.splitlines()


def test_table_shows_zone_utc_words_notes_and_warnings(tmp_path: Path) -> None:
    assert shown(tmp_path, *NIGHTLY, "--count", "2") == [
        "At 02:30",
        "Europe/Berlin                UTC",
        "Sun 2026-10-25 02:30 +02:00  Sun 2026-10-25 00:30",
        f"    {AUTUMN}: runs once, in the first pass",
        "Mon 2026-10-26 02:30 +01:00  Mon 2026-10-26 01:30",
        f"warning: {AUTUMN}: 02:30 runs once, in the first pass",
        "warning: clocks go forward on 2027-03-28 from 02:00 to 03:00: 02:30 runs at 03:00",
    ]


def test_table_has_one_column_in_utc_and_seconds_when_there_are_some(tmp_path: Path) -> None:
    assert shown(tmp_path, "*/30 0 12 * * *", "--count", "2", "--after", "2026-10-24T12:00Z") == [
        "At 12:00:00 and 12:00:30",
        "UTC",
        "Sat 2026-10-24 12:00:30",
        "Sun 2026-10-25 12:00:00",
        "warning: runs up to 2 times a minute",
    ]


def test_table_is_as_wide_as_its_zone(tmp_path: Path) -> None:
    zone = "America/Argentina/ComodRivadavia"
    assert shown(tmp_path, "@daily", "--tz", zone, "--after", "2026-01-01T12:00Z", "--count", "1")[1:] == [
        f"{zone}  UTC",
        "Fri 2026-01-02 00:00 -03:00       Fri 2026-01-02 03:00",
    ]


def test_offsets_of_old_times_have_seconds(tmp_path: Path) -> None:
    row = shown(tmp_path, "@daily", "--tz", "Europe/Berlin", "--after", "0900-01-01T00:00Z", "--count", "1")[-1]
    assert row == "Sat 0900-01-02 00:00:00 +00:53:28  Fri 0900-01-01 23:06:32"


def test_json_is_the_document_of_the_api(tmp_path: Path) -> None:
    document = json.loads("\n".join(shown(tmp_path, *NIGHTLY, "--count", "1", "--json")))
    assert document.pop("warnings")[0] == f"{AUTUMN}: 02:30 runs once, in the first pass"
    assert document == {
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
                "notes": [f"{AUTUMN}: runs once, in the first pass"],
            }
        ],
    }


def test_zone_count_and_time_have_defaults(tmp_path: Path) -> None:
    document = json.loads("\n".join(shown(tmp_path, "* * * * *", "--json")))
    assert (document["timezone"], len(document["times"])) == ("UTC", 10)
    after = datetime.fromisoformat(document["after"])
    assert timedelta() <= datetime.now(UTC) - after < timedelta(minutes=1)
    assert datetime.fromisoformat(document["times"][0]["at"]) - after <= timedelta(minutes=1)


def test_no_database_and_no_configuration_are_needed(tmp_path: Path) -> None:
    (tmp_path / "bad.ini").write_text("[nonsense]\n")
    code, output, _ = run(
        tmp_path,
        *("next", "@daily", "--json"),
        FORGEFLOW_CONFIG=str(tmp_path / "bad.ini"),
        FORGEFLOW_DATABASE_URL="postgresql://127.0.0.1:1/nowhere",
    )
    assert code == 0
    assert json.loads(output)["description"] == "At 00:00"


def test_expression_imports_nothing_of_the_database() -> None:
    heavy = "{'structlog', 'psycopg', 'pydantic', 'flask', 'forgeflow.config'}"
    script = f"import sys, forgeflow.cli.exits, forgeflow.cli.next; print({heavy} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "set()\n"


def test_schedule_that_is_over_says_so(tmp_path: Path) -> None:
    told = shown(tmp_path, "@yearly", "--after", "9999-06-01T00:00Z")
    assert told[1:] == ["no time is left before the year 10000"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("", "expected a job, or one expression in quotes, such as '0 9 * * MON-FRI'; got none"),
        ("0 9 x y z", "expected a job, or one expression in quotes, such as '0 9 * * MON-FRI'; got 5 arguments"),
        ("'61 * * * *'", '"61" is not a value of the minute field; expected 0 to 59'),
        ("'0 0 31 2 *'", '"0 0 31 2 *" never ticks; expected a day that its months have'),
        ("''", 'the cron expression "" has 0 fields; expected 5, or 6 with the second first'),
        ("'\x1b[31m * * * *'", "the cron expression contains the character U+001B;"),
        ("'* * * * *é'", "the cron expression contains the character U+00E9;"),
        (f"'{'1,' * 5000} * * * *'", "the cron expression has 10008 characters; expected at most 256"),
        ("@daily --tz Mars/Olympus", 'the time zone "Mars/Olympus" is not known on every machine;'),
        ("@daily --tz ''", "the time zone must be an IANA name such as Europe/Berlin"),
        *[
            (f"@daily --count '{count}'", "--count: expected a whole number from 1 to 100")
            for count in ("0", "101", "-1", "x", "", "1.5", "1_0", "٣", "9" * 5000)
        ],
        *[
            (f"@daily --after '{after}'", "--after: expected a")
            for after in ("", "now", "2026-10-24", "2026-10-24T12:00", "2026-02-30T00:00Z", "9999-12-31T23:59-12:00")
        ],
    ],
)
def test_bad_input_is_2_and_one_line(tmp_path: Path, arguments: str, told: str) -> None:
    code, line = refused(tmp_path, "next", *shlex.split(arguments))
    assert code == 2
    assert line.startswith(told)
    assert len(line) < 250


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        ("'0 9 * * MONDAY-FRIDAY'", "did you mean MON-FRI?"),
        ("@dayly", "did you mean @daily?"),
        ("@daily --tz europe/berlin", "such as Europe/Berlin"),
    ],
)
def test_a_near_spelling_is_suggested(tmp_path: Path, arguments: str, near: str) -> None:
    code, line = refused(tmp_path, "next", *shlex.split(arguments))
    assert code == 2
    assert near in line


def test_help_has_an_example_that_works(tmp_path: Path) -> None:
    told = CliRunner().invoke(cli, ["next", "--help"], prog_name="forgeflow").output
    example, _ = [line.strip() for line in told.splitlines() if line.startswith("    forgeflow next")]
    lines = shown(tmp_path, *shlex.split(example)[2:])
    assert lines[0] == "At 02:30"
    assert len([line for line in lines if line[:3] in ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]]) == 3


def test_help_imports_little() -> None:
    """What takes time when a command starts is what it imports."""
    script = (
        "import sys, click\nfrom forgeflow.cli.main import cli\n"
        "cli(['next', '--help'], standalone_mode=False)\n"
        "print(sorted(name for name in sys.modules if name.startswith('forgeflow')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "['forgeflow', 'forgeflow.cli', 'forgeflow.cli.main']\n"


def test_reader_that_goes_away_is_no_failure(tmp_path: Path) -> None:
    script = f"{shlex.join(command('next', '* * * * *', '--count', '100'))} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("Every minute\n0\n", "")
