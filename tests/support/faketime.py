"""Processes whose wall clock is set: libfaketime, which they load before everything else.

Their clocks for durations go on as always, as on a real machine whose wall clock is set. (In such a process
`time.sleep` fails; what waits there, waits in poll.)
"""

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forgeflow.embedded import PROGRAMS, EmbeddedServer, start_server, stop_server
from forgeflow.store.connection import connect
from forgeflow.store.schema import migrate
from tests.support.databases import FAST, config_for
from tests.support.processes import ended

_SHARED_MEMORY = Path("/dev/shm")


def find_library() -> Path | None:
    """Where Debian's package libfaketime puts it, on this kind of machine."""
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)


class FakedClock:
    """A wall clock of its own for whoever is started with `environment`; it can be set while they run."""

    def __init__(self, library: Path, folder: Path) -> None:
        self._file = folder / "clock"
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        self.set(0)

    def set(self, seconds: int) -> None:
        """Off by that much from the true time, at once; who reads it meanwhile sees the old file or the new one."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.chmod(0o644)
        new.replace(self._file)


@contextmanager
def faked_clock(library: Path) -> Iterator[FakedClock]:
    """What libfaketime shares between a process and its children outlives a killed one: it is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="forgeflow-clock-"))
    folder.chmod(0o755)
    before = _shared()
    try:
        yield FakedClock(library, folder)
    finally:
        for path in _shared() - before:
            if ended(int(path.name.rpartition("_")[2])):
                path.unlink(missing_ok=True)
        shutil.rmtree(folder)


def _shared() -> set[Path]:
    return {path for pattern in ("faketime_shm_*", "sem.faketime_sem_*") for path in _SHARED_MEMORY.glob(pattern)}


@contextmanager
def server_with(clock: FakedClock) -> Iterator[EmbeddedServer]:
    """A migrated server that reads that clock."""
    state = Path(tempfile.mkdtemp(prefix="forgeflow-faketime-"))
    state.chmod(0o755)
    try:
        server = start_server(state, settings=FAST)
        binaries = Path(os.readlink(f"/proc/{server.pid}/exe")).parent
        config = config_for(server.url)
        with connect(config, "test") as connection:
            migrate(connection, config)
        stop_server(server)
        server = start_server(state, binaries=_wrap(binaries, state / "bin", clock), settings=FAST)
        try:
            yield server
        finally:
            stop_server(server)
    finally:
        shutil.rmtree(state, ignore_errors=True)


def _wrap(binaries: Path, folder: Path, clock: FakedClock) -> Path:
    """A folder with the same programs, where `postgres` loads the library first."""
    folder.mkdir(mode=0o755)
    for name in PROGRAMS:
        if name != "postgres":
            (folder / name).symlink_to(binaries / name)
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in clock.environment.items())
    wrapper = folder / "postgres"
    wrapper.write_text(f'#!/bin/sh\n{settings} exec {shlex.quote(str(binaries / "postgres"))} "$@"\n')
    wrapper.chmod(0o755)
    return folder
