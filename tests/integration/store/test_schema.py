"""Migrations, and what the schema itself refuses."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors as pg

from forgeflow.config import Config
from forgeflow.errors import SchemaMismatch
from forgeflow.store import schema, ticks
from forgeflow.store.connection import Connection, connect
from tests.support.databases import config_for, drop_database, make_database
from tests.support.scenario import claim, finish, make_job, make_runs, make_worker, success

TICK = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


@pytest.fixture
def empty(server_url: str) -> Iterator[Config]:
    """A database that was never migrated."""
    url = make_database(server_url)
    yield config_for(url)
    drop_database(server_url, url)


def open_for(config: Config) -> Connection:
    return connect(config, "test")


def test_migrations_run_once_and_keep_checksums(empty: Config) -> None:
    with open_for(empty) as connection:
        first = schema.migrate(connection, empty)
        assert [migration.version for migration in first] == [m.version for m in schema.migrations()]
        assert schema.migrate(connection, empty) == []
        applied = schema.applied_migrations(connection)
        assert [(one.version, one.checksum) for one in applied] == [(m.version, m.checksum) for m in first]
        schema.require_current(connection)


def test_a_database_in_use_is_migrated_with_what_it_has(empty: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second version on: jobs paused and cancelled, ticks that ran and were caught up, runs under way."""
    every = schema.migrations()
    monkeypatch.setattr(schema, "migrations", lambda: every[:2])
    with open_for(empty) as connection:
        schema.migrate(connection, empty)
        connection.execute(
            """
            INSERT INTO jobs (name, executor, payload, cron_expr, status, next_run_at)
            SELECT status, 'shell', '{"command": "true"}', '0 9 * * *', status,
                   CASE WHEN status = 'active' THEN timestamptz '2026-03-02 09:00Z' END
              FROM unnest(ARRAY['active', 'paused', 'cancelled']) AS status;
            INSERT INTO ticks (job_id, tick_at, run_id, term)
            SELECT id, timestamptz '2026-03-01 09:00Z' - n * interval '1 day', uuid_v7(), 1
              FROM jobs, generate_series(1, 2) AS n WHERE status = 'active';
            INSERT INTO tick_gaps (job_id, from_at, to_at, reason)
            SELECT id, '2026-02-01 09:00Z', '2026-02-09 09:00Z', 'missed' FROM jobs WHERE status = 'active';
            INSERT INTO queue (id, job_id, job_version, priority, scheduled_for, run_after, tick_at, trigger,
                               is_catch_up, max_attempts)
            SELECT run_id, job_id, 1, 5, tick_at, tick_at, tick_at,
                   CASE WHEN tick_at < '2026-02-28' THEN 'catch_up' ELSE 'cron' END, tick_at < '2026-02-28', 3
              FROM ticks;
            WITH job AS (
                INSERT INTO jobs (name, executor, payload) VALUES ('f', 'python', '{"function": "f"}') RETURNING id)
            INSERT INTO queue (job_id, job_version, priority, scheduled_for, run_after, trigger, max_attempts)
            SELECT id, 1, 5, now(), now(), 'once', 3 FROM job;
            """
        )
        monkeypatch.undo()
        schema.migrate(connection, empty)
        outcomes = connection.execute("SELECT outcome FROM ticks ORDER BY tick_at").fetchall()
        assert outcomes == [("caught_up",), ("ran",)]
        stretches = connection.execute("SELECT reason FROM tick_gaps WHERE to_at IS NULL ORDER BY reason").fetchall()
        assert stretches == [("cancelled",), ("paused",)]
        owner = make_worker(connection)
        for run in claim(connection, owner, 5):
            assert finish(connection, owner, success(run)) == [run.id]
        assert connection.execute("SELECT count(*) FROM finished_runs").fetchone() == (2,)
        assert len(claim(connection, make_worker(connection, child=2, functions=["f"]), 5)) == 1


