"""Time zone data that change under stored ticks."""

import shutil
import zoneinfo
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import tzdata  # type: ignore[import-untyped]
from structlog.testing import capture_logs

from forgeflow.config import Config
from forgeflow.domain.schedule import Schedule
from forgeflow.scheduler.ticks import PassResult, TickPasses
from forgeflow.scheduler.zones import Recomputation, begin_recomputation, read_version
from forgeflow.store import ticks
from forgeflow.store.connection import Connection, transaction
from forgeflow.store.statements import statement
from tests.support.scenario import make_job

OLD, NEW = "1999a", "2999z"
CRON, ZONE = "0 9 1 1 *", "Europe/Berlin"
HOUR = timedelta(hours=1)


def lead(connection: Connection, version: str, go_on: Callable[[], bool] = lambda: True) -> Recomputation | None:
    """Be a new leader with data of that version."""
    term = ticks.begin_term(connection, boot_id=uuid4(), worker_id="node")
    return begin_recomputation(connection, version=version, term=term, go_on=go_on)


def walk(connection: Connection, version: str) -> None:
    """All that a leader with other data has to do, which nobody hinders."""
    recomputation = lead(connection, version)
    assert recomputation
    while not recomputation.run_batch():
        assert not recomputation.is_waiting


def recorded(connection: Connection) -> str | None:
    return ticks.find_zone_version(connection)


def right_tick() -> datetime:
    """The next tick of CRON under the data of today."""
    tick = Schedule(CRON, ZONE).next_after(datetime.now(UTC))
    assert tick
    return tick


def stale_tick() -> datetime:
    """What other data might have made of it, and not due before the test is over."""
    return right_tick() + HOUR


def make_stale(connection: Connection, count: int = 1) -> list[UUID]:
    tick = stale_tick()
    with transaction(connection):
        return [make_job(connection, cron_expr=CRON, timezone=ZONE, next_run_at=tick) for _ in range(count)]


def next_run(connection: Connection, job_id: UUID) -> datetime | None:
    row = connection.execute("SELECT next_run_at FROM jobs WHERE id = %s", [job_id]).fetchone()
    assert row
    return row[0]  # type: ignore[no-any-return]


def moved(connection: Connection) -> int:
    row = connection.execute("SELECT count(*) FROM jobs WHERE next_run_at = %s", [right_tick()]).fetchone()
    assert row
    return int(row[0])


def test_first_leader_records_the_version(connection: Connection) -> None:
    (job,) = make_stale(connection)
    assert lead(connection, OLD) is None
    assert recorded(connection) == OLD
    assert next_run(connection, job) == stale_tick()


def test_same_version_moves_nothing(connection: Connection) -> None:
    (job,) = make_stale(connection)
    assert lead(connection, OLD) is None
    with capture_logs() as logs:
        assert lead(connection, OLD) is None
    assert next_run(connection, job) == stale_tick()
    assert logs == []


def test_other_version_moves_future_ticks_and_tells_which(connection: Connection) -> None:
    lead(connection, OLD)
    (stale,) = make_stale(connection)
    right = make_job(connection, cron_expr=CRON, timezone=ZONE, next_run_at=right_tick())
    with capture_logs() as logs:
        walk(connection, NEW)
    assert next_run(connection, stale) == next_run(connection, right) == right_tick()
    assert recorded(connection) == NEW
    reason = f"time zone data {OLD} -> {NEW}"
    assert logs == [
        {
            "event": "time zone data differ from those of the stored ticks",
            "log_level": "warning",
            "version": NEW,
            "recorded": OLD,
        },
        {
            "event": "tick moved",
            "log_level": "info",
            "job_id": str(stale),
            "job_name": "job",
            "from_at": stale_tick().isoformat(),
            "to_at": right_tick().isoformat(),
            "reason": reason,
        },
        {"event": "ticks recomputed", "log_level": "info", "jobs": 2, "moved": 1, "reason": reason},
    ]


def test_more_jobs_than_a_batch_holds_are_all_moved(connection: Connection) -> None:
    lead(connection, OLD)
    jobs = make_stale(connection, 250)
    with capture_logs() as logs:
        walk(connection, NEW)
    assert moved(connection) == len(jobs)
    assert (logs[-1]["jobs"], logs[-1]["moved"]) == (250, 250)


def test_page_of_future_ticks_costs_no_more_than_its_jobs(connection: Connection) -> None:
    """A walk reads each job once, not all that are left for each page."""
    jobs = make_stale(connection, 1000)
    connection.execute("ANALYZE jobs")
    plan = connection.execute(
        f"EXPLAIN {statement('ticks/future_ticks')}", {"after": jobs[99], "only": None, "max_rows": 100}
    ).fetchall()
    assert any("jobs_pkey" in line for (line,) in plan), plan
    assert not any("Sort" in line for (line,) in plan), plan


