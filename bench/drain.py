"""Backlogs of runs that end at once: how fast they are worked off, and what that costs."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import psycopg

from bench.lab import Database, Lab, vacuum
from bench.loops import Drain, bare_drain, own_drain, prepare_bare, run_loops, spawning
from bench.meters import LogTail, cpu_seconds
from bench.nodes import NOTHING, fleet
from bench.rounds import Cell, Figures
from bench.work import (
    TRUE,
    Outcome,
    is_drained,
    load_counted,
    load_history,
    load_runs,
    make_job,
    node_settings,
    outcome_of,
)
from forgeflow.store import runs

WORKERS = 4
# So seldom because a look costs the server; the rate is the tables'.
LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 60.0

Work = dict[str, Any]
Around = Callable[[Database], AbstractContextManager[None]]


def nothing_around(_database: Database) -> AbstractContextManager[None]:
    return nullcontext()


# -- One drain -------------------------------------------------------------------------------------


def drain_fresh(
    lab: Lab,
    work: Work,
    count: int,
    *,
    nodes: int = 1,
    workers: int = WORKERS,
    around: Around = nothing_around,
    settings: Mapping[str, str] = NOTHING,
) -> Figures:
    """`drain_in` a database of its own."""
    with lab.fresh_database() as database:
        return drain_in(database, work, count, nodes=nodes, workers=workers, around=around, settings=settings)


def drain_in(
    database: Database,
    work: Work,
    count: int,
    *,
    nodes: int = 1,
    workers: int = WORKERS,
    around: Around = nothing_around,
    settings: Mapping[str, str] = NOTHING,
) -> Figures:
    """That many runs come all at once to idle nodes, who are told when the last one is there.

    `around` is entered before the load and left after the drain. What has not ended when the patience is over is taken
    away, and the rate is that of what has.
    """
    connection = database.connection
    server_log = LogTail(database.server_log)
    job_id = make_job(connection, work)
    chosen = {**node_settings(work), **settings}
    with fleet(database, count=nodes, workers=workers, settings=chosen) as started, around(database):
        load_counted(connection, job_id, count)
        before = started.cpu_seconds(), _server_cpu(database)
        runs.announce_due(connection)
        is_whole = _wait_until(lambda: is_drained(database, job_id))
        after = started.cpu_seconds(), _server_cpu(database)
        outcome = outcome_of(database, job_id)
        if not is_whole:
            connection.execute("DELETE FROM queue WHERE job_id = %s AND boot_id IS NULL", [job_id])
    return {
        **_rates(outcome, workers=after[0] - before[0], server=after[1] - before[1]),
        "lost": float(count - outcome.finished if is_whole else 0),
        "run twice": float(outcome.run_twice),
        "handed back": float(outcome.handed_back),
        "complaints": float(started.complaints + server_log.count("deadlock detected")),
        "cut": float(not is_whole),
    }


def _server_cpu(database: Database) -> float:
    return cpu_seconds([database.server_pid], but={database.own_backend})


def _wait_until(condition: Callable[[], bool]) -> bool:
    """False when the patience is over."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (is_true := condition()) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    return is_true


def _rates(outcome: Outcome, *, workers: float, server: float) -> Figures:
    finished = max(outcome.finished, 1)
    return {
        "runs/s": outcome.finished / outcome.seconds if outcome.seconds else 0.0,
        "CPU us/run": (workers + server) / finished * 1e6,
        "of it workers": workers / finished * 1e6,
        "last/first tenth": outcome.steadiness,
    }


# -- The loops -------------------------------------------------------------------------------------


def loop_bare(lab: Lab, work: str, count: int, batch: int) -> Figures:
    with lab.bare_database() as url:
        prepare_bare(url, count, work)
        return _looped(lab, bare_drain, url, batch)


def loop_own(lab: Lab, work: Work, count: int, batch: int) -> Figures:
    with lab.fresh_database() as database:
        job_id = make_job(database.connection, work)
        load_counted(database.connection, job_id, count)
        return _looped(lab, own_drain, database.url, batch)


def loop_spawn(lab: Lab, count: int) -> Figures:
    return _looped(lab, spawning, "", count)


