"""What is read off processes and the server: CPU time, memory, statements, complaints in logs."""

import math
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.support.processes import descendants_of

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(roots: Iterable[int], *, but: Collection[int] = ()) -> float:
    """CPU time of these processes and all below them, with what their collected children had; steps of 10 ms.

    `but` names processes, sessions of the bench's own, that are left out.
    """
    return sum(_cpu_of(pid) for root in roots for pid in (root, *descendants_of(root)) if pid not in but)


def _cpu_of(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0  # it has ended, and its parent's figure has it
    return sum(map(int, fields[11:15])) / _TICKS_PER_SECOND


def pss_mib(roots: Iterable[int]) -> float:
    """Proportional set size of these processes and all below them."""
    return sum(_pss_of(pid) for root in roots for pid in (root, *descendants_of(root)))


def _pss_of(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return int(text.partition("\nPss:")[2].split()[0]) / 1024


def reset_statements(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SELECT pg_stat_statements_reset()")


def count_statements(connection: psycopg.Connection[Any]) -> int:
    """Statements of this database since the reset, but those that look at pg_stat_statements.

    BEGIN and COMMIT are statements; what functions and triggers execute is not (pg_stat_statements.track = top).
    """
    row = connection.execute(
        """SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
            WHERE query NOT LIKE '%pg_stat_statements%'
              AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"""
    ).fetchone()
    assert row
    return int(row[0])


class LogTail:
    """What a log has got since this was made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin = path.stat().st_size

    def count(self, *texts: str) -> int:
        """How often any of the texts stands in it."""
        with self._path.open(errors="replace") as file:
            file.seek(self._begin)
            return sum(line.count(text) for line in file for text in texts)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
