"""`check-config`, `doctor` and `ping` as a user has them, on a real PostgreSQL."""

import json
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from forgeflow.store.connection import Connection
from forgeflow.store.nodes import node_leases
from forgeflow.store.schema import migrations, record_migration
from tests.support.commands import SECRET, command, environment, run
from tests.support.waiting import wait_for
from tests.support.wire import Mode, Wire
from tests.support.work import beat

NOWHERE = f"postgresql://me:{SECRET}@127.0.0.1:1/forge"
NO_CONFIG = {"FORGEFLOW_CONFIG": "/dev/null"}


def lines_of(output: str, verdict: str) -> list[str]:
    return [line.removeprefix(verdict).strip() for line in output.splitlines() if line.startswith(verdict)]


# check-config


def test_check_config_tells_file_environment_and_what_differs(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/forgeflow.ini").write_text(
        f"[database]\nurl = postgresql://file:{SECRET}@db/forge\n"
        "[worker]\nconcurrency = 3\npoll_interval = 1s\nfence_grace = 201ms\n"
    )
    code, output, complaint = run(
        tmp_path,
        "check-config",
        FORGEFLOW_DATABASE_URL=f"postgresql://me:{SECRET}@db/forge",
        FORGEFLOW_WORKER_ID="a\x9b",
    )
    assert (code, complaint) == (0, "")
    assert output.startswith("file: conf/forgeflow.ini (named by the search)\n")
    by_file, _, by_environment = output.partition("environment:\n")
    assert "  database.url = host=db user=file dbname=forge password=*** (default none; beaten by" in by_file
    assert "  worker.concurrency = 3 (default 8; beaten by FORGEFLOW_CONCURRENCY)\n" in by_file
    assert "poll_interval" not in output
    assert "  FORGEFLOW_DATABASE_URL: database.url = host=db user=me dbname=forge password=*** (default none)" in (
        by_environment
    )
    assert "  FORGEFLOW_WORKER_ID: worker.id = a\\x9b (default none)" in by_environment
    assert "  FORGEFLOW_WORKER_LEASE_DURATION: worker.lease_duration = 2s (default 30s)\n" in by_environment
    assert output.endswith("A node would start with this configuration.\n")


def test_check_config_without_a_file_says_so(tmp_path: Path) -> None:
    code, output, _ = run(tmp_path, "check-config", FORGEFLOW_DATABASE_URL="postgresql://db/forge")
    if not Path("/etc/forgeflow/forgeflow.ini").exists():
        assert (code, output.splitlines()[0]) == (0, "file: none was found")


def test_check_config_as_json(tmp_path: Path) -> None:
    file = tmp_path / "x.ini"
    file.write_text(f"[database]\nurl = postgresql://me:{SECRET}@db/forge\n[log]\nlevel = debug\n")
    code, output, _ = run(tmp_path, "check-config", "--json", "--config", str(file))
    document = json.loads(output)
    assert code == 0
    assert (document["is_valid"], document["file"], document["named_by"]) == (True, str(file), "--config")
    settings = {setting["key"]: setting for setting in document["settings"]}
    assert settings["log.level"] == {
        "key": "log.level",
        "value": "debug",
        "default": "info",
        "origin": str(file),
        "beaten_by": None,
    }
    code, output, complaint = run(tmp_path, "check-config", "--json", FORGEFLOW_LOG_LEVEL="loud")
    assert code == 78
    assert json.loads(output)["problems"][0].startswith("log.level (FORGEFLOW_LOG_LEVEL): expected")
    assert complaint.startswith("forgeflow: log.level")


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@db/forge",
        f"postgresql://db/forge?user=me&password={SECRET}",
        f"host=db user=me password='{SECRET}'",
        f"postgresql://db/forge?sslpassword={SECRET}",
        f"postgresql://me:{SECRET}@db/forge?nope=1",
        f"postgresql://me:{SECRET}@db@x/forge",
    ],
)
@pytest.mark.parametrize("arguments", [("check-config",), ("check-config", "--json")])
def test_check_config_never_shows_a_password(tmp_path: Path, url: str, arguments: tuple[str, ...]) -> None:
    code, _, _ = run(tmp_path, *arguments, FORGEFLOW_DATABASE_URL=url)  # which looks for the secret
    assert code == (78 if "nope" in url or "@x" in url else 0)


