"""Loops without a product around them: what this machine and its server give at most.

Four processes with a connection each, no master, no leases but what a statement itself looks at. `bare` is the limit
that the targets were set against: a schema of two tables and nothing else, finish and claim in one pipeline. `own` is
the same loop with the product's own statements over its own schema, so what lies between the two is the price of the
schema and of its guarantees, and what lies between `own` and a node is the price of the processes.
"""

import multiprocessing
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from typing import Any
from uuid import uuid4

import psycopg

from bench.lab import config_for
from forgeflow.domain.run import Ending
from forgeflow.functions.catalogue import catalogue_id
from forgeflow.process.clock import boottime
from forgeflow.store.connection import connect
from forgeflow.store.nodes import register_worker
from forgeflow.store.runs import Owner, take_turn
from forgeflow.worker.watermark import Watermark

PROCESSES = 4
READY_SECONDS = 60.0
SHELL = ["/bin/sh", "-c", "true"]
# A watermark may hide what comes late with a smaller key, so it is dropped now and then.
WATERMARK_SECONDS = 0.5

BARE_SCHEMA = """
CREATE TABLE queue (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payload    jsonb NOT NULL,
    priority   smallint NOT NULL DEFAULT 5,
    run_after  timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempt    int NOT NULL DEFAULT 0,
    worker     int,
    started_at timestamptz
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX queue_due_idx ON queue (priority, run_after, id);
CREATE TABLE history (
    id          bigint PRIMARY KEY,
    payload     jsonb NOT NULL,
    priority    smallint NOT NULL,
    attempt     int NOT NULL,
    worker      int NOT NULL,
    started_at  timestamptz NOT NULL,
    status      text NOT NULL,
    finished_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""

BARE_CLAIM = """
WITH due AS MATERIALIZED (
    SELECT id FROM queue
     WHERE worker IS NULL AND run_after <= now()
       AND (priority, run_after, id) > (%(priority)s::smallint, %(run_after)s::timestamptz, %(id)s::bigint)
     ORDER BY priority, run_after, id
     LIMIT %(batch)s::int
       FOR NO KEY UPDATE SKIP LOCKED)
UPDATE queue AS q SET worker = %(worker)s::int, attempt = q.attempt + 1, started_at = clock_timestamp()
  FROM due WHERE q.id = due.id
RETURNING q.id, q.payload, q.priority, q.run_after
"""

BARE_FINISH = """
WITH gone AS (
    DELETE FROM queue WHERE id = ANY (%(ids)s::bigint[]) AND worker = %(worker)s::int RETURNING *)
