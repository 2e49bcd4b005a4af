"""What a service manager is told: the words of sd_notify, in their order; the manager here is a socket of the test."""

import os
import select
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from forgeflow.store.connection import Connection
from tests.support.processes import NodeProcess, title
from tests.support.waiting import wait_for
from tests.support.work import submit, wait_for_status

StartNode = Callable[..., NodeProcess]


class Manager:
    """The other end of NOTIFY_SOCKET; it keeps what was said, line by line."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "notify")
        self.lines: list[str] = []
        self.longest = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        os.chmod(self.path, 0o666)

    def close(self) -> None:
        self._socket.close()

    def environment(self, **others: str) -> dict[str, str]:
        return {"NOTIFY_SOCKET": self.path, **others}

    def read(self, seconds: float = 0.0) -> list[str]:
        while select.select([self._socket], [], [], seconds)[0]:
            message = self._socket.recv(65536)
            self.longest = max(self.longest, len(message))
            self.lines += message.decode().split("\n")
            seconds = 0.0
        return self.lines

    def wait_for(self, line: str, *, count: int = 1) -> None:
        wait_for(lambda: sum(said.startswith(line) for said in self.read(0.02)) >= count, why=f"{line} in {self.lines}")

    def states(self) -> list[str]:
        """The changes of state, without STATUS and the signs of life."""
        return [line for line in self.read() if line.partition("=")[0] in ("READY", "RELOADING", "STOPPING")]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    tmp_path.chmod(0o777)
    opened = Manager(tmp_path)
    yield opened
    opened.close()


def test_readiness_is_told_when_a_worker_is_ready(
    start_node: StartNode, connection: Connection, manager: Manager
) -> None:
    node = start_node(environment=manager.environment())
    manager.wait_for("READY=1")
    assert "node ready" in node.log_text()
    manager.wait_for("STATUS=running: 2 workers, 0 busy")
    submit(connection, "sleep 1")
    manager.wait_for("STATUS=running: 2 workers, 1 busy")
    assert manager.states() == ["READY=1"]


def test_start_without_database_asks_for_more_time(start_node: StartNode, manager: Manager, database_url: str) -> None:
    nowhere = make_conninfo(database_url, host="127.0.0.1", port=1)
    node = start_node(environment=manager.environment(), database__url=nowhere)
    node.wait_for_log("courier has no database")
    manager.wait_for("STATUS=starting")
    manager.wait_for("EXTEND_TIMEOUT_USEC=30000000")
    assert manager.states() == []


def titles_of_workers(node: NodeProcess) -> list[list[str]]:
    return [title(pid).split() for pid in node.workers()]


def test_reload_is_told_with_its_end_good_or_bad(
    start_node: StartNode, manager: Manager, database_url: str, tmp_path: Path
) -> None:
    node = start_node(environment=manager.environment(), config_file=tmp_path / "forgeflow.ini")
    manager.wait_for("READY=1")
    node.configure(worker__drain_timeout="21s")
    node.signal(signal.SIGHUP)
    manager.wait_for("READY=1", count=2)
    assert manager.states() == ["READY=1", "RELOADING=1", "READY=1"]
    manager.wait_for("MONOTONIC_USEC=")
    # A reload that finds no idle worker waits, and is over for the manager meanwhile.
    wait_for(lambda: [(words[-4], words[-1]) for words in titles_of_workers(node)] == [("2", "idle")] * 2)
    node.configure(database__url=make_conninfo(database_url, host="127.0.0.1", port=1), worker__spawn_timeout="500ms")
    node.signal(signal.SIGHUP)
    manager.wait_for("READY=1", count=3)
    assert manager.states() == ["READY=1", *["RELOADING=1", "READY=1"] * 2]
    wait_for(lambda: [line for line in manager.read() if "reload failed: its first courier was not ready" in line])
    node.configure(database__url="nonsense")
    node.signal(signal.SIGHUP)
    manager.wait_for("READY=1", count=4)
    wait_for(lambda: [line for line in manager.read() if "reload failed: configuration refused: database.url" in line])


def test_stop_is_told_and_asks_for_time_while_jobs_run(
    start_node: StartNode, connection: Connection, manager: Manager
) -> None:
    node = start_node(environment=manager.environment(WATCHDOG_USEC="300000"))
    manager.wait_for("READY=1")
    job_id = submit(connection, "sleep 1.5")
    wait_for_status(connection, job_id, "running")
    node.signal(signal.SIGTERM)
    manager.wait_for("STOPPING=1")
    manager.wait_for("STATUS=draining: 1 workers, 1 busy")
    manager.wait_for("EXTEND_TIMEOUT_USEC=", count=3)
    assert node.wait() == 0
    assert manager.states() == ["READY=1", "STOPPING=1"]


def test_watchdog_is_fed_and_a_frozen_master_is_not(start_node: StartNode, manager: Manager) -> None:
    node = start_node(environment=manager.environment(WATCHDOG_USEC="600000"))
    manager.wait_for("WATCHDOG=1", count=5)
    node.signal(signal.SIGSTOP)
    wait_for(lambda: Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    said = manager.read().count("WATCHDOG=1")
    assert manager.read(1.0).count("WATCHDOG=1") == said
    node.signal(signal.SIGCONT)
    manager.wait_for("WATCHDOG=1", count=said + 1)


def test_jobs_cannot_talk_to_the_service_manager(
    start_node: StartNode, connection: Connection, manager: Manager
) -> None:
    variables = "NOTIFY_SOCKET WATCHDOG_USEC"
    start_node(environment=manager.environment(WATCHDOG_USEC="600000"), executor__shell__env_pass=f"PATH {variables}")
    run = wait_for_status(connection, submit(connection, "env"), "succeeded")
    assert "NOTIFY" not in run.output_head
    assert "WATCHDOG" not in run.output_head
    assert "FORGEFLOW_RUN_ID" in run.output_head


def test_watchdog_that_is_too_slow_for_the_lease_is_refused(start_node: StartNode, manager: Manager) -> None:
    """It would leave a frozen master's jobs alive beyond their lease: 2 s less 0.6 s less 0.6 s is the limit here."""
    node = start_node(environment=manager.environment(WATCHDOG_USEC="900000"))
    assert node.wait() == 78
    assert "WatchdogSec is 0.9s; expected at most 0.8s" in node.log_text()


