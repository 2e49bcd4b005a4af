"""Starting a program that shares nothing with us: no descriptor, no process group.

By subprocess, which starts it by vfork as long as it gets no `preexec_fn`, user, group or umask: fork copies the page
tables of all that a worker has loaded, and takes four times as long. Not by os.posix_spawn, though it is quicker by
the twentieth part of a short command: it takes no folder to start in, and to go there ourselves would take our
threads with us. What the vfork path cannot do, another user or lower limits, a program of its own does in between.
"""

import contextlib
import fcntl
import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from forgeflow.domain.run import PROGRESS_VARIABLE
from forgeflow.process.capabilities import lent
from forgeflow.process.fork import heed_signals
from forgeflow.process.oom import OwnScore

_BECOME = str(Path(__file__).with_name("become.py"))


@dataclass(frozen=True, slots=True)
class User:
    """Whom a program is to run as."""

    name: str
    uid: int
    gid: int
    groups: Sequence[int]
    home: str

    @classmethod
    def named(cls, name: str) -> "User":
        """As the system knows it now.  Raises KeyError."""
        found = pwd.getpwnam(name)
        return cls(name, found.pw_uid, found.pw_gid, os.getgrouplist(name, found.pw_gid), found.pw_dir)


@dataclass(frozen=True, slots=True)
class Start:
    """What to start, and how. `limits`: names of resources as `AS`, `CPU`, and what both limits of each are to be."""

    argv: Sequence[str]
    workdir: str
    environment: Mapping[str, str]
    stdin: str | None = None
    user: User | None = None
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        return self.user is None and not self.limits


@dataclass(frozen=True, slots=True)
class Started:
    """A program that was started: its process id, and the reading ends, none of which ever blocks.

    `output` is what it prints; `progress` what it writes to the descriptor that PROGRESS_VARIABLE names; from
    `refusal` comes, at the latest when it has ended, why it could not become who it should: nothing where it has.
    """

    pid: int
    output: int
    progress: int
    refusal: int | None = None

    def close(self) -> None:
        for descriptor in (self.output, self.progress, self.refusal):
            if descriptor is not None:
                os.close(descriptor)


class ProgressSlot:
    """A number under which commands find their progress descriptor; made early in a process, and kept.

    The shells of Debian take no more than one digit in `>&9`, and what is opened for a run may have two.
    """

    def __init__(self) -> None:
        self._nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        self.number = fcntl.fcntl(self._nothing, fcntl.F_DUPFD_CLOEXEC, 3)

    @contextlib.contextmanager
    def stands_for(self, descriptor: int) -> Iterator[int]:
        os.dup2(descriptor, self.number, inheritable=False)
        try:
            yield self.number
        finally:
            os.dup2(self._nothing, self.number, inheritable=False)


def spawn(start: Start, *, own_score: OwnScore, least_score: int, slot: ProgressSlot) -> Started:
    """Start a program. It leads a process group and has at least this out-of-memory score; signals that Python ignores
    are at their defaults.

    Blocks until it is executed, or, with a user or limits, until what sees to them is.  Raises OSError, `filename` the
    program or the folder that is to blame, when it cannot be; then nothing of it is left.
    """
    heed_signals()  # a function that was called before may have left some blocked or ignored
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:

        def pipe() -> tuple[int, int]:
            reading, writing = os.pipe2(os.O_CLOEXEC)
            ours.callback(os.close, reading)
            theirs.callback(os.close, writing)
            os.set_blocking(reading, False)
            return reading, writing

        output, printing = pipe()
        progress, noting = pipe()
        stdin = subprocess.DEVNULL
        if start.stdin is not None:
            stdin = _file_of("stdin", start.stdin)
            theirs.callback(os.close, stdin)
        noting = theirs.enter_context(slot.stands_for(noting))
        environment = {**start.environment, PROGRESS_VARIABLE: str(noting)}
        if start.is_plain:
            pid = _execute(start.argv, start.workdir, environment, stdin, printing, (noting,), own_score, least_score)
            started = Started(pid, output, progress)
        else:
            refusal, refusing = pipe()
            spec = _spec_of(start, environment)
            theirs.callback(os.close, spec)
            argv = [sys.executable, "-I", "-S", _BECOME, str(refusing), str(spec), *start.argv]
            handed_down = (noting, refusing, spec)
            with lent() if start.user else contextlib.nullcontext():
                pid = _execute(argv, "/", {}, stdin, printing, handed_down, own_score, least_score)
            started = Started(pid, output, progress, refusal)
        ours.pop_all()
        return started


def _execute(
    argv: Sequence[str],
    workdir: str,
    environment: Mapping[str, str],
    stdin: int,
    output: int,
    handed_down: Sequence[int],
    own_score: OwnScore,
    least_score: int,
) -> int:
    before = own_score.raise_to(least_score)
    try:
        process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=output,
            stderr=output,
            cwd=workdir,
            env=environment,
            pass_fds=handed_down,
            process_group=0,
        )
    finally:
        own_score.restore(before)
    process.returncode = 0  # whoever has started it reaps it, not subprocess
    return process.pid


def _spec_of(start: Start, environment: Mapping[str, str]) -> int:
    """A file for become.py: neither lists of processes nor its own environment show what is in it."""
    user = start.user
    spec = {
        "user": {"uid": user.uid, "gid": user.gid, "groups": list(user.groups)} if user else None,
        "limits": dict(start.limits),
        "workdir": start.workdir,
        "environment": dict(environment),
    }
    return _file_of("spec", json.dumps(spec))


def _file_of(name: str, text: str) -> int:
    """A file without a name that has this text: unlike a pipe it takes any length at once, read or not."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        left = memoryview(text.encode())
        while left:
            left = left[os.write(descriptor, left) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
