"""What the bench measures, as counts: they are the same on every machine. And that the bench itself works."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from bench.__main__ import NAMES, scenarios
from bench.drain import drain_fresh, loop_bare, loop_own, loop_spawn
from bench.lab import Lab
from bench.loops import bare_drain, own_drain, run_loops
from bench.pace import enqueue_bare, latency_cells
from bench.peers.contest import Contest
from bench.peers.environments import PACKAGES
from bench.rounds import Cell, run_rounds
from bench.table import scenario_lines, target_lines
from bench.targets import TARGETS
from bench.work import NOOP, TRUE, load_counted, make_job
from forgeflow.store.connection import Connection
from forgeflow.store.statements import statement
from tests.support.processes import nodes
from tests.support.scenario import bulk_runs, make_worker
from tests.support.waiting import wait_for

LINE = re.compile(r"^(?P<at>\S+ \S+) \S+ \[\d+\] LOG:  (?:statement|execute [^:]*): (?P<text>.*)")


class StatementLog:
    """Every statement of the sessions that are opened from now on, as the server logs them: one line for each."""

    def __init__(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            name = sql.Identifier(str(conninfo_to_dict(url)["dbname"]))
            connection.execute(sql.SQL("ALTER DATABASE {} SET log_statement = 'all'").format(name))
        self._path = server_folder(url).parent / "server.log"
        self._begin = self._path.stat().st_size

    def lines(self) -> list[tuple[datetime, str]]:
        """When, to the millisecond, and the first line of the text."""
        with self._path.open(errors="replace") as file:
            file.seek(self._begin)
            found = [match for line in file if (match := LINE.match(line))]
        return [(datetime.fromisoformat(match["at"]), match["text"]) for match in found]

    def count(self, text: str) -> int:
        return sum(line == text for _, line in self.lines())


def server_folder(url: str) -> Path:
    with psycopg.connect(url) as connection:
        row = connection.execute("SHOW data_directory").fetchone()
        assert row
        return Path(row[0])


def first_line(name: str) -> str:
    """By which the log knows a statement."""
    return statement(name).splitlines()[0]


@pytest.fixture
def lab(server_url: str, template: str, tmp_path: Path) -> Iterator[Lab]:
    folder = server_folder(server_url)
    pid = int((folder / "postmaster.pid").read_text().split()[0])
    opened = Lab(server_url, pid, folder.parent / "server.log", tmp_path, template)
    yield opened
    opened.close()


@pytest.mark.parametrize(("runs", "batch"), [(100, 20), (100, 1), (30, 100)])
def test_drain_takes_two_statements_for_each_batch(
    connection: Connection, database_url: str, runs: int, batch: int
) -> None:
    load_counted(connection, make_job(connection, NOOP), runs)
    log = StatementLog(database_url)
    assert own_drain(database_url, 1, batch)() == runs
    finishes, claims = log.count(first_line("runs/finish_runs")), log.count(first_line("runs/claim_runs"))
    assert finishes == math.ceil(runs / batch)
    assert claims <= finishes + 2


def test_finish_goes_by_primary_key_in_a_long_queue(connection: Connection) -> None:
    bulk_runs(connection, make_job(connection, TRUE), 5000)
    connection.execute("ANALYZE queue")
    owner = make_worker(connection)
    text = str(statement("runs/finish_runs"))
    for number, name in enumerate(("boot_id", "child", "reports"), 1):
        text = text.replace(f"%({name})s", f"${number}")
    connection.execute("SET plan_cache_mode = force_generic_plan")
    connection.execute(f"PREPARE finishing (uuid, int, jsonb) AS {text}")
    rows = connection.execute(f"EXPLAIN EXECUTE finishing ('{owner.boot_id}', {owner.child}, '[]')").fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert "queue_pkey" in plan, plan
    assert "Seq Scan on queue" not in plan, plan


# What an idle node asks for, in statements a second at the defaults, but for what comes once in half a minute or less
# often. The last one is the leader's.
DUTIES = {
    "nodes/beat_node": 0.1,
    "runs/peek_queue": 0.1,
    "nodes/expired_workers": 0.2,
    "nodes/delete_stale_nodes": 0.034,
    "ticks/seconds_to_next": 0.5,
}


def test_idle_node_asks_for_nothing_but_its_duties(database_url: str) -> None:
    """The defaults, ten times as fast; over two beats, so that what is periodic comes twice, what is rare once."""
    faster = 10.0
    intervals = {
        "worker__lease_duration": "3s",
        "worker__heartbeat_interval": "1s",
        "worker__recovery_interval": "500ms",
        "scheduler__campaign_interval": "500ms",
        "scheduler__tick": "100ms",
    }
    log = StatementLog(database_url)
    beat = first_line("nodes/beat_node")
    with nodes() as start:
        node = start(database_url, worker__concurrency="4", **intervals)
        node.wait_for_log("leadership won")
        settled = log.count(beat) + 1
        wait_for(lambda: log.count(beat) > settled + 1)
        node.stop()
    lines = log.lines()
    first, _, last = [number for number, (_, text) in enumerate(lines) if text == beat][settled - 1 : settled + 2]
    seconds = (lines[last][0] - lines[first][0]).total_seconds() * faster
    rates = {first_line(name): rate for name, rate in DUTIES.items()}
    assert sum(DUTIES.values()) <= 1.2
    for text, count in Counter(text for _, text in lines[first:last]).items():
        assert count <= rates.get(text, 0.0) * seconds + 1, text


def cells_of(lab: Lab) -> dict[str, list[Cell]]:
    contest = Contest(lab, dict.fromkeys(PACKAGES, Path("python")))
    every = scenarios(lab, "noop", 0.001)
    return {name: [*every[name].cells(), *every[name].peers(contest)] for name in every}


def test_every_target_speaks_of_cells_that_are_measured(lab: Lab) -> None:
    named = {name: {cell.name for cell in cells} for name, cells in cells_of(lab).items()}
    assert list(named) == NAMES
    for target in TARGETS:
        places = {target.ours[0], *(cell for cell, _ in target.theirs)}
        # Not every peer is in every scenario: of several the best of those that are counts.
        assert places & named[target.scenario] == places or len(target.theirs) > 1, target


def test_the_loops_do_all_of_their_work(lab: Lab) -> None:
    cells = [
        Cell("limit", lambda: loop_bare(lab, "true", 20, 10)),
        Cell("own statements", lambda: loop_own(lab, NOOP, 20, 10)),
        Cell("posix_spawn", lambda: loop_spawn(lab, 20)),
        Cell("enqueue", lambda: enqueue_bare(lab, 3, 20)),
    ]
    results = run_rounds("loops", cells, 1)
    assert [results.failures(cell.name) for cell in cells] == [0, 0, 0, 0]
    for cell in cells[:3]:
        assert results.median(cell.name, "runs/s")
    assert len(list(scenario_lines("loops", results))) == 6


def test_what_goes_wrong_in_a_loop_is_told() -> None:
    with pytest.raises(RuntimeError, match="loop 3: OperationalError"):
        run_loops(bare_drain, "host=/nowhere", 1, lambda: None)


def test_a_drain_loses_nothing_and_its_table_says_so(lab: Lab) -> None:
    results = run_rounds("drain", [Cell("forgeflow", lambda: drain_fresh(lab, NOOP, 30))], 1)
    assert results.median("forgeflow", "runs/s")
    assert [results.total(count) for count in ("lost", "run twice", "complaints", "cut")] == [0, 0, 0, 0]
    lines = list(target_lines({"drain": results}))
    assert [line.split()[:2] for line in lines[-3:]] == [["11", "lost"], ["11", "run"], ["11", "complaints"]]


def test_latency_is_taken_from_the_job_itself(lab: Lab) -> None:
    (functions, _shell) = latency_cells(lab, NOOP, 3)
    figures = functions.measure()
    assert 0 < figures["p50 ms"] <= figures["p99 ms"]