def test_manager_that_does_not_read_stops_nothing(
    start_node: StartNode, connection: Connection, manager: Manager
) -> None:
    node = start_node(environment=manager.environment(WATCHDOG_USEC="3000"))
    for _ in range(3):
        wait_for_status(connection, submit(connection, "sleep 0.3"), "succeeded")
    assert node.stop() == 0


def test_slow_manager_hears_every_change_of_state_and_long_complaints_drop_nothing(
    start_node: StartNode, connection: Connection, manager: Manager, tmp_path: Path
) -> None:
    """systemd ignores a message of 4096 bytes or more as a whole, and reads no faster than it can."""
    node = start_node(environment=manager.environment(WATCHDOG_USEC="600000"), config_file=tmp_path / "forgeflow.ini")
    manager.wait_for("READY=1")  # or the reload would come before it, and would not be told
    assert node.config_file
    node.config_file.write_text("[worker]\n" + "".join(f"unknown_{'x' * number} = 1\n" for number in range(30)))
    node.signal(signal.SIGHUP)
    node.wait_for_log("reload failed")
    wait_for(lambda: any("unknown key worker.unknown_" in line for line in manager.read()))
    for _ in range(20):
        wait_for_status(connection, submit(connection, "true"), "succeeded")
    node.configure()
    node.signal(signal.SIGHUP)
    node.wait_for_log("configuration reloaded")
    node.signal(signal.SIGTERM)
    assert node.wait() == 0
    assert manager.longest < 4096
    manager.wait_for("STOPPING=1")
    assert manager.states() == ["READY=1", *["RELOADING=1", "READY=1"] * 2, "STOPPING=1"]
    statuses = [line for line in manager.lines if line.startswith("STATUS=")]
    assert len(statuses) < 20
