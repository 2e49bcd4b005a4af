"""`forgeflow up` as a user has it: real processes, killed and stopped; nothing of them may be left.

The test's process is a sub-reaper, so whatever escapes becomes its child and fails the test.
"""

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from forgeflow.embedded import PROGRAMS
from forgeflow.process.tree import Strays, become_subreaper, children
from tests.support.commands import BARE, run
from tests.support.databases import INTERVALS
from tests.support.processes import ended
from tests.support.waiting import wait_for

_PR_SET_CHILD_SUBREAPER = 36


def descendants(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            found += [child, *descendants(child)]
    return found


def title(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@dataclass(slots=True)
class Up:
    """One `forgeflow up`, and what a user sees of it."""

    state: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] = field(init=False)
    out: Path = field(init=False)
    log: Path = field(init=False)

    def start(self, **variables: str) -> "Up":
        folder = Path(tempfile.mkdtemp(prefix="up-", dir=next(each for each in self.state.parents if each.is_dir())))
        self.out, self.log = folder / "out", folder / "log"
        intervals = {f"FORGEFLOW_{name}".upper().replace(".", "_"): value for name, value in INTERVALS.items()}
        environment = {**BARE, "FORGEFLOW_CONCURRENCY": "2", **intervals, **variables}
        where = ("--listen", f"127.0.0.1:{self.port}", "--data-dir", self.state)
        with self.out.open("wb") as out, self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "forgeflow.cli", "up", *where],
                cwd=folder,
                env=environment,
                stdout=out,
                stderr=log,
                start_new_session=True,
            )
        return self

    def started(self, **variables: str) -> "Up":
        self.start(**variables)
        wait_for(lambda: self.process.poll() is not None or "ForgeFlow is up" in self.out.read_text(), why="greeting")
        assert self.process.poll() is None, self.log.read_text()
        return self

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    def is_ready(self) -> bool:
        try:
            return bool(self.call("/readyz")["status"] == "ok")
        except (OSError, urllib.error.URLError):
            return False

    def submit(self, command: str) -> str:
        """The id of a job that runs that command once, now."""
        return str(self.call("/api/jobs", {"name": "test", "executor": "shell", "payload": {"command": command}})["id"])

    def succeeded(self, job: str) -> bool:
        runs = self.call("/api/runs")["items"]
        return any(run["job_id"] == job and run["status"] == "succeeded" for run in runs)

    def runs_a_job(self) -> bool:
        job = self.submit("true")
        return bool(wait_for(lambda: self.succeeded(job), why="a job"))

    def service(self, words: str) -> int:
        """The process below `up` with these words in its title; 0 when there is none."""
        return next((pid for pid in descendants(self.process.pid) if words in title(pid)), 0)

    def pid_file(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return (self.state / "postgres/data/postmaster.pid").read_text().splitlines()
        return []

    def postmaster(self) -> int:
        return int(self.pid_file()[0])

    def socket_folder(self) -> Path:
        return Path(self.pid_file()[4])

    def end(self) -> int:
        """Wait for its end; the exit code.  It never shows a traceback, nor the password."""
        code = self.process.wait(timeout=30)
        shown = self.log.read_text() + self.out.read_text()
        assert "Traceback" not in shown, shown
        if (self.state / "postgres/password").exists():
            assert (self.state / "postgres/password").read_text().strip() not in shown
        return code

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.end()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def complaint(self) -> str:
        """The one line that it said before it ended."""
        (line,) = self.log.read_text().splitlines()
        return line

    def event_times(self, *events: str) -> list[datetime]:
        lines = map(json.loads, self.log.read_text().splitlines())
        return [datetime.fromisoformat(line["timestamp"]) for line in lines if line["event"] in events]


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def left_over(known: set[int]) -> list[str]:
    """What lives of what was started since then; collects what has ended."""
    for pid in set(children()) - known:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return [f"{pid} {title(pid)}" for pid in set(children()) - known]


@pytest.fixture
def place(server_url: str) -> Iterator[Path]:
    """A folder for state folders, below /tmp, for every account; no process of the test outlives it.

    `server_url` is asked for so that its server is not taken for one of ours.
    """
    folder = Path(tempfile.mkdtemp(prefix="forgeflow-up-", dir="/tmp"))
    folder.chmod(0o755)
    known = set(children())
    become_subreaper()
    try:
        yield folder
        left = left_over(known)
    finally:
        Strays().kill_until_none(known)
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        for log in folder.rglob("server.log"):
            for name in set(re.findall(r'Unix socket "(.*/forgeflow-[0-9a-f]{16})/', log.read_text())):
                left += [f"folder {name}"] if Path(name).exists() else []
                shutil.rmtree(name, ignore_errors=True)
        shutil.rmtree(folder)
    assert left == []


@pytest.fixture(scope="module")
def initialised(server_url: str) -> Iterator[Path]:
    """A state folder that has served once."""
    folder = Path(tempfile.mkdtemp(prefix="forgeflow-up-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        assert Up(folder / "state").started().stop() == 0
        yield folder / "state"
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def state(place: Path, initialised: Path) -> Path:
    subprocess.run(["cp", "-a", initialised, place / "state"], check=True)
    return place / "state"


def test_first_start_serves_what_it_prints_works_and_other_commands_find_its_database(place: Path) -> None:
    """By a file of ours."""
    up = Up(place / "state").started()
    assert up.is_ready()
    assert up.address in up.out.read_text()
    submit, show = re.findall(r"^  (curl .*)$", up.out.read_text(), re.MULTILINE)
    if shutil.which("curl"):
        assert json.loads(subprocess.check_output(submit, shell=True, stderr=subprocess.DEVNULL))["name"] == "hello"
        wait_for(lambda: '"status":"succeeded"' in compact(show), why="the run of hello")
    file = up.state / "postgres" / "url"
    assert file.stat().st_mode & 0o777 == 0o600
    code, output, complaint = run(place, "ping", FORGEFLOW_DATABASE_URL_FILE=str(file))
    assert (code, complaint) == (0, "")
    assert "lives" in output
    assert up.stop() == 0


def compact(command: str) -> str:
    """What a shell command prints, without blanks."""
    return subprocess.check_output(command, shell=True, stderr=subprocess.DEVNULL, text=True).replace(" ", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_stop_lets_a_running_job_finish_stops_postgres_last_and_keeps_the_data(
    state: Path, number: signal.Signals
) -> None:
    up = Up(state).started()
    socket_folder, postmaster = up.socket_folder(), up.postmaster()
    begun, may_end = state.parent / "begun", state.parent / "may-end"
    job = up.submit(f"touch {begun}; until [ -e {may_end} ]; do sleep 0.02; done")
    wait_for(begun.exists, why="the job")
    os.killpg(up.process.pid, number)  # as a terminal does
    wait_for(lambda: "draining" in up.log.read_text(), why="the drain")
    may_end.touch()
    assert up.end() == 0
    assert up.out.read_text().endswith("ForgeFlow has stopped.\n")
    assert ended(postmaster)
    assert not socket_folder.exists()
    assert port_is_free(up.port)
    (last,) = re.findall(r"^(\S+ \S+) UTC .*fast shutdown request", last_part(state), re.MULTILINE)
    stopped = up.event_times("node stopped", "Shutting down: Master")
    assert len(stopped) == 2
    assert max(stopped) < datetime.fromisoformat(f"{last}+00:00").replace(microsecond=999999)
    if number == signal.SIGTERM:
        again = Up(state).started()
        assert again.succeeded(job)
        assert again.stop() == 0


def last_part(state: Path) -> str:
    """The server's log since its last start."""
    return (state / "postgres/server.log").read_text().rpartition("starting PostgreSQL")[2]


def test_second_interrupt_stops_a_running_job(state: Path) -> None:
    up = Up(state).started()
    mark = state.parent / "begun"
    up.submit(f"touch {mark}; sleep 1000")
    wait_for(mark.exists, why="the job")
    up.process.send_signal(signal.SIGINT)
    wait_for(lambda: "draining" in up.log.read_text(), why="the drain")
    assert up.process.poll() is None
    wait_for(lambda: repeat(up, signal.SIGINT), why="the end")
    assert up.end() == 0


def repeat(up: Up, number: signal.Signals) -> bool:
    if up.process.poll() is None:
        up.process.send_signal(number)
    return up.process.poll() is not None


def test_killed_master_leaves_nothing_and_is_started_again(state: Path) -> None:
    up = Up(state).started()
    master = wait_for(lambda: up.service("forgeflow: master"))
    mark = state.parent / "daemon"
    daemon = f"setsid sh -c '(setsid sh -c \"echo \\$\\$ > {mark}; exec sleep 1000\" &)'"
    job = up.submit(f"[ -e {mark} ] && exit 0; {daemon}; exec sleep 1000")
    escaped = int(wait_for(lambda: mark.exists() and mark.read_text().strip(), why="the daemon"))
    tree = [master, *descendants(master)]
    assert len(tree) > 4
    os.kill(master, signal.SIGKILL)
    wait_for(lambda: all(map(ended, [*tree, escaped])), why="the end of the old tree")
    assert wait_for(lambda: up.service("forgeflow: master")) != master
    wait_for(lambda: up.succeeded(job), why="the second try")
    assert up.runs_a_job()
    assert up.stop() == 0


def test_frozen_master_is_killed_before_its_leases_can_pass_and_started_again(state: Path) -> None:
    """And the job of a worker that was killed meanwhile, which nobody else would end."""
    up = Up(state).started()
    master = wait_for(lambda: up.service("forgeflow: master"))
    mark = state.parent / "beats"
    job = up.submit(f"[ -e {mark} ] && exit 0; while :; do date +%s.%N >> {mark}; sleep 0.02; done")
    wait_for(lambda: mark.exists() and mark.read_text().count("\n") > 2, why="the job")
    (worker,) = [pid for pid in descendants(master) if " run " in title(pid)]
    os.kill(master, signal.SIGSTOP)
    frozen_at = time.time()
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: ended(master), why="the watchdog")
    assert "gave no sign of life" in up.log.read_text()
    assert wait_for(lambda: up.service("forgeflow: master")) != master
    wait_for(lambda: up.succeeded(job), why="the second try")
    assert float(mark.read_text().split()[-1]) < frozen_at + 2.0, "the lease of the tests"
    assert up.stop() == 0


def test_master_that_is_stopped_while_frozen_is_woken(state: Path) -> None:
    up = Up(state).started()
    os.kill(wait_for(lambda: up.service("forgeflow: master")), signal.SIGSTOP)
    assert up.stop() == 0


def test_killed_web_process_is_started_again(state: Path) -> None:
    up = Up(state).started()
    web = wait_for(lambda: up.service("gunicorn: master"))
    tree = [web, *descendants(web)]
    os.kill(web, signal.SIGKILL)
    wait_for(lambda: all(map(ended, tree)), why="the end of the old tree")
    wait_for(up.is_ready, why="another")
    assert up.service("gunicorn: master") != web
    assert up.stop() == 0


def test_killed_postgres_is_started_again(state: Path) -> None:
    up = Up(state).started()
    postmaster = up.postmaster()
    os.kill(postmaster, signal.SIGKILL)
    wait_for(lambda: "PostgreSQL started again" in up.log.read_text(), why="another server")
    assert up.postmaster() != postmaster
    wait_for(up.is_ready)
    assert up.runs_a_job()
    assert up.stop() == 0


def test_new_up_adopts_the_server_of_a_killed_one(state: Path) -> None:
    up = Up(state).started()
    postmaster = up.postmaster()
    tree = [pid for pid in descendants(up.process.pid) if pid != postmaster and "postgres:" not in title(pid)]
    up.kill()
    wait_for(lambda: all(map(ended, tree)), why="the end of its services")
    assert not ended(postmaster)
    again = Up(state).started()
    assert again.postmaster() == postmaster
    assert again.runs_a_job()
    socket_folder = again.socket_folder()
    assert again.stop() == 0
    assert ended(postmaster)
    assert not socket_folder.exists()


def test_given_server_is_used_and_none_is_started(place: Path, database_url: str) -> None:
    up = Up(place / "state").started(FORGEFLOW_DATABASE_URL=database_url)
    assert up.runs_a_job()
    assert not up.state.exists()
    assert not [pid for pid in descendants(up.process.pid) if "postgres" in title(pid)]
    assert up.stop() == 0


def test_two_side_by_side_and_a_third_on_the_same_state_is_refused(place: Path, state: Path) -> None:
    subprocess.run(["cp", "-a", state, place / "other"], check=True)
    first, second = Up(state).start(), Up(place / "other").start()
    for up in (first, second):
        wait_for(up.is_ready, why="both")
    postmaster = first.postmaster()
    third = Up(state).start()
    assert third.end() == 75
    assert third.complaint() == (
        f"forgeflow: another `forgeflow up` (pid {first.process.pid}) uses the state folder {state}: stop it, or give "
        "this one a folder of its own with --data-dir (`make run STATE=folder PORT=8081`)"
    )
    assert first.postmaster() == postmaster
    assert first.postmaster() != second.postmaster()
    for up in (first, second):
        assert up.runs_a_job()
    assert [first.stop(), second.stop()] == [0, 0]


def test_taken_port_is_refused_before_anything_is_started(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        up = Up(place / "state", taken.getsockname()[1]).start()
        assert up.end() == 75
    assert up.complaint().startswith(f"forgeflow: 127.0.0.1:{up.port} is taken: stop")
    assert not up.state.exists()


def test_unusable_state_folder_is_refused_and_left_as_it_was(place: Path) -> None:
    (place / "file").touch()
    below_a_file = Up(place / "file" / "state").start()
    assert below_a_file.end() == 78
    assert f"the state folder {place}/file/state cannot be used: Not a directory" in below_a_file.complaint()
    unknown = Up(place / "new" / "state").start(FORGEFLOW_DATABASE_EMBEDDED_USER="no-such-account")
    assert unknown.end() == 78
    assert not (place / "new").exists()


MOMENTS: dict[str, Callable[[Up], object]] = {
    "folder": lambda up: up.state.exists(),
    "initdb": lambda up: up.service("initdb"),
    "server": lambda up: up.pid_file(),
    "services": lambda up: up.service("forgeflow.cli master"),
}


# While it starts all signals are noted in one place: one for each moment, and the others in the long form.
SIGNALS = {"folder": signal.SIGINT, "initdb": signal.SIGTERM, "server": signal.SIGINT, "services": signal.SIGTERM}
STARTS = [
    pytest.param(moment, number, marks=() if number == SIGNALS[moment] else pytest.mark.proof)
    for moment in MOMENTS
    for number in (signal.SIGINT, signal.SIGTERM)
]


@pytest.mark.parametrize(("moment", "number"), STARTS)
def test_stop_while_starting_leaves_nothing(place: Path, moment: str, number: signal.Signals) -> None:
    up = Up(place / "state").start()
    wait_for(lambda: up.process.poll() is not None or MOMENTS[moment](up), why=moment)
    assert up.stop(number) == 0
    assert "ForgeFlow is up" not in up.out.read_text()
    assert "ForgeFlow has stopped." in up.out.read_text()
    assert port_is_free(up.port)
    assert not list(up.state.rglob("*.new"))


def test_second_signal_ends_a_start_that_hangs(place: Path) -> None:
    programs = place / "programs"
    programs.mkdir()
    for name in PROGRAMS:
        act = "sleep 1000; true" if name == "initdb" else "echo '(PostgreSQL) 18.6'"
        (programs / name).write_text(f"#!/bin/sh\n{act}\n")
    for each in (programs, *programs.iterdir()):
        each.chmod(0o755)
    up = Up(place / "state").start(FORGEFLOW_DATABASE_EMBEDDED_BIN=str(programs))
    wait_for(lambda: up.service("sleep 1000"), why="initdb")
    wait_for(lambda: repeat(up, signal.SIGINT), why="the end")
    assert up.end() == 0


def test_reader_that_goes_away_does_not_matter(state: Path) -> None:
    """As in `forgeflow up | head`."""
    up = Up(state)
    reader, writer = os.pipe()
    os.close(reader)
    up.out = Path(f"/proc/self/fd/{writer}")
    intervals = {**BARE, "FORGEFLOW_CONCURRENCY": "2"}
    where = ("--listen", f"127.0.0.1:{up.port}", "--data-dir", state)
    up.log = state.parent / "log"
    with up.log.open("wb") as log:
        up.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "forgeflow.cli", "up", *where], env=intervals, stdout=writer, stderr=log
        )
    os.close(writer)
    wait_for(lambda: up.is_ready() and up.service("forgeflow: worker"), why="ready")
    assert up.runs_a_job()
    up.process.terminate()
    assert up.process.wait(timeout=30) == 0
    assert "Traceback" not in up.log.read_text()


def test_closed_standard_descriptors_do_not_matter(state: Path) -> None:
    """As a careless starter leaves them: `forgeflow up <&- >&- 2>&-`."""
    port = free_port()
    command = f"exec {sys.executable} -P -m forgeflow.cli up --listen 127.0.0.1:{port} --data-dir {state} <&- >&- 2>&-"
    up = Up(state, port)
    up.process = subprocess.Popen(["sh", "-c", command], cwd=state, start_new_session=True)
    wait_for(up.is_ready, why="it serves")
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(timeout=30) == 0
