"""The shipped units under a real systemd, which a namespace of its own makes PID 1.

The files of contrib are changed by a drop-in only: intervals, and what this machine's folders need.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from forgeflow.store.connection import Connection
from tests.fault.conftest import FAILED
from tests.support.systemd import SEEN, Systemd, Unit, booted
from tests.support.waiting import wait_for
from tests.support.web import WebServer, free_port
from tests.support.wire import Wire
from tests.support.work import Beacon, only_run, submit, wait_for_status

# Longer than in the other tests: a watchdog must not take a busy machine for a frozen master.
LEASE_SECONDS, MARGIN_SECONDS = 6.0, 1.0
INI = f"""
[worker]
concurrency = 2
lease_duration = {LEASE_SECONDS:g}s
heartbeat_interval = 1s
statement_deadline = 900ms
recovery_interval = 500ms
fence_margin = {MARGIN_SECONDS:g}s
fence_grace = 500ms
[scheduler]
campaign_interval = 500ms
[retry]
base = 1ms
[database]
connect_timeout = 1s
"""
MASTER = ["WatchdogSec=2s", "RestartSec=100ms", "TimeoutStopSec=1s"]


@pytest.fixture(scope="module")
def systemd() -> Iterator[Systemd]:
    with booted() as machine:
        yield machine


@pytest.fixture
def wire(database_url: str) -> Iterator[Wire]:
    """To the database, for every user."""
    with Wire(database_url) as opened:
        folder_of(opened).chmod(0o755)
        let_in(opened, 0o666)
        yield opened


def folder_of(wire: Wire) -> Path:
    return Path(str(conninfo_to_dict(wire.url)["host"]))


def let_in(wire: Wire, mode: int) -> None:
    """Whom it lets connect; nobody but root with mode 0."""
    for socket in folder_of(wire).iterdir():
        socket.chmod(mode)


@pytest.fixture
def configure(systemd: Systemd, wire: Wire) -> Callable[[str], None]:
    """Write the INI; the database stands in the file for secrets."""
    systemd.path("/etc/forgeflow/environment").write_text(f'FORGEFLOW_DATABASE_URL="{wire.url}"\n')

    def write(text: str) -> None:
        systemd.path("/etc/forgeflow/forgeflow.ini").write_text(text)

    write(INI)
    return write


@pytest.fixture
def units(
    systemd: Systemd, configure: Callable[[str], None], request: pytest.FixtureRequest
) -> Iterator[Callable[..., Unit]]:
    """Makes a unit; at the end it is stopped, and its journal shown when the test has failed."""
    made: list[Unit] = []

    def make(name: str, changes: list[str]) -> Unit:
        made.append(Unit(systemd, name, changes))
        return made[-1]

    yield make
    for unit in made:
        if request.node.stash.get(FAILED, False):
            sys.stderr.write(f"---- {unit.name}\n{unit.do('show')}\n{unit.journal()}\n")
        unit.end()


@pytest.fixture
def master(units: Callable[..., Unit]) -> Unit:
    return units("forgeflow-master", MASTER)


@pytest.fixture
def node(master: Unit) -> Unit:
    """Started."""
    master.do("start")
    return master


@pytest.fixture
def port() -> int:
    return free_port()


def readiness(port: int) -> int:
    return WebServer(port, 0, Path()).get("/readyz").status


@pytest.fixture
def web(units: Callable[..., Unit], wire: Wire, port: int) -> Unit:
    """Its sandbox has neither /tmp nor homes, where tests keep their database, and some machines Python."""
    shown = [*map(str, SEEN), str(folder_of(wire))]
    return units(
        "forgeflow-web",
        [
            "ProtectHome=tmpfs",
            *(f"BindReadOnlyPaths={path}" for path in shown),
            f"Environment=FORGEFLOW_LISTEN_ADDR=127.0.0.1:{port} FORGEFLOW_SERVER_WORKERS=1",
        ],
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    """For jobs, which are not root here."""
    with tempfile.TemporaryDirectory(prefix="forgeflow-jobs-") as made:
        yield Path(made)


def test_start_returns_when_a_worker_is_ready(master: Unit, connection: Connection) -> None:
    master.do("start")
    assert connection.execute("SELECT count(*) > 0 FROM workers").fetchone() == (True,)
    master.wait_for("StatusText", "running: 2 workers, 0 busy")


def test_start_waits_for_the_database(master: Unit, wire: Wire) -> None:
    let_in(wire, 0)
    master.do("start", "--no-block")
    master.wait_for_journal("courier has no database")
    master.wait_for("StatusText", "starting")
    assert master.show("ActiveState") == "activating"
    let_in(wire, 0o666)
    master.wait_for("ActiveState", "active")


def test_reload_makes_a_new_configuration_hold(
    node: Unit, connection: Connection, configure: Callable[[str], None]
) -> None:
    before = node.show("MainPID")
    configure(f"{INI}[executor.shell]\nworkdir = /usr\n")
    node.do("reload")
    node.wait_for_journal("configuration reloaded")
    node.wait_for("ActiveState", "active")
    # The reload is over when the new generation is taken on; an old worker may still take a run before it goes.
    wait_for(lambda: not any("generation 1" in said for said in node.processes().values()))
    assert wait_for_status(connection, submit(connection, "pwd"), "succeeded").output_head == "/usr\n"
    assert node.show("MainPID") == before


def test_broken_reload_leaves_the_unit_up_and_says_why(
    node: Unit, connection: Connection, configure: Callable[[str], None]
) -> None:
    before = node.show("MainPID")
    configure("[worker]\nconcurency = 2\n")
    node.do("reload")
    node.wait_for("StatusText", "reload failed: configuration refused")
    assert "did you mean concurrency?" in node.show("StatusText")
    node.wait_for("ActiveState", "active")
    wait_for_status(connection, submit(connection, "true"), "succeeded")
    configure(INI)
    node.do("reload")
    wait_for(lambda: "reload failed" not in node.show("StatusText"))
    assert (node.show("ActiveState"), node.show("MainPID")) == ("active", before)


def test_stop_lets_a_running_job_finish_and_leaves_nothing(node: Unit, connection: Connection) -> None:
    """For longer than TimeoutStopSec."""
    job_id = submit(connection, "sleep 2; echo unharmed")
    wait_for_status(connection, job_id, "running")
    node.do("stop")
    run = only_run(connection, job_id)
    assert (run.status, run.attempt, run.output_head) == ("succeeded", 1, "unharmed\n")
    assert (node.show("ActiveState"), node.show("Result"), node.show("ExecMainStatus")) == ("inactive", "success", "0")
    assert node.processes() == {}


def start_beacon(node: Unit, connection: Connection, folder: Path) -> tuple[Beacon, Callable[[], str]]:
    """A job that ignores TERM and has a daemon; returns a function that waits for its second try's output."""
    beacon = Beacon(folder)
    daemon = "setsid -f sleep 4321 >/dev/null 2>&1 </dev/null"
    job_id = submit(connection, f"test -e {folder}/beacon || {daemon}; {beacon.command}")
    wait_for(beacon.is_lit)
    assert node.process("sleep 4321")

    def wait_for_end() -> str:
        run = wait_for_status(connection, job_id, "succeeded")
        assert (run.attempt, run.failures) == (2, 1)
        return run.output_head

    return beacon, wait_for_end


