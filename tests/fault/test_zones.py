"""Nodes with other time zone data."""

import json
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import tzdata  # type: ignore[import-untyped]

from forgeflow.store.connection import Connection
from forgeflow.store.ticks import find_zone_version
from tests.support.processes import NodeProcess
from tests.support.waiting import wait_for
from tests.support.work import submit

StartNode = Callable[..., NodeProcess]

OLD, NEW = "2099a", "2099b"
EVENTS = ("time zone data recorded", "time zone data differ from those of the stored ticks", "ticks recomputed")


def make_zones(folder: Path, version: str, **files: str) -> Path:
    """All zones under that version; keywords name cities of Europe and the zone's file that each of them has."""
    shutil.copytree(Path(tzdata.__file__).parent / "zoneinfo", folder)
    for city, other in files.items():
        shutil.copyfile(folder / other, folder / "Europe" / city)
    (folder / "tzdata.zi").write_text(f"# version {version}\n")
    return folder


def start_with(start_node: StartNode, zones: Path, **settings: Any) -> NodeProcess:
    return start_node(server__roles="scheduler", environment={"PYTHONTZPATH": str(zones)}, **settings)


def told(node: NodeProcess, *events: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in node.log_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] in events]


def next_run(connection: Connection, job_id: object) -> datetime:
    row = connection.execute("SELECT next_run_at FROM jobs WHERE id = %s", [job_id]).fetchone()
    assert row
    found: datetime = row[0]
    return found


def test_leader_with_new_zone_data_moves_what_is_to_come(
    start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    """A fixed offset takes Berlin's place, so that the move is the same all the year round; Tokyo stays."""
    berlin = submit(connection, "true", cron_expr="0 9 1 7 *", timezone="Europe/Berlin")
    tokyo = submit(connection, "true", cron_expr="0 9 1 7 *", timezone="Asia/Tokyo")
    before = {job: next_run(connection, job) for job in (berlin, tokyo)}
    old = make_zones(tmp_path / "old", OLD)
    new = make_zones(tmp_path / "new", NEW, Berlin="Etc/GMT+3")

    first = start_with(start_node, old)
    wait_for(lambda: find_zone_version(connection) == OLD)
    assert first.stop() == 0
    assert {job: next_run(connection, job) for job in before} == before
    assert [line["event"] for line in told(first, *EVENTS)] == ["time zone data recorded"]

    second = start_with(start_node, new)
    second.wait_for_log("ticks recomputed")
    assert find_zone_version(connection) == NEW
    after = before[berlin] + timedelta(hours=5)
    assert {job: next_run(connection, job) for job in before} == {berlin: after, tokyo: before[tokyo]}
    (move,) = told(second, "tick moved")
    expected = {
        "job_id": str(berlin),
        "from_at": before[berlin].isoformat(),
        "to_at": after.isoformat(),
        "reason": f"time zone data {OLD} -> {NEW}",
    }
    assert expected.items() <= move.items()
    assert second.stop() == 0

    third = start_with(start_node, old)
    third.wait_for_log("ticks recomputed")
    assert next_run(connection, berlin) == before[berlin], "as on nodes of two kinds that lead in turn"
    (warning,) = told(third, EVENTS[1])
    assert {"version": OLD, "recorded": NEW, "level": "warning"}.items() <= warning.items()


def test_leader_that_recomputes_fires_what_comes_due_and_hears_that_it_is_to_stop(
    start_node: StartNode, connection: Connection, tmp_path: Path
) -> None:
    """Fourteen thousand jobs, and one that is due each second all the while."""
    job = submit(connection, "true", cron_expr="0 9 1 7 *", timezone="Europe/Berlin")
    for day in range(1, 11):
        connection.execute(
            "INSERT INTO jobs (name, executor, payload, cron_expr, timezone, next_run_at)"
            " SELECT 'many', executor, payload, format('%%s %%s %%s 7 *', n %% 60, n / 60, %s::int), timezone,"
            " next_run_at FROM jobs, generate_series(0, 1439) AS n WHERE id = %s",
            [day, job],
        )
    connection.execute("INSERT INTO leader VALUES (true, 1, uuid_v7(), 'other', DEFAULT, %s)", [OLD])
    node = start_with(start_node, make_zones(tmp_path / "new", NEW))
    node.wait_for_log("tick moved")
    second = submit(connection, "true", cron_expr="* * * * * *")

    def late_seconds() -> list[float]:
        rows = connection.execute(
            "SELECT extract(epoch FROM fired_at - tick_at)::float8 FROM ticks WHERE job_id = %s ORDER BY tick_at",
            [second],
        ).fetchall()
        return [float(late) for (late,) in rows]

    wait_for(lambda: len(late_seconds()) >= 3)
    assert find_zone_version(connection) == f"{OLD}, partly {NEW}", "it is in the middle of it"
    node.signal(15)
    node.wait_for_log("leadership resigned", timeout_seconds=4.0)
    assert node.wait() == 0
    assert "ticks recomputed" not in node.log_text()
    assert max(late_seconds()) < 2.0, "it waits for a batch, not for the walk"
    assert "overran its budget" not in node.log_text()