def test_tick_that_is_due_is_not_moved(config: Config, connection: Connection) -> None:
    lead(connection, OLD)
    due = datetime.now(UTC) - timedelta(seconds=5)
    job = make_job(connection, cron_expr=CRON, timezone=ZONE, next_run_at=due)
    walk(connection, NEW)
    assert next_run(connection, job) == due
    assert TickPasses(connection, config, 1).run_pass() == PassResult(1, 1)
    assert connection.execute("SELECT tick_at FROM ticks").fetchall() == [(due,)]
    assert next_run(connection, job) == right_tick()


def test_tick_that_comes_due_while_it_is_computed_is_not_moved(connection: Connection) -> None:
    due = datetime.now(UTC) - timedelta(microseconds=1)
    job = make_job(connection, cron_expr=CRON, timezone=ZONE, next_run_at=due)
    assert ticks.move_ticks(connection, job_ids=[job], versions=[1], old=[due], new=[right_tick()]) == []
    assert next_run(connection, job) == due


def test_tick_that_somebody_else_moved_is_not_moved(connection: Connection) -> None:
    (job,) = make_stale(connection)
    read = stale_tick() - HOUR / 2
    assert ticks.move_ticks(connection, job_ids=[job], versions=[1], old=[read], new=[right_tick()]) == []
    assert next_run(connection, job) == stale_tick()


def test_leader_that_was_followed_by_another_records_nothing(connection: Connection) -> None:
    lead(connection, OLD)
    ticks.record_zone_version(connection, version=NEW, term=0)
    assert recorded(connection) == OLD


def test_paused_and_cancelled_jobs_are_left_alone(connection: Connection) -> None:
    """And those without a schedule: an instant is an instant in any zone."""
    lead(connection, OLD)
    tick = stale_tick()
    paused = make_job(connection, cron_expr=CRON, timezone=ZONE, status="paused")
    connection.execute("UPDATE jobs SET paused_until = %s, next_run_at = %s", [tick, tick])
    cancelled = make_job(connection, cron_expr=CRON, timezone=ZONE, status="paused")
    connection.execute("UPDATE jobs SET status = 'cancelled' WHERE id = %s", [cancelled])
    once = make_job(connection, run_at=tick, timezone=ZONE, next_run_at=tick)
    over = make_job(connection, cron_expr=CRON, timezone=ZONE)
    with capture_logs() as logs:
        walk(connection, NEW)
    assert [next_run(connection, job) for job in (paused, cancelled, once, over)] == [tick, None, tick, None]
    assert (logs[-1]["jobs"], logs[-1]["moved"]) == (0, 0)


@pytest.mark.parametrize("follower", [OLD, NEW])
def test_recomputation_that_is_cut_off_begins_anew(connection: Connection, follower: str) -> None:
    """Also under a leader with the old data, who would else find its own version recorded."""
    lead(connection, OLD)
    make_stale(connection, 150)
    asked = iter(range(120))
    cut_off = lead(connection, NEW, go_on=lambda: next(asked, None) is not None)
    assert cut_off
    assert [cut_off.run_batch() for _ in range(3)] == [False, False, False]
    assert moved(connection) == 100
    assert recorded(connection) == f"{OLD}, partly {NEW}"
    with capture_logs() as logs:
        walk(connection, follower)
    assert moved(connection) == 150
    assert recorded(connection) == follower
    assert (logs[-1]["jobs"], logs[-1]["moved"]) == (150, 50)


def test_job_that_is_held_is_moved_when_it_is_free(connection: Connection, second: Connection) -> None:
    """What holds it may be a retry, which leaves its tick as it is: it must neither be waited for nor be left out."""
    lead(connection, OLD)
    held, free = make_stale(connection, 2)
    recomputation = lead(connection, NEW)
    assert recomputation
    with transaction(second):
        second.execute("SELECT FROM jobs WHERE id = %s FOR SHARE", [held])
        assert not recomputation.run_batch()
        assert not recomputation.run_batch()
        assert recomputation.is_waiting
        assert [next_run(connection, job) for job in (held, free)] == [stale_tick(), right_tick()]
        assert recorded(connection) != NEW
    assert recomputation.run_batch()
    assert next_run(connection, held) == right_tick()
    assert recorded(connection) == NEW


def test_job_that_was_edited_meanwhile_is_computed_as_it_is_now(connection: Connection, second: Connection) -> None:
    """An edit may leave the next tick as it is, so that alone does not tell."""
    lead(connection, OLD)
    (job,) = make_stale(connection)

    def edit() -> bool:
        second.execute("UPDATE jobs SET cron_expr = '0 12 1 1 *', version = version + 1 WHERE version = 1")
        return True

    recomputation = lead(connection, NEW, go_on=edit)
    assert recomputation
    assert not recomputation.run_batch()
    assert next_run(connection, job) == stale_tick()
    assert recomputation.run_batch()
    assert next_run(connection, job) == Schedule("0 12 1 1 *", ZONE).next_after(datetime.now(UTC))


