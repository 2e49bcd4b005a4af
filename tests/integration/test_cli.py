"""The command line: what it says, its exit codes, and that it never shows a traceback or a password."""

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from forgeflow import __version__
from forgeflow.cli.exits import exit_with
from forgeflow.cli.main import cli
from forgeflow.store.connection import connect
from forgeflow.store.schema import record_migration
from tests.support.commands import SECRET, command, environment, refused, run
from tests.support.databases import config_for
from tests.support.waiting import wait_for

COMMANDS = sorted(cli.commands)
SERVERS = ("up", "master", "web", "migrate")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture
def nowhere(free_port: int) -> str:
    """The URL of a server that is not there."""
    return f"postgresql://me:{SECRET}@127.0.0.1:{free_port}/forge"


# Help


@pytest.mark.parametrize("arguments", [(), *((name,) for name in COMMANDS)])
def test_help_is_whole_and_fits_a_terminal(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*arguments, "-h"], prog_name="forgeflow")
    assert result.exit_code == 0
    assert result.output.startswith("Usage: forgeflow")
    assert "..." not in result.output.replace("[ARGS]...", "")
    assert max(map(len, result.output.splitlines())) <= 80


def test_version(tmp_path: Path) -> None:
    assert run(tmp_path, "version") == (0, f"{__version__}\n", "")
    assert run(tmp_path, "--version") == (0, f"forgeflow {__version__}\n", "")


def test_help_imports_little() -> None:
    heavy = "{'pydantic', 'structlog', 'psycopg', 'flask', 'forgeflow.config'}"
    script = f"import sys, forgeflow.cli.main; print({heavy} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "set()\n"


@pytest.mark.parametrize("arguments", [(), ("nope",), ("up", "--nope"), ("web", "extra")])
def test_wrong_usage_is_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, output, complaint = run(tmp_path, *arguments)
    assert (code, output) == (2, "")
    assert complaint.startswith("Usage: forgeflow")


# Configuration


@pytest.mark.parametrize("name", SERVERS)
def test_bad_key_is_78_and_names_the_nearest(tmp_path: Path, name: str) -> None:
    file = tmp_path / "bad.ini"
    file.write_text(f"[worker]\nconcurency = {SECRET}\n")
    assert refused(tmp_path, name, "--config", str(file)) == (
        78,
        f"configuration refused: {file}: unknown key worker.concurency; did you mean concurrency?",
    )


@pytest.mark.parametrize("name", SERVERS)
def test_malformed_url_is_78(tmp_path: Path, name: str) -> None:
    code, told = refused(tmp_path, name, FORGEFLOW_DATABASE_URL=f"postgresql://me:{SECRET}@x@db/forge")
    assert code == 78
    assert "database.url (FORGEFLOW_DATABASE_URL): expected a libpq URL" in told


@pytest.mark.parametrize("name", ["master", "web", "migrate"])
def test_no_database_is_78_and_says_what_to_do(tmp_path: Path, name: str) -> None:
    code, told = refused(tmp_path, name)
    assert code == 78
    assert "FORGEFLOW_DATABASE_URL" in told
    assert "forgeflow up" in told


def test_api_is_no_role_of_a_node(tmp_path: Path, nowhere: str) -> None:
    code, told = refused(tmp_path, "master", FORGEFLOW_DATABASE_URL=nowhere, FORGEFLOW_ROLES="api,worker")
    assert (code, told[:12]) == (78, "server.roles")
    code, told = refused(tmp_path, "up", FORGEFLOW_DATABASE_URL=nowhere, FORGEFLOW_ROLES="api")
    assert (code, told[:12]) == (78, "server.roles")