def test_killed_master_leaves_nothing_and_is_restarted(node: Unit, connection: Connection, folder: Path) -> None:
    _, output_of_second_try = start_beacon(node, connection, folder)
    before = node.processes()
    node.signal("KILL")
    wait_for(lambda: node.show("NRestarts") == "1")
    assert not [said for pid, said in before.items() if Path(f"/proc/{pid}").exists()]
    assert output_of_second_try() == "again\n"
    assert not set(before) & set(node.processes())


def test_frozen_master_is_killed_before_its_lease_can_pass(node: Unit, connection: Connection, folder: Path) -> None:
    beacon, output_of_second_try = start_beacon(node, connection, folder)
    before = node.processes()
    node.signal("STOP")
    # What its courier has been ordered by then only makes this later.
    (lease_end,) = connection.execute(
        "SELECT extract(epoch FROM max(lease_expires_at))::float8 FROM workers"
    ).fetchone()  # type: ignore[misc]
    wait_for(lambda: node.show("NRestarts") == "1")
    assert not [said for pid, said in before.items() if Path(f"/proc/{pid}").exists()]
    # Not by the worker's own fence.
    assert beacon.last_seen() < lease_end - MARGIN_SECONDS
    assert output_of_second_try() == "again\n"


def test_killed_job_leaves_the_unit_up(node: Unit, connection: Connection) -> None:
    before = node.show("MainPID")
    job_id = submit(connection, "exec sleep 4321", max_attempts=1)
    os.kill(node.process("sleep 4321"), signal.SIGKILL)
    wait_for_status(connection, job_id, "dead")
    wait_for_status(connection, submit(connection, "true"), "succeeded")
    assert (node.show("ActiveState"), node.show("MainPID"), node.show("NRestarts")) == ("active", before, "0")


def test_job_out_of_memory_dies_alone(units: Callable[..., Unit], connection: Connection) -> None:
    """The whole unit has one limit, and the kernel chooses."""
    node = units("forgeflow-master", [*MASTER, "MemoryMax=300M", "MemorySwapMax=0"])
    node.do("start")
    limits = [node.control_group("memory") / name for name in ("memory.max", "memory.limit_in_bytes")]
    if not any(limit.exists() for limit in limits):
        pytest.skip("no control group limits memory here")
    wait_for(lambda: connection.execute("SELECT count(*) = 2 FROM workers").fetchone() == (True,))
    before = node.processes()
    run = wait_for_status(connection, submit(connection, "exec tail /dev/zero", max_attempts=1), "dead")
    assert run.error
    assert "signal 9" in run.error
    assert node.processes() == before
    assert (node.show("ActiveState"), node.show("NRestarts")) == ("active", "0")