def test_tick_that_was_skipped_by_hand_stays_skipped(connection: Connection) -> None:
    lead(connection, OLD)
    skipped = right_tick()
    following = Schedule(CRON, ZONE).next_after(skipped)
    job = make_job(connection, cron_expr=CRON, timezone=ZONE, next_run_at=following)
    connection.execute(
        "INSERT INTO ticks (job_id, tick_at, term, outcome) VALUES (%s, %s, 1, 'skip_next')", [job, skipped]
    )
    walk(connection, NEW)
    assert next_run(connection, job) == following


def test_tick_that_was_skipped_by_hand_keeps_no_other_from_its_time(connection: Connection) -> None:
    """It may be one of an older, wider schedule, far beyond the next ticks of this one."""
    lead(connection, OLD)
    (job,) = make_stale(connection)
    connection.execute(
        "INSERT INTO ticks (job_id, tick_at, term, outcome) VALUES (%s, %s, 1, 'skip_next')",
        [job, right_tick() + 500 * HOUR + timedelta(seconds=1)],
    )
    walk(connection, NEW)
    assert next_run(connection, job) == right_tick()


def test_window_bounds_the_tick_that_is_computed(connection: Connection) -> None:
    lead(connection, OLD)
    (job,) = make_stale(connection)
    connection.execute("UPDATE jobs SET end_at = %s", [right_tick() - HOUR])
    walk(connection, NEW)
    assert next_run(connection, job) is None


def test_schedule_that_new_data_do_not_know_is_left_and_told(connection: Connection) -> None:
    lead(connection, OLD)
    tick = stale_tick()
    lost = make_job(connection, cron_expr=CRON, timezone="Europe/Atlantis", next_run_at=tick)
    (stale,) = make_stale(connection)
    with capture_logs() as logs:
        walk(connection, NEW)
    assert [next_run(connection, job) for job in (lost, stale)] == [tick, right_tick()]
    assert [line["job_id"] for line in logs if line["event"] == "schedule cannot be read"] == [str(lost)]
    assert recorded(connection) == NEW


def test_job_that_the_database_refuses_keeps_no_other_from_its_tick(connection: Connection) -> None:
    lead(connection, OLD)
    refused, good = make_stale(connection, 2)
    connection.execute(f"ALTER TABLE jobs ADD CONSTRAINT odd CHECK (id <> '{refused}') NOT VALID")
    with capture_logs() as logs:
        walk(connection, NEW)
    assert [next_run(connection, job) for job in (refused, good)] == [stale_tick(), right_tick()]
    assert [line["job_id"] for line in logs if line["log_level"] == "error"] == [str(refused)]


# Which version is in use


@pytest.fixture
def search_zones_in() -> Iterator[Callable[..., None]]:
    """Have zoneinfo look for zones in these folders."""
    before = zoneinfo.TZPATH
    yield lambda *folders: zoneinfo.reset_tzpath([str(folder) for folder in folders])
    zoneinfo.reset_tzpath(before)


def copy_zones(folder: Path, *, version: str | None) -> Path:
    """All zones of the package, under another version or without one."""
    shutil.copytree(Path(tzdata.__file__).parent / "zoneinfo", folder)
    (folder / "tzdata.zi").unlink()
    if version:
        (folder / "tzdata.zi").write_text(f"# version {version}\n# This zic input file is in the public domain.\n")
    return folder


def test_version_is_that_of_the_first_folder_that_has_zones(
    tmp_path: Path, search_zones_in: Callable[..., None]
) -> None:
    first, other = copy_zones(tmp_path / "first", version="2099a"), copy_zones(tmp_path / "other", version="2099b")
    (tmp_path / "empty").mkdir()
    search_zones_in(tmp_path / "none", tmp_path / "empty", first, other)
    assert read_version() == "2099a"


def test_version_is_that_of_the_package_where_no_folder_has_zones(search_zones_in: Callable[..., None]) -> None:
    search_zones_in()
    assert read_version() == tzdata.IANA_VERSION


def test_version_names_both_where_zones_come_from_two(tmp_path: Path, search_zones_in: Callable[..., None]) -> None:
    folder = copy_zones(tmp_path / "some", version="2099a")
    shutil.rmtree(folder / "US")
    search_zones_in(folder)
    assert read_version() == f"2099a + {tzdata.IANA_VERSION}"


def test_folder_without_a_version_is_told_by_its_zones(tmp_path: Path, search_zones_in: Callable[..., None]) -> None:
    """Whatever else is in it, and wherever it is."""
    one, same = copy_zones(tmp_path / "one", version=None), copy_zones(tmp_path / "same", version=None)
    (same / "localtime").write_bytes((same / "Asia/Tokyo").read_bytes())
    (same / "README").write_text("not a zone")
    found = []
    for folder in (one, same):
        search_zones_in(folder)
        found.append(read_version())
    (same / "Europe/Berlin").write_bytes((same / "Asia/Tokyo").read_bytes())
    assert found[0] == found[1] != read_version()
    assert found[0].startswith("sha256:")