def test_migrations_of_many_nodes_at_once_run_once(empty: Config) -> None:
    applied: list[int] = []

    def migrate() -> None:
        with open_for(empty) as connection:
            applied.extend(migration.version for migration in schema.migrate(connection, empty))

    threads = [threading.Thread(target=migrate) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(applied) == [migration.version for migration in schema.migrations()]


def test_unmigrated_database_is_told_what_to_run(empty: Config) -> None:
    with open_for(empty) as connection, pytest.raises(SchemaMismatch, match="forgeflow migrate"):
        schema.require_current(connection)


def test_newer_schema_is_refused_and_left_alone(config: Config, connection: Connection) -> None:
    schema.record_migration(connection, version=9999, name="of_tomorrow", checksum="x")
    with pytest.raises(SchemaMismatch, match="has schema version 9999"):
        schema.migrate(connection, config)
    with pytest.raises(SchemaMismatch, match="update ForgeFlow"):
        schema.require_current(connection)


def test_edited_schema_file_is_refused(config: Config, connection: Connection) -> None:
    connection.execute("UPDATE schema_migrations SET checksum = 'of another text' WHERE version = 1")
    with pytest.raises(SchemaMismatch, match="another text of 0001_jobs_and_runs"):
        schema.migrate(connection, config)


def test_failed_migration_leaves_nothing_behind(empty: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    good = schema.migrations()
    bad = schema.Migration(len(good) + 1, "bad", "CREATE TABLE half (id int); SELECT nonsense;")
    monkeypatch.setattr(schema, "migrations", lambda: [*good, bad])
    with open_for(empty) as connection:
        with pytest.raises(SchemaMismatch):
            schema.migrate(connection, empty)
        assert len(schema.applied_migrations(connection)) == len(good)
        found = connection.execute("SELECT to_regclass('half')").fetchone()
        assert found == (None,)
        # The lock was given back.
        with open_for(empty) as other:
            assert schema.try_migration_lock(other, schema="forgeflow")


def test_schema_name_is_configurable(server_url: str) -> None:
    url = make_database(server_url)
    config = config_for(url, database__schema="billing_jobs")
    try:
        with open_for(config) as connection:
            schema.migrate(connection, config)
            make_job(connection)
            assert connection.execute("SELECT count(*) FROM billing_jobs.jobs").fetchone() == (1,)
            assert connection.execute("SELECT to_regclass('public.jobs')").fetchone() == (None,)
    finally:
        drop_database(server_url, url)


def test_every_constraint_has_a_name_of_ours(connection: Connection) -> None:
    rows = connection.execute(
        "SELECT conrelid::regclass::text, conname FROM pg_constraint WHERE connamespace = 'forgeflow'::regnamespace"
        " AND contype NOT IN ('n')"
    ).fetchall()
    assert rows
    assert [name for _, name in rows if name.endswith(("_check", "_key1", "_check1"))] == []


def test_second_run_of_one_tick_is_refused_by_the_database(connection: Connection) -> None:
    job_id = make_job(connection, cron_expr="0 9 * * *")
    tick = ticks.NewTick(job_id, TICK, TICK, "cron")
    (fired,) = ticks.fire_ticks(connection, ticks=[tick], are_held=False, term=1)
    first = fired.run_id
    assert ticks.fire_ticks(connection, ticks=[tick], are_held=False, term=2) == []
    # Also for a statement that forgets the ledger, and after the first run has finished.
    forgetful = (
        "INSERT INTO queue (job_id, job_version, priority, scheduled_for, run_after, tick_at, trigger, max_attempts)"
        " VALUES (%s, 1, 5, now(), now(), %s, 'cron', 3)"
    )
    with pytest.raises(pg.ForeignKeyViolation, match="queue_tick"):
        connection.execute(forgetful, [job_id, TICK])
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    assert finish(connection, owner, success(run)) == [first]
    with pytest.raises(pg.ForeignKeyViolation, match="queue_tick"):
        connection.execute(forgetful, [job_id, TICK])
    with pytest.raises(pg.UniqueViolation):
        connection.execute(
            "INSERT INTO ticks (job_id, tick_at, run_id, term) VALUES (%s, %s, uuid_v7(), 3)", [job_id, TICK]
        )


def test_scheduled_run_without_a_tick_is_refused_by_the_database(connection: Connection) -> None:
    job_id = make_job(connection, cron_expr="0 9 * * *")
    with pytest.raises(pg.CheckViolation, match="queue_scheduled_run_has_tick"):
        connection.execute(
            "INSERT INTO queue (job_id, job_version, priority, scheduled_for, run_after, trigger, max_attempts)"
            " VALUES (%s, 1, 5, now(), now(), 'cron', 3)",
            [job_id],
        )


def test_change_of_a_finished_run_is_refused_by_the_database(connection: Connection) -> None:
    make_runs(connection, make_job(connection))
    owner = make_worker(connection)
    (run,) = claim(connection, owner)
    finish(connection, owner, success(run))
    with pytest.raises(pg.CheckViolation, match="finished_runs_are_final"):
        connection.execute("UPDATE finished_runs SET status = 'dead', failures = 3")
    connection.execute("DELETE FROM finished_runs")  # pruning is no change


def test_shrinking_attempt_is_refused_by_the_database(connection: Connection) -> None:
    make_runs(connection, make_job(connection))
    claim(connection, make_worker(connection))
    with pytest.raises(pg.CheckViolation, match="queue_attempt_only_grows"):
        connection.execute("UPDATE queue SET attempt = 0")


def test_half_an_owner_and_exhausted_queue_rows_are_refused(connection: Connection) -> None:
    make_runs(connection, make_job(connection))
    with pytest.raises(pg.CheckViolation, match="queue_owner_whole"):
        connection.execute("UPDATE queue SET boot_id = %s", [uuid4()])
    with pytest.raises(pg.CheckViolation, match="queue_tries_left"):
        connection.execute("UPDATE queue SET failures = 3")


def test_keys_are_version_7_and_sort_by_time(connection: Connection) -> None:
    rows = connection.execute("SELECT uuid_v7() FROM generate_series(1, 200)").fetchall()
    keys = [row[0] for row in rows]
    assert len(set(keys)) == 200
    assert {(key.version, key.variant) for key in keys} == {(7, "specified in RFC 4122")}
    milliseconds = [key.int >> 80 for key in keys]
    assert milliseconds == sorted(milliseconds)


@pytest.mark.parametrize(
    ("failures", "jitter", "seconds"),
    [
        (1, 1.0, 5.0),
        (2, 1.0, 10.0),
        (3, 1.0, 20.0),
        (3, 0.5, 10.0),
        (3, 0.0, 0.0),
        (8, 1.0, 640.0),
        (9, 1.0, 900.0),
        (2**31 - 1, 1.0, 900.0),
    ],
)
def test_retry_delay_doubles_up_to_the_cap_and_is_fully_jittered(
    connection: Connection, failures: int, jitter: float, seconds: float
) -> None:
    row = connection.execute(
        "SELECT extract(epoch FROM retry_delay(%s, 'jitter', 5, 900, %s))::float8", [failures, jitter]
    ).fetchone()
    assert row == (pytest.approx(seconds),)


@pytest.mark.parametrize(("mode", "seconds"), [("exponential", [5, 10, 20, 900]), ("fixed", [5, 5, 5, 5])])
def test_retry_delay_without_jitter_is_the_same_each_time(
    connection: Connection, mode: str, seconds: list[float]
) -> None:
    row = connection.execute(
        "SELECT array_agg(extract(epoch FROM retry_delay(n, %s, 5, 900, 0.1))::float8 ORDER BY n)"
        " FROM unnest(ARRAY[1, 2, 3, 2147483647]) AS n",
        [mode],
    ).fetchone()
    assert row == (seconds,)


OUTCOMES = {
    "failed": "failed internal refused",
    "timed_out": "timed_out",
    "crashed": "crashed wedged signalled memory",
    "lost": "lost",
    "cancelled": "cancelled",
    "interrupted": "interrupted fenced",
    "could_not_start": "not_found not_started unsupported",
}


@pytest.mark.parametrize(("outcome", "error_types"), OUTCOMES.items())
def test_every_type_of_error_has_its_outcome(connection: Connection, outcome: str, error_types: str) -> None:
    """Of a run that is dead, and of an attempt that was not its run's last."""
    rows = connection.execute(
        "SELECT outcome_of('dead', kind), outcome_of(NULL, kind), outcome_of('pending', kind)"
        " FROM unnest(%s::text[]) AS kind",
        [error_types.split()],
    ).fetchall()
    assert set(rows) == {(outcome, outcome, None)}


def test_run_that_was_cancelled_or_succeeded_has_that_for_its_outcome(connection: Connection) -> None:
    row = connection.execute(
        "SELECT outcome_of('cancelled', 'timed_out'), outcome_of('succeeded', NULL), outcome_of('running', NULL)"
    ).fetchone()
    assert row == ("cancelled", "succeeded", None)


@pytest.mark.parametrize("time", ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01 00:00Z"])
def test_times_that_python_cannot_read_are_refused(connection: Connection, time: str) -> None:
    """One such row would end every pass of the scheduler, for everybody."""
    with pytest.raises(pg.CheckViolation, match="jobs_times_readable"):
        connection.execute(
            "INSERT INTO jobs (name, executor, payload, next_run_at) VALUES ('x', 'shell', '{}', %s)", [time]
        )


def test_priority_that_no_claim_looks_at_is_refused(connection: Connection) -> None:
    make_runs(connection, make_job(connection))
    with pytest.raises(pg.CheckViolation, match="queue_priority_range"):
        connection.execute("UPDATE queue SET priority = 0")


def test_connection_of_another_schema_sees_no_tables(database_url: str) -> None:
    config = config_for(database_url, database__schema="elsewhere")
    with connect(config, "test") as connection, pytest.raises(SchemaMismatch):
        schema.require_current(connection)
    with psycopg.connect(database_url) as plain:
        assert plain.execute("SELECT count(*) FROM forgeflow.jobs").fetchone() == (0,)
