"""The peers' cells of the scenarios."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from bench.drain import PATIENCE_SECONDS, snapshot_of
from bench.lab import Lab
from bench.meters import count_statements, cpu_seconds, percentile, pss_mib, reset_statements
from bench.pace import pipe
from bench.peers.adapter import TALLY
from bench.rounds import Cell, Figures
from tests.support.processes import kill_tree
from tests.support.waiting import wait_for

HERE = Path(__file__).resolve().parent
LOOK_SECONDS = 0.01
SETTLE_SECONDS = 0.5
STOP_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run a peer: the best of a sweep, or its default."""

    name: str
    peer: str
    processes: int = 1
    batch: int = 0

    @property
    def is_on_redis(self) -> bool:
        return self.peer == "celery"


BATCH_100 = Setting("pgqueuer, batch 100", "pgqueuer", batch=100)
BATCH_10 = Setting("pgqueuer, batch 10", "pgqueuer", batch=10)
OTHERS = (
    Setting("celery", "celery"),
    Setting("procrastinate", "procrastinate", processes=2),
    Setting("oban", "oban", processes=2, batch=100),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one measurement of a peer is made: its own database or Redis, and the folder of its tallies."""

    python: Path
    setting: Setting
    url: str
    store_pid: int
    folder: Path

    def command(self, verb: str, *arguments: str) -> list[str]:
        script = HERE / f"with_{self.setting.peer}.py"
        return [str(self.python), str(script), verb, self.url, *arguments]

    def environment(self) -> dict[str, str]:
        batch = {"BENCH_BATCH": str(self.setting.batch)} if self.setting.batch else {}
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "BENCH_TALLY": str(self.folder), **batch}

    def act(self, verb: str, *arguments: str) -> str:
        """Wait for a verb that ends; what it printed."""
        done = subprocess.run(
            self.command(verb, *arguments), env=self.environment(), capture_output=True, text=True, timeout=300
        )
        if done.returncode:
            raise RuntimeError(f"{self.setting.name} {verb}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def tally(self) -> tuple[int, float, float]:
        """Calls of all its processes, and when the first and the last one was."""
        parts = [TALLY.unpack(data) for file in self.folder.glob("[0-9]*") if (data := file.read_bytes())]
        begun = [part for part in parts if part[0]]
        if not begun:
            return 0, 0.0, 0.0
        return sum(part[0] for part in begun), min(part[1] for part in begun), max(part[2] for part in begun)


@dataclass(frozen=True, slots=True)
class Contest:
    lab: Lab
    pythons: Mapping[str, Path]

    def _cells(self, settings: Sequence[Setting], measure: Any, *arguments: Any) -> list[Cell]:
        """For those that can be had here."""
        return [
            Cell(setting.name, partial(measure, setting, *arguments))
            for setting in settings
            if setting.peer in self.pythons
        ]

    def drain_cells(self, count: int) -> list[Cell]:
        return self._cells((BATCH_100, BATCH_10, *OTHERS), self._drain, "noop", count)

    def shell_cells(self, count: int) -> list[Cell]:
        return self._cells((BATCH_10, *OTHERS), self._drain, "true", count)

    def latency_cells(self, count: int) -> list[Cell]:
        return self._cells((BATCH_10, *OTHERS), self._latency, count)

    def enqueue_cells(self, singles: int, bulk: int) -> list[Cell]:
        return self._cells((BATCH_10, *OTHERS), self._enqueue, singles, bulk)

    def idle_cells(self, seconds: float) -> list[Cell]:
        return self._cells((BATCH_10, *OTHERS), self._idle, seconds)

    def memory_cells(self, count: int) -> list[Cell]:
        return self._cells((BATCH_10, *OTHERS), self._memory, count)

    def snapshot_cells(self, count: int) -> list[Cell]:
        if BATCH_100.peer not in self.pythons:
            return []
        return [Cell("pgqueuer, old snapshot", partial(self._drain, BATCH_100, "noop", count, is_snapshot_held=True))]

    @contextmanager
    def _place(self, setting: Setting) -> Iterator[Place]:
        folder = Path(tempfile.mkdtemp(prefix="forgeflow-peer-"))
        try:
            with _redis(folder) if setting.is_on_redis else self._postgres() as (url, pid):
                place = Place(self.pythons[setting.peer], setting, url, pid, folder)
                place.act("install")
                yield place
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _postgres(self) -> Iterator[tuple[str, int]]:
        with self.lab.bare_database() as url:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("CREATE EXTENSION pg_stat_statements")
            yield url, self.lab.server_pid

    def _drain(self, setting: Setting, job: str, count: int, *, is_snapshot_held: bool = False) -> Figures:
        """The backlog is there and counted before the workers start; from the first call to the last."""
        with self._place(setting) as place:
            place.act("load", job, str(count))
            if not setting.is_on_redis:
                _analyze(place.url)
            with _held(place.url, is_snapshot_held), _working(place) as workers:
                deadline = time.monotonic() + PATIENCE_SECONDS
                before = cpu_seconds(workers) + cpu_seconds([place.store_pid])
                while (found := place.tally()[0]) < count and time.monotonic() < deadline:
                    if not found:
                        before = cpu_seconds(workers) + cpu_seconds([place.store_pid])
                    time.sleep(LOOK_SECONDS)
                after = cpu_seconds(workers) + cpu_seconds([place.store_pid])
                time.sleep(SETTLE_SECONDS)
                done, first, last = place.tally()
        is_cut = found < count
        return {
            "runs/s": done / (last - first) if last > first else 0.0,
            "CPU us/run": (after - before) / max(done, 1) * 1e6,
            "cut": float(is_cut),
            "called wrongly": 0.0 if is_cut else float(abs(done - count)),
        }

    def _latency(self, setting: Setting, count: int) -> Figures:
        with self._place(setting) as place, pipe(self.lab) as begun, _working(place):
            found = json.loads(place.act("latency", str(count), str(begun.path)))
        waits = [seconds * 1000 for seconds in found["waits"]]
        calls = [seconds * 1000 for seconds in found["calls"]]
        return {
            "p50 ms": percentile(waits, 50),
            "p99 ms": percentile(waits, 99),
            "of it the call": percentile(calls, 50),
        }

    def _enqueue(self, setting: Setting, singles: int, bulk: int) -> Figures:
        with self._place(setting) as place:
            figures: Figures = json.loads(place.act("enqueue", str(singles), str(bulk)))
            return figures

    def _idle(self, setting: Setting, seconds: float) -> Figures:
        """After a few jobs, so that all has been started."""
        with self._place(setting) as place, _worked(place, 10) as workers:
            time.sleep(seconds / 4)
            before = _commands(place, reset=True)
            began, cpu = time.monotonic(), cpu_seconds(workers)
            time.sleep(seconds)
            lasted = time.monotonic() - began
            return {
                "statements/s": (_commands(place, reset=False) - before) / lasted,
                "CPU %": (cpu_seconds(workers) - cpu) / lasted * 100,
            }

    def _memory(self, setting: Setting, count: int) -> Figures:
        with self._place(setting) as place, _worked(place, count) as workers:
            return {"PSS MiB": pss_mib(workers)}


@contextmanager
def _working(place: Place) -> Iterator[list[int]]:
    """The pids of its processes; told to end in the end, and made to when they do not."""
    log = (place.folder / "log").open("w")
    processes = [
        subprocess.Popen(place.command("work"), env=place.environment(), stdout=log, stderr=log, cwd="/")
        for _ in range(place.setting.processes)
    ]
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                kill_tree(process.pid)
                process.wait()
        log.close()


@contextmanager
def _worked(place: Place, count: int) -> Iterator[list[int]]:
    """Working, and so many no-ops have been called."""
    place.act("load", "noop", str(count))
    with _working(place) as workers:
        wait_for(lambda: place.tally()[0] >= count, timeout_seconds=60, why="the jobs have been called")
        yield workers


@contextmanager
def _redis(folder: Path) -> Iterator[tuple[str, int]]:
    """A server of its own with the defaults of the distribution's package, on a Unix socket."""
    path = folder / "redis.sock"
    settings = ["--port", "0", "--unixsocket", str(path), "--dir", str(folder), "--loglevel", "warning"]
    server = subprocess.Popen(["redis-server", *settings], stdout=subprocess.DEVNULL)
    try:
        wait_for(path.exists)
        yield f"redis+socket://{path}", server.pid
    finally:
        server.terminate()
        server.wait()


def _analyze(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE")


@contextmanager
def _held(url: str, is_held: bool) -> Iterator[None]:
    if not is_held:
        yield
        return
    with snapshot_of(url):
        yield


def _commands(place: Place, *, reset: bool) -> int:
    """What its store has been asked so far."""
    if place.setting.is_on_redis:
        path = place.url.removeprefix("redis+socket://")
        told = subprocess.run(["redis-cli", "-s", path, "info", "stats"], capture_output=True, text=True, check=True)
        return int(told.stdout.partition("total_commands_processed:")[2].split()[0])
    with psycopg.connect(place.url, autocommit=True) as connection:
        if reset:
            reset_statements(connection)
            return 0
        return count_statements(connection)
