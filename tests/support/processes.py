"""Real nodes as processes, and proof that nothing of them is left.

The test process is a sub-reaper while a test of this kind runs, so every orphan of a killed node becomes its child
and is seen.
"""

import configparser
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from forgeflow.process.tree import Strays, become_subreaper, children
from tests.support.commands import BARE
from tests.support.databases import INTERVALS
from tests.support.waiting import wait_for

# `FORGEFLOW_TEST_CLAIM_BATCH=1 make test` runs the tests with workers that hold one run.
_SIZE = os.environ.get("FORGEFLOW_TEST_CLAIM_BATCH")
CLAIM_BATCH = {"worker.claim_batch": _SIZE} if _SIZE else {}


def environment_name(setting: str) -> str:
    return f"FORGEFLOW_{setting}".upper().replace(".", "_")


class NodeProcess:
    """A `forgeflow master` of our own, with the tests' intervals.

    Its settings are in its environment, or in `config_file`, where `configure` can change them.
    """

    def __init__(
        self,
        url: str,
        *,
        log_to: int | None = None,
        config_file: Path | None = None,
        environment: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self._settings = {**INTERVALS, **CLAIM_BATCH, "worker.concurrency": "2", "log.format": "json"}
        self._settings |= {name.replace("__", "."): value for name, value in settings.items()}
        self._settings.setdefault("database.url", url)
        self.config_file = config_file
        self.orphans: list[int] = []  # what a killed master left: they end on their own
        if config_file:
            self.configure()
            chosen = {"FORGEFLOW_CONFIG": str(config_file)}
        else:
            chosen = {environment_name(name): value for name, value in self._settings.items()}
        self.log = tempfile.NamedTemporaryFile(prefix="forgeflow-node-", suffix=".log")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "forgeflow.cli", "master"],
            env={**BARE, "HOME": "/", **chosen, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log if log_to is None else log_to,
            cwd="/",
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def configure(self, **settings: str) -> None:
        """Write the file anew, with these changes; the node reads it at the next HUP."""
        assert self.config_file
        self._settings |= {name.replace("__", "."): value for name, value in settings.items()}
        parser = configparser.ConfigParser(interpolation=None)
        for name, value in self._settings.items():
            section, _, key = name.rpartition(".")
            if not parser.has_section(section):
                parser.add_section(section)
            parser.set(section, key, value)
        with self.config_file.open("w") as file:
            parser.write(file)

    def log_text(self) -> str:
        return Path(self.log.name).read_text()

    def wait_for_log(self, text: str, *, count: int = 1, timeout_seconds: float = 20.0) -> None:
        wait_for(
            lambda: self.log_text().count(text) >= count or self.process.poll() is not None,
            timeout_seconds=timeout_seconds,
            why=f"{text!r} in the log:\n{self.log_text()}",
        )
        assert self.log_text().count(text) >= count, f"node ended before {text!r}:\n{self.log_text()}"

    def workers(self) -> list[int]:
        """The pids of its worker processes, oldest first."""
        return [pid for pid in children_of(self.pid) if title(pid).startswith("forgeflow: worker")]

    def child(self, role: str) -> int:
        (pid,) = [pid for pid in children_of(self.pid) if title(pid).startswith(f"forgeflow: {role}")]
        return pid

    def signal(self, number: int) -> None:
        if number == signal.SIGKILL:
            self.orphans = descendants_of(self.pid)
        self.process.send_signal(number)

    def wait(self, timeout_seconds: float = 30.0) -> int:
        """Its exit code."""
        return self.process.wait(timeout_seconds)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()


def children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def descendants_of(pid: int) -> list[int]:
    found = children_of(pid)
    return found + [below for child in found for below in descendants_of(child)]


def kill_tree(pid: int) -> int:
    """As when a machine loses power: nobody of the tree has time to notice; how many they were.

    A worker whose master is killed a moment earlier would still end its job and report it.
    """
    frozen: list[int] = []
    while doomed := [each for each in [pid, *descendants_of(pid)] if each not in frozen]:
        _signal_all(doomed, signal.SIGSTOP)
        frozen += doomed
    _signal_all(frozen, signal.SIGKILL)
    return len(frozen)


def _signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def ended(pid: int) -> bool:
    """Gone, or only to be collected; one that is dying is neither yet, though its title is empty."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def processes_marked(marker: str) -> list[int]:
    """Living processes whose command line holds the marker, other than ourselves."""
    own = os.getpid()
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and int(entry.name) != own and marker in title(int(entry.name))
    ]


def _reap(known: Collection[int]) -> set[int]:
    """Our children but these, without the dead."""
    for pid in set(children()) - set(known):
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return set(children()) - set(known)


def _is_dying(pid: int) -> bool:
    """It has no title any more, or was killed, say by the end of its parent, and has had no processor since."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return not title(pid) or any(mask >> signal.SIGKILL - 1 & 1 for mask in pending)


@contextmanager
def nothing_left_behind(*, ignore: Collection[int] = ()) -> Iterator[None]:
    """Fail when a child, ours or inherited, outlives the block; end it then.  `ignore` is looked at in the end."""
    become_subreaper()
    before = set(children())
    yield
    known = before | set(ignore)
    # The dead that we inherited are no trouble, nor those on their way out.
    wait_for(lambda: not any(map(_is_dying, _reap(known))), why="the dying end")
    left = {pid: title(pid) for pid in _reap(known)}
    Strays().kill_until_none(known)
    assert not left, f"processes left behind: {left}"


@contextmanager
def nodes(*, show_logs: Callable[[], bool] = lambda: False) -> Iterator[Callable[..., NodeProcess]]:
    """Start nodes with the yielded function; at the end those that still run are stopped, the hard way if need be."""
    started: list[NodeProcess] = []

    def start(url: str, **settings: Any) -> NodeProcess:
        node = NodeProcess(url, **settings)
        started.append(node)
        return node

    try:
        yield start
    finally:
        for node in started:
            if show_logs():
                sys.stderr.write(f"---- node {node.pid}\n{node.log_text()}\n")
            _end(node)


def _end(node: NodeProcess) -> None:
    if node.process.poll() is None:
        node.process.send_signal(signal.SIGCONT)
        node.process.send_signal(signal.SIGQUIT)
        try:
            node.process.wait(15)
        except subprocess.TimeoutExpired:
            node.process.kill()
            node.process.wait()
    wait_for(lambda: all(map(ended, node.orphans)), why="the end of those whose master was killed")
    node.log.close()


def run_count(rows: list[Any]) -> dict[str, int]:
    return {row.status: row.count for row in rows}