def test_check_config_tells_each_wrong_key_on_its_own_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.ini"
    file.write_text(f"[worker]\nconcurency = {SECRET}\nspawn_timeout = {SECRET}\n")
    code, output, complaint = run(tmp_path, "check-config", "--config", str(file), FORGEFLOW_LOG_LEVEL=SECRET)
    assert (code, output) == (78, "")
    first, *others = sorted(complaint.splitlines())
    assert first == f"forgeflow: {file}: unknown key worker.concurency; did you mean concurrency?"
    assert [line.partition(" (")[0] for line in others] == ["forgeflow: log.level", "forgeflow: worker.spawn_timeout"]


def test_check_config_refuses_what_a_node_refuses(tmp_path: Path) -> None:
    code, output, complaint = run(tmp_path, "check-config", FORGEFLOW_ROLES="api,worker")
    assert (code, output) == (78, "")
    no_url, roles = complaint.splitlines()
    assert no_url.startswith("forgeflow: no database is configured")
    assert roles.startswith("forgeflow: server.roles has api")


def test_check_config_touches_no_database(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"postgresql://me:{SECRET}@127.0.0.1:{server.getsockname()[1]}/forge"
        assert run(tmp_path, "check-config", FORGEFLOW_DATABASE_URL=url)[0] == 0
        with pytest.raises(BlockingIOError):
            server.accept()


# doctor


def test_doctor_finds_nothing_wrong_with_a_migrated_database(tmp_path: Path, database_url: str) -> None:
    code, output, complaint = run(tmp_path, "doctor", FORGEFLOW_DATABASE_URL=database_url)
    assert (code, complaint) == (0, "")
    names = [line[9:].partition(":")[0] for line in output.splitlines() if line[:9].strip()][:-1]
    assert names == [
        "configuration",
        "database",
        "server version",
        "primary",
        "direct connection",
        "schema",
        "leader",
        "workers",
        "nodes",
        "clock",
        "durability",
        "transactions",
        "connections",
        "intervals",
        "open files",
        "processes",
        "time zones",
    ]
    assert lines_of(output, "failed") == []
    # The tests' server forgets what it commits, their intervals are tight, and there is no node.
    warned = {line.partition(":")[0] for line in lines_of(output, "warning")}
    assert warned - {"open files", "processes"} == {"leader", "workers", "durability", "intervals"}
    assert output.count("cure: ") == output.count("\nwarning ")


def test_doctor_changes_nothing(tmp_path: Path, database_url: str, connection: Connection) -> None:
    """Neither a row nor so much as a transaction that could have written one: the log of the server stands still."""
    beat(connection, "gone", lease_seconds=-60.0)
    connection.execute("CHECKPOINT")
    before = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())").fetchone()
    assert run(tmp_path, "doctor", FORGEFLOW_DATABASE_URL=database_url)[0] == 0
    assert run(tmp_path, "ping", "--node", "gone", FORGEFLOW_DATABASE_URL=database_url)[0] == 1
    assert connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())").fetchone() == before
    assert connection.execute("SELECT count(*) FROM nodes").fetchone() == (1,)


def test_doctor_as_json(tmp_path: Path, database_url: str) -> None:
    code, output, _ = run(tmp_path, "doctor", "--json", FORGEFLOW_DATABASE_URL=database_url)
    document = json.loads(output)
    assert (code, document["exit_code"]) == (0, 0)
    checks = {check["name"]: check for check in document["checks"]}
    assert checks["schema"] == {
        "name": "schema",
        "verdict": "ok",
        "found": f"forgeflow is at version {migrations()[-1].version}, as this ForgeFlow is",
        "cure": "",
    }
    assert checks["leader"]["verdict"] == "warning"


def test_doctor_of_an_unmigrated_database_names_the_cure(tmp_path: Path, empty_database: str) -> None:
    code, output, _ = run(tmp_path, "doctor", FORGEFLOW_DATABASE_URL=empty_database)
    assert code == 1
    assert lines_of(output, "failed") == ["schema: the database lacks schema version 1"]
    assert "cure: Run `forgeflow migrate`.\n" in output
    assert "ok       connections:" in output
    assert "leader" not in output


def test_doctor_of_a_newer_schema_fails(tmp_path: Path, database_url: str, connection: Connection) -> None:
    record_migration(connection, version=9999, name="future", checksum="unknown")
    code, output, _ = run(tmp_path, "doctor", FORGEFLOW_DATABASE_URL=database_url)
    assert code == 1
    (failed,) = lines_of(output, "failed")
    assert failed.startswith("schema: the database has schema version 9999, this ForgeFlow knows")
    assert "cure: Update ForgeFlow on this machine" in output
    assert "warning  leader:" in output


