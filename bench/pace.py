"""What is not a drain: how soon a run begins, how fast runs are submitted, and what an idle node costs."""

import os
import random
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from bench.lab import Lab
from bench.loops import BARE_SCHEMA
from bench.meters import count_statements, percentile, pss_mib, reset_statements
from bench.nodes import fleet
from bench.rounds import Cell, Figures
from bench.work import TRUE, is_drained, load_runs, make_job, node_settings
from forgeflow.service.bulk import submit_runs
from forgeflow.service.lifecycle import trigger_job
from forgeflow.store import runs
from tests.support.waiting import wait_for

# Between a run and the next submission: longer than a turn, and never in step with anything.
PAUSE_SECONDS = (0.01, 0.03)
LINE_SECONDS = 30.0


class Pipe:
    """A named pipe into which jobs write when they began, in nanoseconds since 1970, a line each."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "begun"
        os.mkfifo(self.path, 0o666)
        self.path.chmod(0o666)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)

    def read_time(self) -> float:
        """Wait for a line; seconds since 1970."""
        text = b""
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([self._descriptor], [], [], LINE_SECONDS)
            if not ready:
                raise TimeoutError(f"no job has begun within {LINE_SECONDS:g} s")
            text += os.read(self._descriptor, 100)
        return int(text) / 1e9

    def close(self) -> None:
        os.close(self._descriptor)
        self.path.unlink()


@contextmanager
def pipe(lab: Lab) -> Iterator[Pipe]:
    opened = Pipe(lab.folder)
    try:
        yield opened
    finally:
        opened.close()


def latencies(count: int, submit: Callable[[], object], begun: Pipe) -> Figures:
    """From before the call that submits to the first line of the job, with workers that are idle."""
    waits, calls = [], []
    for _ in range(count):
        time.sleep(random.uniform(*PAUSE_SECONDS))
        before = time.time()
        submit()
        calls.append((time.time() - before) * 1000)
        waits.append((begun.read_time() - before) * 1000)
    return {"p50 ms": percentile(waits, 50), "p99 ms": percentile(waits, 99), "of it the call": percentile(calls, 50)}


def stamp_work(path: Path, work: dict[str, Any]) -> dict[str, Any]:
    """A job of that executor that says when it began."""
    if work["executor"] == "python":
        return {**work, "payload": {"function": "stamp", "args": {"path": str(path)}}}
    return {**work, "payload": {"command": f"date +%s%N > {path}"}}


def latency_cells(lab: Lab, work: dict[str, Any], count: int) -> list[Cell]:
    def measure(work: dict[str, Any]) -> Figures:
        with lab.fresh_database() as database, pipe(lab) as begun, fleet(database, settings=node_settings(work)):
            job_id = make_job(database.connection, stamp_work(begun.path, work))
            return latencies(count, lambda: trigger_job(database.connection, job_id), begun)

    return [Cell("forgeflow", partial(measure, work)), Cell("forgeflow, shell", partial(measure, TRUE))]


# -- Enqueue ---------------------------------------------------------------------------------------


def rate(count: int, act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return count / (time.monotonic() - began)


def enqueue_cells(lab: Lab, work: dict[str, Any], singles: int, bulk: int) -> list[Cell]:
    """One producer, nobody who works; singles are durable and announced one by one."""

    def measure() -> Figures:
        with lab.fresh_database() as database:
            connection, job_id = database.connection, make_job(database.connection, work)

            def single() -> None:
                for _ in range(singles):
                    trigger_job(connection, job_id)

            return {
                "single/s": rate(singles, single),
                "bulk/s": rate(bulk, lambda: submit_runs(connection, job_id, [None] * bulk)),
            }

    return [Cell("forgeflow", measure), Cell("limit", partial(enqueue_bare, lab, singles, bulk))]


def enqueue_bare(lab: Lab, singles: int, bulk: int) -> Figures:
    """An insert with a NOTIFY in one transaction; one insert of all of them."""
    with lab.bare_database() as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(BARE_SCHEMA)

        def single() -> None:
            for _ in range(singles):
                with connection.pipeline():
                    connection.execute("INSERT INTO queue (payload) VALUES (%s::jsonb)", ['{"call": "noop"}'])
                    connection.execute("NOTIFY due")

        def many() -> None:
            connection.execute(
                "INSERT INTO queue (payload) SELECT unnest(%s::text[])::jsonb", [['{"call": "noop"}'] * bulk]
            )

        return {"single/s": rate(singles, single), "bulk/s": rate(bulk, many)}


# -- Idle ------------------------------------------------------------------------------------------


def idle_cells(lab: Lab, seconds: float) -> list[Cell]:
    """A node with nothing to do: statements by the server's count, CPU time of master and children."""

    def measure(workers: int) -> Figures:
        with lab.fresh_database() as database, fleet(database, workers=workers) as started:
            time.sleep(seconds / 4)  # what follows a start, as the first look for runs without an owner
            reset_statements(database.connection)
            began, cpu = time.monotonic(), started.cpu_seconds()
            time.sleep(seconds)
            lasted = time.monotonic() - began
            return {
                "statements/s": count_statements(database.connection) / lasted,
                "CPU %": (started.cpu_seconds() - cpu) / lasted * 100,
            }

    return [Cell(f"forgeflow, {workers} workers", partial(measure, workers)) for workers in (4, 16)]


def memory_cells(lab: Lab, work: dict[str, Any], count: int) -> list[Cell]:
    """Master, courier and 4 workers, after they have worked."""
    settings = {**node_settings(work), "server__roles": "worker"}

    def measure() -> Figures:
        with lab.fresh_database() as database, fleet(database, settings=settings) as started:
            job_id = make_job(database.connection, work)
            with database.connection.transaction():
                load_runs(database.connection, job_id, count)
            runs.announce_due(database.connection)
            wait_for(lambda: is_drained(database, job_id), timeout_seconds=120)
            return {"PSS MiB": pss_mib(started.pids)}

    return [Cell("forgeflow", measure)]
