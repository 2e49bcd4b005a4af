"""Real nodes with the settings that users have."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lab import Database
from bench.meters import cpu_seconds
from tests.support.processes import NodeProcess, nodes
from tests.support.waiting import wait_for

# Every setting that the tests' nodes have their own value for, with its default; and the default level of the log.
DEFAULTS: dict[str, Any] = {
    "worker__lease_duration": "30s",
    "worker__heartbeat_interval": "10s",
    "worker__statement_deadline": "5s",
    "worker__recovery_interval": "5s",
    "worker__kill_grace": "10s",
    "worker__fence_margin": "5s",
    "worker__fence_grace": "3s",
    "worker__drain_timeout": "5m",
    "scheduler__campaign_interval": "5s",
    "scheduler__tick": "1s",
    "retry__base": "5s",
    "retry__cap": "15m",
    "log__level": "info",
    "log__format": "auto",
}
NOTHING: Mapping[str, str] = {}
HOME = Path(__file__).resolve().parent.parent

# What must not stand in a node's log after a measurement.
COMPLAINTS = ("deadlock", "stale result dropped", '"level": "error"', '"level": "warning"')


@dataclass(slots=True)
class Fleet:
    """Running nodes; `complaints` are lines of their logs that should not be there, counted when they have stopped."""

    nodes: list[NodeProcess]
    complaints: int = 0

    @property
    def pids(self) -> list[int]:
        return [node.pid for node in self.nodes]

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pids)


@contextmanager
def fleet(
    database: Database, *, count: int = 1, workers: int = 4, settings: Mapping[str, str] = NOTHING
) -> Iterator[Fleet]:
    """So many nodes with so many workers each, ready; stopped in the end.  Keys of `settings` are `section__key`."""
    with nodes() as start:
        started = [
            start(
                database.url,
                environment={"PYTHONPATH": str(HOME)},
                worker__concurrency=str(workers),
                worker__id=f"bench-{number}",
                **{**DEFAULTS, **settings},
            )
            for number in range(count)
        ]
        for node in started:
            node.wait_for_log("node ready", timeout_seconds=60)
        wait_for(lambda: count_workers(database) == count * workers, why="all workers are ready", timeout_seconds=60)
        ready = Fleet(started)
        yield ready
        for node in started:
            node.stop()
        ready.complaints = sum(map(_complaints, started))


def _complaints(node: NodeProcess) -> int:
    return sum(any(complaint in line for complaint in COMPLAINTS) for line in node.log_text().splitlines())


def count_workers(database: Database) -> int:
    row = database.connection.execute("SELECT count(*) FROM workers").fetchone()
    assert row
    return int(row[0])