def test_doctor_of_an_unreachable_database_is_69_and_makes_the_other_checks(tmp_path: Path) -> None:
    code, output, complaint = run(tmp_path, "doctor", FORGEFLOW_DATABASE_URL=NOWHERE)
    assert (code, complaint) == (69, "")
    (failed,) = lines_of(output, "failed")
    assert failed.startswith("database: cannot connect to the database: ")
    assert "cure: Start the server, or correct host and port in database.url.\n" in output
    assert "time zones:" in output
    assert "intervals:" in output


def test_doctor_with_a_wrong_password_says_so_without_it(tmp_path: Path, database_url: str) -> None:
    wrong = make_conninfo(database_url, password=SECRET)
    code, output, _ = run(tmp_path, "doctor", FORGEFLOW_DATABASE_URL=wrong)
    assert code == 69
    assert "password authentication failed" in output
    assert "cure: Correct user and password in database.url" in output


def test_doctor_of_an_invalid_configuration_is_78_and_makes_the_other_checks(tmp_path: Path, database_url: str) -> None:
    code, output, complaint = run(tmp_path, "doctor", FORGEFLOW_CONCURRENCY="many", FORGEFLOW_LOG_LEVEL="loud")
    assert (code, complaint) == (78, "")
    assert [line.partition(" (")[0] for line in lines_of(output, "failed")] == [
        "configuration: worker.concurrency",
        "configuration: log.level",
    ]
    assert "time zones:" in output
    code, output, _ = run(tmp_path, "doctor", FORGEFLOW_ROLES="api", FORGEFLOW_DATABASE_URL=database_url)
    assert code == 78
    assert "ok       schema:" in output


def test_doctor_without_a_database_configured_is_78(tmp_path: Path) -> None:
    code, output, _ = run(tmp_path, "doctor", **NO_CONFIG)
    assert code == 78
    assert "failed   configuration: no database is configured" in output
    assert "intervals:" in output


def test_doctor_of_a_role_with_too_few_connections_fails(tmp_path: Path, poor_role: str) -> None:
    code, output, _ = run(tmp_path, "doctor", FORGEFLOW_DATABASE_URL=poor_role)
    assert code == 1
    assert lines_of(output, "failed") == ["connections: 3 left by the role's CONNECTION LIMIT; this node needs 4"]


def test_role_that_may_read_nothing_is_told_so(tmp_path: Path, poor_role: str, connection: Connection) -> None:
    user = sql.Identifier(str(conninfo_to_dict(poor_role)["user"]))
    connection.execute(sql.SQL("REVOKE SELECT ON forgeflow.nodes FROM {}").format(user))
    code, output, _ = run(tmp_path, "doctor", FORGEFLOW_DATABASE_URL=poor_role)
    assert code == 1
    assert "failed   nodes: the database refused a statement: permission denied for table nodes\n" in output
    assert "connections:" in output


def test_doctor_of_a_locked_table_ends_in_time(tmp_path: Path, database_url: str, connection: Connection) -> None:
    begun = time.monotonic()
    with connection.transaction():
        connection.execute("LOCK TABLE nodes")
        code, output, _ = run(tmp_path, "doctor", FORGEFLOW_DATABASE_URL=database_url)
    assert time.monotonic() - begun < 15
    assert code == 1
    (failed,) = lines_of(output, "failed")
    assert failed.startswith("nodes: the database undid a statement in favour of another: ")
    assert "ok       connections:" in output


@pytest.mark.parametrize(
    ("arguments", "variables", "code"),
    [
        ("check-config", {"FORGEFLOW_DATABASE_URL": NOWHERE}, 0),
        ("check-config --json", {}, 78),
        ("doctor", {"FORGEFLOW_DATABASE_URL": NOWHERE}, 69),
        ("ping", {"FORGEFLOW_DATABASE_URL": NOWHERE}, 69),
    ],
)
@pytest.mark.parametrize(
    "streams", [">/dev/full 2>&1", "2>/dev/full", ">&- 2>&-", "2>&1 | true; exit ${PIPESTATUS[0]}"]
)
def test_output_that_nobody_takes_changes_no_exit_code(
    tmp_path: Path, arguments: str, variables: dict[str, str], code: int, streams: str
) -> None:
    line = f"{shlex.join(command())} {arguments} {streams}"
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=tmp_path,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr + done.stdout