@pytest.mark.parametrize("name", ["up", "migrate"])
def test_unreachable_server_is_69(tmp_path: Path, nowhere: str, taken_port: int, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    code, told = refused(tmp_path, name, FORGEFLOW_DATABASE_URL=nowhere, FORGEFLOW_LISTEN_ADDR=f"127.0.0.1:{port}")
    assert code == 69
    assert "cannot connect to the database" in told


@pytest.mark.parametrize("name", ["up", "web"])
def test_taken_port_is_75_and_says_what_to_do(tmp_path: Path, nowhere: str, taken_port: int, name: str) -> None:
    listen = f"127.0.0.1:{taken_port}"
    code, told = refused(tmp_path, name, FORGEFLOW_DATABASE_URL=nowhere, FORGEFLOW_LISTEN_ADDR=listen)
    assert code == 75
    assert told.startswith(f"{listen} is taken: stop the other program or choose")


@pytest.mark.parametrize("host", ["", "[::]", "127.1"])
@pytest.mark.parametrize("name", ["up", "web"])
def test_address_that_others_reach_is_78(tmp_path: Path, nowhere: str, free_port: int, name: str, host: str) -> None:
    listen = f"{host}:{free_port}"
    code, told = refused(tmp_path, name, FORGEFLOW_DATABASE_URL=nowhere, FORGEFLOW_LISTEN_ADDR=listen)
    assert code == 78
    assert "auth.mode = off (FORGEFLOW_AUTH_MODE=off)" in told


# Schema


def test_migrate_brings_the_schema_and_may_be_repeated(tmp_path: Path, empty_database: str) -> None:
    code, output, _ = run(tmp_path, "migrate", FORGEFLOW_DATABASE_URL=empty_database)
    assert code == 0
    assert output.startswith("applied 0001_jobs_and_runs\n")
    assert output.endswith("schema forgeflow is current\n")
    code, output, _ = run(tmp_path, "migrate", FORGEFLOW_DATABASE_URL=empty_database)
    assert (code, output) == (0, "schema forgeflow is current\n")


@pytest.mark.parametrize("name", ["up", "migrate"])
def test_newer_schema_is_4(tmp_path: Path, database_url: str, free_port: int, name: str) -> None:
    connection = connect(config_for(database_url), "test")
    record_migration(connection, version=9999, name="future", checksum="unknown")
    connection.close()
    listen = f"127.0.0.1:{free_port}"
    code, told = refused(tmp_path, name, FORGEFLOW_DATABASE_URL=database_url, FORGEFLOW_LISTEN_ADDR=listen)
    assert code == 4
    assert "the database has schema version 9999" in told


def test_master_with_an_unmigrated_database_is_3_and_says_what_to_do(tmp_path: Path, empty_database: str) -> None:
    code, _, log = run(tmp_path, "master", FORGEFLOW_DATABASE_URL=empty_database)
    events = [json.loads(line) for line in log.splitlines()]
    assert code == 3
    reasons = {event["reason"] for event in events if event["event"] == "courier cannot boot"}
    assert len(reasons) == 1
    assert "run `forgeflow migrate`" in reasons.pop()
    assert "node cannot go on" in [event["event"] for event in events]


# The web process serves


@contextmanager
def serving(folder: Path, listen: str, url: str, **variables: str) -> Iterator[str]:
    """`forgeflow web` until the block ends; yields where it serves.  It must end with 0 and quietly."""
    # One worker: gunicorn's word to stop is lost on a worker that it is just forking.
    chosen = {"FORGEFLOW_DATABASE_URL": url, "FORGEFLOW_LISTEN_ADDR": listen, "FORGEFLOW_SERVER_WORKERS": "1"}
    settings = environment(**chosen, **variables)
    log = folder / "web.log"
    with log.open("w") as stderr:
        web = subprocess.Popen(command("web"), cwd=folder, env=settings, stderr=stderr)
    address = f"http://127.0.0.1:{listen.rpartition(':')[2]}"
    try:
        wait_for(lambda: web.poll() is not None or get(f"{address}/healthz")[0] == 200, why="healthz")
        yield address
    finally:
        web.send_signal(signal.SIGTERM)
        code = web.wait(timeout=20)
    assert code == 0
    assert "Traceback" not in log.read_text()
    assert SECRET not in log.read_text()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def test_web_starts_with_an_unmigrated_database_and_says_so(
    tmp_path: Path, empty_database: str, free_port: int
) -> None:
    with serving(tmp_path, f"127.0.0.1:{free_port}", empty_database) as address:
        status, body = get(f"{address}/readyz")
    assert status == 503
    assert "run `forgeflow migrate`" in body


def test_web_starts_without_its_database_and_says_so(tmp_path: Path, nowhere: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    calm = {"FORGEFLOW_DATABASE_CONNECT_TIMEOUT": "1s"}
    with serving(tmp_path, f"127.0.0.1:{port}", nowhere, **calm) as address:
        status, body = get(f"{address}/readyz")
    assert status == 503
    assert "reasons" in body
    assert SECRET not in body


def test_web_serves_elsewhere_when_told_so_on_purpose(tmp_path: Path, database_url: str, free_port: int) -> None:
    """127.1 is loopback, but no address that the check knows as such: the test must not open the machine."""
    with serving(tmp_path, f"127.1:{free_port}", database_url, FORGEFLOW_AUTH_MODE="off") as address:
        assert get(f"{address}/readyz")[0] == 200


def test_interrupt_while_starting_is_130_and_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as exit_info:
        exit_with(interrupted)
    assert exit_info.value.code == 130
    assert capsys.readouterr() == ("", "")
