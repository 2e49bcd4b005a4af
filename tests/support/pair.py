"""A primary and its synchronous standby on one machine, and a URL that names both."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from forgeflow.embedded import EmbeddedServer, start_server, stop_server
from forgeflow.store.connection import connect
from forgeflow.store.schema import migrate
from tests.support.databases import config_for
from tests.support.processes import children_of
from tests.support.waiting import wait_for

# A crash of the machine is no part of it; but a commit waits for the standby, as synchronous_commit = on means.
_SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_wal_senders": "4"}


class Pair:
    """`url` leads to whichever takes writes; use as a context manager."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="forgeflow-pair-"))
        self._folder.chmod(0o755)
        self._migrate()
        shutil.copytree(self._folder / "first", self._folder / "second", copy_function=shutil.copy2)
        self._give_away(self._folder / "second", like=self._folder / "first")
        self.primary = start_server(self._folder / "first", settings={**_SETTINGS, "synchronous_standby_names": "*"})
        facts = conninfo_to_dict(self.primary.url)
        source = make_conninfo("", **{name: facts[name] for name in ("host", "port", "user", "password")})
        self.standby = start_server(self._folder / "second", settings={**_SETTINGS, "primary_conninfo": source})
        self._killed: list[str] = []
        self.url = make_conninfo(
            self.primary.url,
            host=f"{self.primary.socket_dir},{self.standby.socket_dir}",
            target_session_attrs="read-write",
        )

    def _migrate(self) -> None:
        server = start_server(self._folder / "first", settings=_SETTINGS)
        config = config_for(server.url)
        with connect(config, "test") as connection:
            migrate(connection, config)
        stop_server(server)
        signal_file = server.data_dir / "standby.signal"
        signal_file.touch()

    def _give_away(self, folder: Path, *, like: Path) -> None:
        """The copy belongs to whom the original belongs; the signal that makes a standby stays with the copy."""
        (like / "postgres/data/standby.signal").unlink()
        if os.geteuid() == 0:
            owner = (like / "postgres/data").stat()
            data, log = folder / "postgres/data", folder / "postgres/server.log"
            for path in (log, data, *data.rglob("*")):
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)

    def __enter__(self) -> Self:
        wait_for(self._is_synchronous, why="the standby is synchronous")
        return self

    def _is_synchronous(self) -> bool:
        with psycopg.connect(self.primary.url) as direct:
            row = direct.execute("SELECT sync_state FROM pg_stat_replication").fetchone()
        return row is not None and row[0] in ("sync", "quorum")

    def __exit__(self, *_: object) -> None:
        for server in (self.primary, self.standby):
            self._signal_all(server, signal.SIGCONT)  # a test that failed may have left it frozen
            stop_server(server)
        for segment in self._killed:
            subprocess.run(["ipcrm", "-m", segment], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def processes(self, server: EmbeddedServer) -> list[int]:
        return [server.pid, *children_of(server.pid)]

    def kill_primary(self) -> None:
        """As when its machine loses power: every process at once, and what they shared in memory."""
        self._killed.append((self.primary.data_dir / "postmaster.pid").read_text().splitlines()[6].split()[1])
        self._signal_all(self.primary, signal.SIGKILL)

    def _signal_all(self, server: EmbeddedServer, number: int) -> None:
        for pid in self.processes(server):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def promote(self) -> None:
        with psycopg.connect(self.standby.url, autocommit=True) as direct:
            direct.execute("SELECT pg_promote()")
