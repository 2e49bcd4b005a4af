"""What jobs find of the secrets of their node, which runs as the same user, and is not root."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from forgeflow.cli.exits import exit_with
from forgeflow.cli.serve import run_master
from forgeflow.process.tree import prctl
from forgeflow.store.connection import Connection, connect
from tests.support.databases import INTERVALS, config_for, drop_database, make_database
from tests.support.processes import environment_name, nothing_left_behind
from tests.support.work import submit, wait_for_status

_ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
_PR_SET_DUMPABLE = 4


def _become(url: str) -> None:
    """The account whose the server is: nobody else is let into the folder of its socket."""
    owner = Path(str(conninfo_to_dict(url)["host"])).stat()
    os.setgroups([])
    os.setresgid(owner.st_gid, owner.st_gid, owner.st_gid)
    os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)
    prctl(_PR_SET_DUMPABLE, 1)  # as after an exec, which this account may not be able to do


@contextmanager
def node_of_another_user(url: str, **settings: Any) -> Iterator[int]:
    """A node by a fork of the test, for its user may not be allowed to read Python's files; yields its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir("/")
            chosen = {**INTERVALS, "database.url": url, "log.format": "json", "worker.concurrency": "1", **settings}
            os.environ.update({environment_name(name): str(value) for name, value in chosen.items()})
            _become(url)
            exit_with(lambda: run_master(None))
        except SystemExit as stop:
            os._exit(int(stop.code or 0))
        finally:
            os._exit(70)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGQUIT)
        os.waitpid(pid, 0)


@pytest.fixture(scope="module")
def node(server_url: str, template: str) -> Iterator[tuple[Connection, int]]:
    url = make_database(server_url, template=template)
    settings = {"executor.shell.memory_limit": "200M"}
    with (
        nothing_left_behind(),
        node_of_another_user(url, **settings) as pid,
        connect(config_for(url), "test") as connection,
    ):
        yield connection, pid
    drop_database(server_url, url)


# Whatever a process below the node can read of those above it.
_CLIMB = """
pid=$$
while pid=$(awk '/^PPid/ {print $2}' /proc/$pid/status) && [ $pid -gt 1 ]; do
    echo looked $pid
    for file in environ maps mem auxv stack; do
        head -c 1 /proc/$pid/$file > /dev/null 2>&1 && echo read $file of $pid
    done
    for folder in fd map_files cwd/ root/; do
        ls /proc/$pid/$folder > /dev/null 2>&1 && echo listed $folder of $pid
    done
done
true
"""


@_ROOT_ONLY
def test_job_of_the_same_user_reads_nothing_of_the_processes_above_it(node: tuple[Connection, int]) -> None:
    connection, pid = node
    run = wait_for_status(connection, submit(connection, _CLIMB), "succeeded")
    lines = run.output_head.splitlines()
    assert f"looked {pid}" in lines
    assert [line for line in lines if not line.startswith("looked")] == []


@_ROOT_ONLY
def test_job_of_the_same_user_can_be_looked_into_and_has_its_own_score(node: tuple[Connection, int]) -> None:
    """What hides the node hides no job from its user, nor the node from its own work."""
    connection, pid = node
    run = wait_for_status(
        connection,
        submit(connection, "head -c 1 /proc/$$/environ > /dev/null && echo seen; cat /proc/$$/oom_score_adj"),
        "succeeded",
    )
    base = int(Path(f"/proc/{pid}/oom_score_adj").read_text())
    assert run.output_head.split() == ["seen", str(max(base, 800))]


@_ROOT_ONLY
def test_memory_of_a_job_that_hides_is_counted(node: tuple[Connection, int]) -> None:
    connection, _ = node
    hog = "import ctypes, signal; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); x = bytearray(300 << 20); signal.pause()"
    job = submit(connection, f"/usr/bin/python3 -c '{hog}'", max_attempts=1)
    assert wait_for_status(connection, job, "dead").error_type == "memory"