INSERT INTO history (id, payload, priority, attempt, worker, started_at, status)
SELECT id, payload, priority, attempt, worker, started_at, 'succeeded' FROM gone
"""


def nothing() -> None:
    """What a no-op run calls."""


def true() -> None:
    """What a shell run executes."""
    subprocess.run(SHELL, check=True)


WORK: dict[str, Callable[[], None]] = {"noop": nothing, "true": true}
FIRST_KEY: dict[str, Any] = {"priority": 0, "run_after": "-infinity", "id": 0}


@dataclass(frozen=True, slots=True)
class Share:
    """What one process did; times are on CLOCK_MONOTONIC, which all processes of a machine share."""

    began: float
    ended: float
    cpu_seconds: float
    done: int


Drain = Callable[[], int]


def prepare_bare(url: str, count: int, work: str) -> None:
    """The two tables, that many runs in the queue, and its statistics as autovacuum makes them."""
    with psycopg.connect(url) as connection:
        connection.execute(BARE_SCHEMA)
        connection.execute(
            "INSERT INTO queue (payload) SELECT jsonb_build_object('call', %s::text) FROM generate_series(1, %s)",
            [work, count],
        )
        connection.execute("ANALYZE queue")


def bare_drain(url: str, number: int, batch: int) -> Drain:
    """Finish and claim in one pipeline, until nothing is due."""
    connection = psycopg.connect(url, autocommit=True)

    def turn(ids: Sequence[int], after: dict[str, Any]) -> list[Any]:
        with connection.pipeline():
            if ids:
                connection.execute(BARE_FINISH, {"ids": list(ids), "worker": number}, prepare=True)
            claim = connection.execute(BARE_CLAIM, {**after, "batch": batch, "worker": number}, prepare=True)
        return claim.fetchall()

    def drain() -> int:
        done, ids, after, dropped_at = 0, list[int](), FIRST_KEY, time.monotonic()
        while True:
            rows = turn(ids, after)
            if not rows and after is FIRST_KEY:
                return done
            for _, payload, _, _ in rows:
                WORK[payload["call"]]()
            ids = [row[0] for row in rows]
            done += len(ids)
            if len(rows) < batch or time.monotonic() > dropped_at + WATERMARK_SECONDS:
                after, dropped_at = FIRST_KEY, time.monotonic()
            else:
                last = max(rows, key=lambda row: (row[2], row[3], row[0]))
                after = {"priority": last[2], "run_after": last[3], "id": last[0]}

    return drain


def own_drain(url: str, number: int, batch: int) -> Drain:
    """The same with the product's turn, under a worker's row and lease."""
    connection = connect(config_for(url), "bench:own")
    owner = Owner(uuid4(), number)
    register_worker(
        connection,
        boot_id=owner.boot_id,
        child=owner.child,
        worker_id=f"loop-{number}",
        lease_seconds=3600.0,
        catalogue=catalogue_id(["noop"]),
        functions=["noop"],
    )

    def drain() -> int:
        done, endings, watermark = 0, list[Ending](), Watermark()
        while True:
            bounds = watermark.bounds(boottime())
            result = take_turn(
                connection, owner, endings, max_runs=batch, bounds=bounds, retry_base=5.0, retry_cap=900.0
            )
            watermark.note(result.claimed, batch)
            if not result.claimed and watermark.is_whole:
                return done
            for _ in result.claimed:
                nothing()
            endings = [Ending(run.id, run.attempt) for run in result.claimed]
            done += len(endings)

    return drain


def spawning(_url: str, number: int, count: int) -> Drain:
    """Nothing but posix_spawn and waitpid, its share of that many times."""

    def drain() -> int:
        share = count // PROCESSES + (number < count % PROCESSES)
        for _ in range(share):
            os.waitpid(os.posix_spawn(SHELL[0], SHELL, os.environ), 0)
        return share

    return drain


def run_loops(
    make: Callable[[str, int, int], Drain], url: str, argument: int, begin: Callable[[], None]
) -> list[Share]:
    """`PROCESSES` of these loops side by side; `begin` is called when all of them are about to start.

    Raises RuntimeError for what went wrong in one of them.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # imported once, by a process that has no connection yet
    barrier = context.Barrier(PROCESSES + 1)
    answers: SimpleQueue[Share | str] = context.SimpleQueue()
    processes = [
        context.Process(target=_loop, args=(make, url, number, argument, barrier, answers))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    with suppress(BrokenBarrierError):  # the answers say why
        barrier.wait(READY_SECONDS)
        begin()
        barrier.wait(READY_SECONDS)
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    if errors := [answer for answer in found if isinstance(answer, str)]:
        raise RuntimeError("; ".join(errors))
    return [answer for answer in found if isinstance(answer, Share)]


def _loop(
    make: Callable[[str, int, int], Drain],
    url: str,
    number: int,
    argument: int,
    barrier: Barrier,
    answers: "SimpleQueue[Share | str]",
) -> None:
    try:
        drain = make(url, number, argument)
        barrier.wait(READY_SECONDS)
        barrier.wait(READY_SECONDS)
        began, cpu = time.monotonic(), _cpu_seconds()
        done = drain()
        answers.put(Share(began, time.monotonic(), _cpu_seconds() - cpu, done))
    except Exception as error:  # noqa: BLE001 - the edge of the process
        barrier.abort()
        answers.put(f"loop {number}: {type(error).__name__} {error}")


def _cpu_seconds() -> float:
    """Of this process and of those that it has collected."""
    return sum(os.times()[:4])