def test_interrupted_doctor_is_130_and_quiet(tmp_path: Path, database_url: str) -> None:
    with Wire(database_url) as wire, wire.broken(Mode.HOLE):
        doctor = subprocess.Popen(
            command("doctor"),
            cwd=tmp_path,
            env=environment(FORGEFLOW_DATABASE_URL=wire.url),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        wait_for(lambda: wire.connections, why="doctor connects")
        doctor.send_signal(signal.SIGINT)
        assert doctor.communicate(timeout=20) == (b"", b"")
    assert doctor.returncode == 130


# ping


def test_ping_of_nobody_is_1(tmp_path: Path, database_url: str) -> None:
    code, output, complaint = run(tmp_path, "ping", FORGEFLOW_DATABASE_URL=database_url)
    assert (code, output, complaint) == (1, f"no node is on host {socket.gethostname()}\n", "")
    code, output, _ = run(tmp_path, "ping", FORGEFLOW_DATABASE_URL=database_url, FORGEFLOW_WORKER_ID="a")
    assert (code, output) == (1, "no node is called a\n")


def test_ping_finds_a_node_by_configuration_host_and_option(
    tmp_path: Path, database_url: str, connection: Connection
) -> None:
    beat(connection, "far-1")
    beat(connection, "€\x1b[2J", hostname=socket.gethostname())
    assert run(tmp_path, "ping", FORGEFLOW_DATABASE_URL=database_url, FORGEFLOW_WORKER_ID="far-1")[0] == 0
    code, output, _ = run(tmp_path, "ping", FORGEFLOW_DATABASE_URL=database_url, PYTHONIOENCODING="latin-1")
    assert code == 0
    assert output.startswith(f"node \\u20ac\\x1b[2J (host {socket.gethostname()}, pid 7) lives: its lease has ")
    code, output, _ = run(
        tmp_path,
        *("ping", "--node", "far-1", "--json"),
        FORGEFLOW_DATABASE_URL=database_url,
        FORGEFLOW_WORKER_ID="other",
    )
    document = json.loads(output)
    assert (code, document["lives"]) == (0, True)
    (node,) = document["nodes"]
    assert (node["worker_id"], node["hostname"], node["pid"]) == ("far-1", "elsewhere", 7)
    assert 30 < node["lease_seconds"] <= 60


def test_ping_of_a_passed_lease_is_1(tmp_path: Path, database_url: str, connection: Connection) -> None:
    beat(connection, "far-1", lease_seconds=-12.0)
    code, output, _ = run(tmp_path, "ping", "--node", "far-1", FORGEFLOW_DATABASE_URL=database_url)
    assert code == 1
    assert output.startswith("no node that is called far-1 lives: the lease of far-1 (host elsewhere, pid 7) passed 1")
    beat(connection, "far-1")  # started again under its name
    assert run(tmp_path, "ping", "--node", "far-1", FORGEFLOW_DATABASE_URL=database_url)[0] == 0
    assert [lease.lease_seconds > 0 for lease in node_leases(connection, worker_id=None, hostname=None)] == [
        True,
        False,
    ]


def test_ping_of_a_newer_schema_still_answers(tmp_path: Path, database_url: str, connection: Connection) -> None:
    """While a fleet is updated, a node of the old version lives on."""
    record_migration(connection, version=9999, name="future", checksum="unknown")
    beat(connection, "far-1")
    assert run(tmp_path, "ping", "--node", "far-1", FORGEFLOW_DATABASE_URL=database_url)[0] == 0


def test_ping_of_an_unreachable_database_is_69(tmp_path: Path) -> None:
    code, output, complaint = run(tmp_path, "ping", FORGEFLOW_DATABASE_URL=NOWHERE)
    assert (code, output) == (69, "")
    assert complaint.startswith("forgeflow: cannot connect to the database: ")


def test_ping_of_an_unmigrated_database_is_4(tmp_path: Path, empty_database: str) -> None:
    code, output, complaint = run(tmp_path, "ping", FORGEFLOW_DATABASE_URL=empty_database)
    assert (code, output) == (4, "")
    assert "run `forgeflow migrate`" in complaint


@pytest.mark.parametrize("timeout", ["5", "0s", "-1s", "1h", "soon"])
def test_ping_with_a_wrong_timeout_is_2(tmp_path: Path, timeout: str) -> None:
    code, output, complaint = run(tmp_path, "ping", "--timeout", timeout, FORGEFLOW_DATABASE_URL=NOWHERE)
    assert (code, output) == (2, "")
    assert complaint.startswith("forgeflow: --timeout: expected a duration")


def test_ping_imports_little() -> None:
    """It runs every few seconds on every node."""
    heavy = "{'structlog', 'flask', 'croniter', 'forgeflow.service.doctor', 'forgeflow.store.schema'}"
    script = f"import sys, forgeflow.cli.main, forgeflow.cli.ping; print({heavy} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "set()\n"