def _looped(lab: Lab, make: Callable[[str, int, int], Drain], url: str, argument: int) -> Figures:
    before = list[float]()
    shares = run_loops(make, url, argument, lambda: before.append(cpu_seconds([lab.server_pid])))
    server = cpu_seconds([lab.server_pid]) - before[0]
    done = sum(share.done for share in shares)
    seconds = max(share.ended for share in shares) - min(share.began for share in shares)
    workers = sum(share.cpu_seconds for share in shares)
    return {
        "runs/s": done / seconds,
        "CPU us/run": (workers + server) / done * 1e6,
        "of it workers": workers / done * 1e6,
    }


# -- Scenarios -------------------------------------------------------------------------------------


def drain_cells(lab: Lab, work: Work, count: int) -> list[Cell]:
    """4 workers, and the loops at the batches that the targets speak of."""
    few = max(count // 5, 1)
    return [
        Cell("forgeflow", partial(drain_fresh, lab, work, count)),
        Cell("forgeflow, batch 1", partial(drain_fresh, lab, work, few, settings={"worker__claim_batch": "1"})),
        Cell("limit, batch 100", partial(loop_bare, lab, "noop", count, 100)),
        Cell("limit, batch 20", partial(loop_bare, lab, "noop", count, 20)),
        Cell("limit, batch 1", partial(loop_bare, lab, "noop", few, 1)),
        Cell("own statements, batch 100", partial(loop_own, lab, work, count, 100)),
        Cell("own statements, batch 20", partial(loop_own, lab, work, count, 20)),
        Cell("own statements, batch 1", partial(loop_own, lab, work, few, 1)),
    ]


def shell_cells(lab: Lab, count: int) -> list[Cell]:
    """`true` by the shell, by subprocess in the limit's loop, and by posix_spawn with no database at all."""
    return [
        Cell("forgeflow", partial(drain_fresh, lab, TRUE, count)),
        Cell("limit, subprocess", partial(loop_bare, lab, "true", count, 20)),
        Cell("posix_spawn", partial(loop_spawn, lab, count)),
    ]


def history_cells(lab: Lab, work: Work, count: int, finished: int) -> list[Cell]:
    """With that many finished runs of another job beside it, and without."""

    def with_history() -> Figures:
        database, is_new = lab.kept_database("history")
        if is_new:
            load_history(database.connection, make_job(database.connection, work), finished)
            vacuum(database.connection, "finished_runs")
        return drain_in(database, work, count)

    return [
        Cell("without", partial(drain_fresh, lab, work, count)),
        Cell("with history", with_history),
    ]


def delayed_cells(lab: Lab, work: Work, count: int, delayed: int) -> list[Cell]:
    """With that many runs of priority 1 that are due tomorrow, and without."""

    @contextmanager
    def delayed_runs(database: Database) -> Iterator[None]:
        job_id = make_job(database.connection, work)
        load_runs(database.connection, job_id, delayed, priority=1, delay_seconds=86400.0)
        vacuum(database.connection, "queue")
        yield

    return [
        Cell("without", partial(drain_fresh, lab, work, count)),
        Cell("with delayed runs", partial(drain_fresh, lab, work, count, around=delayed_runs)),
    ]


def snapshot_cells(lab: Lab, work: Work, count: int) -> list[Cell]:
    """While a transaction that began before keeps its snapshot, and without."""
    return [
        Cell("without", partial(drain_fresh, lab, work, count)),
        Cell("old snapshot", partial(drain_fresh, lab, work, count, around=old_snapshot)),
    ]


def old_snapshot(database: Database) -> AbstractContextManager[None]:
    return snapshot_of(database.url)


@contextmanager
def snapshot_of(url: str) -> Iterator[None]:
    """An idle transaction that keeps its snapshot, so that nothing that is deleted meanwhile can be removed."""
    with psycopg.connect(url) as idle:
        idle.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        idle.execute("SELECT count(*) FROM pg_class")
        yield


def worker_cells(lab: Lab, work: Work, count: int) -> list[Cell]:
    return [
        Cell(
            f"{workers} workers" if workers > 1 else "1 worker", partial(drain_fresh, lab, work, count, workers=workers)
        )
        for workers in (1, 2, 4, 8)
    ]


def node_cells(lab: Lab, work: Work, count: int) -> list[Cell]:
    """The same number of workers in all."""
    return [
        Cell(
            f"{nodes} nodes of {WORKERS // nodes}" if nodes > 1 else f"1 node of {WORKERS}",
            partial(drain_fresh, lab, work, count, nodes=nodes, workers=WORKERS // nodes),
        )
        for nodes in (1, 2, 4)
    ]