def test_broken_configuration_is_not_tried_again(master: Unit, configure: Callable[[str], None]) -> None:
    configure("[worker]\nconcurency = 2\n")
    master.do("start", is_refused=True)
    assert (master.show("ActiveState"), master.show("SubState")) == ("failed", "failed")
    assert (master.show("ExecMainStatus"), master.show("NRestarts")) == ("78", "0")
    assert "did you mean concurrency?" in master.journal()


def test_jobs_can_do_what_cron_jobs_do(node: Unit, connection: Connection, folder: Path) -> None:
    folder.chmod(0o777)
    command = f"id -un; umask; pwd; touch {folder}/made && test -r /etc/passwd -a -d /home && echo free"
    run = wait_for_status(connection, submit(connection, command), "succeeded")
    assert run.output_head.split() == ["forgeflow", "0022", "/var/lib/forgeflow", "free"]
    secrets = "cat /etc/forgeflow/environment || touch /usr/made || touch /etc/made"
    wait_for_status(connection, submit(connection, secrets, max_attempts=1), "dead")


RUN_AS = Path(__file__).parents[2] / "contrib" / "systemd" / "forgeflow-master.service.d" / "run-as.conf"
WHOAMI = "id -un; grep -E '^(Cap(Inh|Prm|Eff|Amb)|NoNewPrivs)' /proc/self/status | tr -d '\\t'"


def test_drop_in_lets_jobs_run_as_others_and_none_as_more(
    units: Callable[..., Unit], configure: Callable[[str], None], connection: Connection
) -> None:
    configure(f"{INI}[executor.shell]\nrun_as_allowed = nobody\n")
    node = units("forgeflow-master", [*MASTER, *RUN_AS.read_text().partition("[Service]\n")[2].splitlines()])
    node.do("start")
    for user, payload in (("forgeflow", {}), ("nobody", {"run_as": "nobody", "workdir": "/"})):
        job_id = submit(connection, "", payload={"command": WHOAMI, **payload})
        run = wait_for_status(connection, job_id, "succeeded")
        nothing = "0" * 16
        status = [*(f"Cap{kind}:{nothing}" for kind in ("Inh", "Prm", "Eff", "Amb")), "NoNewPrivs:1"]
        assert run.output_head.split() == [user, *status]
    payload = {"command": "sleep 4321 & exec sleep 4321", "run_as": "nobody", "workdir": "/"}
    run = wait_for_status(
        connection, submit(connection, "", payload=payload, max_attempts=1, timeout_seconds=0.5), "dead"
    )
    assert run.outcome == "timed_out"
    assert not [title for title in node.processes().values() if "sleep 4321" in title]


def test_node_that_was_granted_nothing_runs_no_job_as_another(
    units: Callable[..., Unit], configure: Callable[[str], None], connection: Connection
) -> None:
    configure(f"{INI}[executor.shell]\nrun_as_allowed = nobody\n")
    units("forgeflow-master", MASTER).do("start")
    payload = {"command": "true", "run_as": "nobody"}
    run = wait_for_status(connection, submit(connection, "", payload=payload, max_attempts=1), "dead")
    assert (run.outcome, run.error) == (
        "could_not_start",
        "this node cannot start programs as nobody: its unit grants it neither root nor CAP_SETUID",
    )


def test_web_serves_from_its_sandbox(web: Unit, port: int, systemd: Systemd) -> None:
    web.do("start")
    assert readiness(port) == 200
    for pid in web.processes():
        facts = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
        )
        assert facts["NoNewPrivs"] == "1"
        assert facts["Seccomp"] == "2"
        assert int(facts["CapBnd"], 16) == 0
        assert systemd.run("id", "-un", facts["Uid"].split()[0]) == "forgeflow-web\n"
    web.do("stop")
    assert (web.show("Result"), web.processes()) == ("success", {})


def test_neither_unit_needs_the_other(node: Unit, web: Unit, port: int) -> None:
    web.do("start")
    web.do("stop")
    assert node.show("ActiveState") == "active"
    web.do("start")
    node.do("stop")
    assert readiness(port) == 200
    assert web.show("NRestarts") == "0"


def test_target_starts_and_stops_what_is_enabled(master: Unit, web: Unit, systemd: Systemd) -> None:
    master.do("enable")
    web.do("enable")
    systemd.run("systemctl", "start", "forgeflow.target")
    assert (master.show("ActiveState"), web.show("ActiveState")) == ("active", "active")
    systemd.run("systemctl", "stop", "forgeflow.target")
    for unit in (master, web):
        unit.wait_for("ActiveState", "inactive")


def test_units_are_clean_and_the_web_unit_is_strict(systemd: Systemd) -> None:
    files = [f"/etc/systemd/system/forgeflow{rest}" for rest in ("-master.service", "-web.service", ".target")]
    assert systemd.run("systemd-analyze", "verify", *files) == ""
    systemd.run("systemd-analyze", "security", "--offline=yes", "--threshold=15", files[1])
