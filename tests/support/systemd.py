"""A real systemd in namespaces of its own, with the units of contrib as an operator would have installed them.

They were installed as the README says, the virtual environment that runs the tests is /opt/forgeflow, and nothing of
it is seen outside.
"""

import contextlib
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import pytest

from tests.support.processes import title
from tests.support.waiting import wait_for

CHECKOUT = Path(__file__).parents[2]
_BOOT = Path(__file__).with_name("with_systemd")
# What a unit's user must be able to read.
SEEN = [CHECKOUT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]

# /etc is a copy, but for systemd's folder of units, which is empty.
_PREPARE = """
set -eu
mkdir /run/etc
cp -a /etc/. /run/etc
mount --bind /run/etc /etc
mount -t tmpfs -o mode=755 opt /opt
ln -s "$1" /opt/forgeflow
mount -t tmpfs -o mode=755 lib /var/lib
"""


def _install() -> str:
    """What the README tells an operator to do, until it starts the units."""
    section = (CHECKOUT / "README.md").read_text().partition("## Under systemd")[2]
    commands = section.partition("```sh\n")[2].partition("```")[0]
    start = "systemctl enable --now forgeflow.target"
    assert start in commands
    return "\n".join(["set -eu", f"cd {shlex.quote(str(CHECKOUT))}", commands.partition(start)[0]])


def closed(path: Path) -> list[Path]:
    """The outermost folder on the way to it that only its owner may enter, say the home of root."""
    return [folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001][:1]


def _open_closed() -> str:
    """Commands that leave of closed folders only what must be seen, for everybody to see."""
    hidden = [path for path in SEEN if closed(path)]
    places = {path: f"/run/seen/{number}" for number, path in enumerate(hidden)}
    kept = [f"mkdir -p {place}; mount --bind '{path}' {place}" for path, place in places.items()]
    covers = {folder for path in hidden for folder in closed(path)}
    covered = [f"mount -t tmpfs -o mode=755 closed '{folder}'" for folder in covers]
    shown = [f"mkdir -p '{path}'; mount --bind {place} '{path}'" for path, place in places.items()]
    return "\n".join(["set -eu", *kept, *covered, *shown])


class Systemd:
    """`pid` is its process id on the host; `refusal` says why there is none."""

    def __init__(self, units: Path) -> None:
        self.refusal = ""
        self.pid = 0
        self._process = subprocess.Popen(
            [str(_BOOT), str(units), "--", "sh", "-c", 'echo "$WITH_SYSTEMD_PID"; read wait'],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        if line := self._process.stdout.readline():
            self.pid = int(line)
        else:
            self.refusal = self._process.communicate()[1].strip() or "with_systemd says nothing"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # closes its stdin, which ends the command and so everything

    def run(self, *command: str, is_refused: bool = False) -> str:
        """Output of a command inside, which must succeed, or must not when it `is_refused`."""
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid), "-m", "-p", "-u", "-i", "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        )
        assert (done.returncode != 0) == is_refused, f"{command} -> {done.returncode}\n{done.stdout}"
        return done.stdout

    def path(self, inside: str) -> Path:
        """A file of that machine, as the host sees it."""
        return Path(f"/proc/{self.pid}/root{inside}")


class Unit:
    """A unit of contrib. `changes` are the lines of a drop-in, for its section Service."""

    def __init__(self, systemd: Systemd, name: str, changes: Sequence[str]) -> None:
        self.name = name
        self._systemd = systemd
        self._since = int(time.time())
        folder = systemd.path(f"/etc/systemd/system/{name}.service.d")
        folder.mkdir(exist_ok=True)
        folder.joinpath("test.conf").write_text("\n".join(["[Service]", *changes, ""]))
        systemd.run("systemctl", "daemon-reload")

    def do(self, verb: str, *options: str, is_refused: bool = False) -> str:
        return self._systemd.run("systemctl", verb, *options, self.name, is_refused=is_refused)

    def end(self) -> None:
        """The hard way, whatever it is doing."""
        if self.processes():
            self.do("kill", "--signal=KILL")
        self.do("stop")
        self._systemd.run("systemctl", "reset-failed")

    def show(self, name: str) -> str:
        return self._systemd.run("systemctl", "show", "--value", "-p", name, self.name).strip()

    def wait_for(self, name: str, value: str) -> None:
        wait_for(lambda: value in self.show(name), why=f"{name} {value!r}")

    def signal(self, name: str) -> None:
        """To its main process."""
        self.do("kill", "--kill-who=main", f"--signal={name}")

    def journal(self) -> str:
        return self._systemd.run("journalctl", "--no-pager", "-o", "cat", f"--since=@{self._since}", "-u", self.name)

    def wait_for_journal(self, text: str) -> None:
        wait_for(lambda: text in self.journal(), why=f"{text!r} in the journal")

    def control_group(self, controller: str = "systemd") -> Path:
        """Its folder, of a controller where these are apart; it is there while the unit has processes."""
        slice_ = self._systemd.run("systemctl", "show", "--value", "-p", "ControlGroup", "system.slice").strip()
        tree = (
            Path("/sys/fs/cgroup")
            if Path("/sys/fs/cgroup/cgroup.procs").exists()
            else Path(f"/sys/fs/cgroup/{controller}")
        )
        return tree / slice_.removeprefix("/") / f"{self.name}.service"

    def processes(self) -> dict[int, str]:
        """All of its control group: the host's process ids, and titles."""
        listing = self.control_group() / "cgroup.procs"
        return {int(pid): title(int(pid)) for pid in listing.read_text().split()} if listing.exists() else {}

    def process(self, its_title: str) -> int:
        """The one with this title."""
        (pid,) = wait_for(lambda: [pid for pid, said in self.processes().items() if said == its_title], why=its_title)
        return pid


@contextlib.contextmanager
def booted() -> Iterator[Systemd]:
    """Skips, with the reason, where namespaces or systemd are refused; fails when something outlives it."""
    with tempfile.TemporaryDirectory(prefix="forgeflow-units-") as none, Systemd(Path(none)) as systemd:
        if systemd.refusal:
            pytest.skip(f"no systemd: {systemd.refusal}")
        systemd.run("sh", "-c", _open_closed())
        systemd.run("sh", "-c", _PREPARE, "sh", sys.prefix)
        systemd.run("sh", "-c", _install())
        yield systemd
    assert not Path(f"/proc/{systemd.pid}").exists()
