"""The pytest plugin, and with its databases those patterns of our first users that need one."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg_pool import ConnectionPool

from forgeflow import Retry
from forgeflow.testing import TestCronContextBuilder, run_cron
from tests.support.crons import daily_report, heartbeat, nightly_data_export, poll_iss_location, weekly_cleanup

Builder = Callable[[str], TestCronContextBuilder]
Pool = ConnectionPool[Any]


def execute(pool: Pool, statement: str) -> Any:
    with pool.connection() as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else None


@pytest.mark.parametrize("time", [1, 2])
def test_database_is_empty_and_the_test_s_own(forgeflow_pool: Pool, time: int) -> None:
    assert execute(forgeflow_pool, "SELECT nspname FROM pg_namespace WHERE nspname = 'forgeflow'") == []
    execute(forgeflow_pool, "CREATE TABLE orders (id int)")


def test_heartbeat_of_every_minute(forgeflow_pool: Pool, cron_ctx: Builder) -> None:
    execute(forgeflow_pool, "CREATE TABLE system_status (last_heartbeat timestamptz)")
    execute(forgeflow_pool, "INSERT INTO system_status VALUES ('2000-01-01')")
    run_cron(heartbeat, cron_ctx("heartbeat").with_pool(forgeflow_pool).build())
    assert execute(forgeflow_pool, "SELECT now() - last_heartbeat < '1 minute' FROM system_status") == [(True,)]


def test_report_of_the_day_is_counted_and_posted(forgeflow_pool: Pool, cron_ctx: Builder) -> None:
    execute(forgeflow_pool, "CREATE TABLE orders (total numeric, created_at timestamptz)")
    execute(forgeflow_pool, "INSERT INTO orders VALUES (10.5, now()), (2, now()), (1000, '2000-01-01')")
    builder = cron_ctx("daily_report").with_pool(forgeflow_pool).with_env("CHAT_TOKEN", "t")
    ctx = builder.mock_http_json("https://chat.example.com/*", {"ok": True}).build()
    run_cron(daily_report, ctx)
    (call,) = ctx.http().calls()
    assert call.headers["Authorization"] == "Bearer t"
    assert b'"Orders: 2, Revenue: $12.50"' in call.content
    assert [(entry.message, entry.data) for entry in ctx.log.entries()] == [
        ("Generating report", {"run_id": str(ctx.run_id)})
    ]


def test_cleanup_of_the_week_says_that_it_catches_up(forgeflow_pool: Pool, cron_ctx: Builder) -> None:
    execute(forgeflow_pool, "CREATE TABLE sessions (expires_at timestamptz)")
    execute(forgeflow_pool, "INSERT INTO sessions SELECT now() - n * interval '3 days' FROM generate_series(1, 4) n")
    ctx = cron_ctx("weekly_cleanup").with_pool(forgeflow_pool).as_catch_up().build()
    assert run_cron(weekly_cleanup, ctx) == 2
    assert [entry.data for entry in ctx.log.entries()] == [{"scheduled": ctx.scheduled_time.isoformat()}]
    assert execute(forgeflow_pool, "SELECT count(*) FROM sessions") == [(2,)]


def test_export_tells_its_progress_and_stops_when_asked(forgeflow_pool: Pool, cron_ctx: Builder) -> None:
    execute(forgeflow_pool, "CREATE TABLE analytics (id int, exported bool DEFAULT false)")
    execute(forgeflow_pool, "INSERT INTO analytics SELECT generate_series(1, 2500)")
    builder = cron_ctx("nightly_data_export").with_pool(forgeflow_pool).mock_http_json("https://storage.*", None)
    ctx = builder.build()
    assert run_cron(nightly_data_export, ctx) == 2500
    ctx.http().assert_called("https://storage.example.com/*", times=3)
    assert ctx.progress_told() == [(40, "uploading"), (80, "uploading"), (100, "uploading")]
    stopped = builder.asked_to_stop().build()
    with pytest.raises(Retry) as caught:
        run_cron(nightly_data_export, stopped)
    assert caught.value.after_seconds == 60.0
    stopped.http().assert_not_called()


def test_answer_of_an_api_is_stored(forgeflow_pool: Pool, cron_ctx: Builder) -> None:
    execute(forgeflow_pool, "CREATE TABLE iss_locations (latitude float, longitude float)")
    answer = {"position": {"latitude": "47.5", "longitude": "-122.3"}}
    builder = cron_ctx("poll_iss_location").with_pool(forgeflow_pool)
    run_cron(poll_iss_location, builder.mock_http_json("http://api.open-notify.org/*", answer).build())
    assert execute(forgeflow_pool, "SELECT * FROM iss_locations") == [(47.5, -122.3)]


USERS_TESTS = {
    "test_first.py": """
import sys

loaded = {"httpx2", "psycopg", "psycopg_pool", "pydantic", "forgeflow.errors"} & set(sys.modules)

def test_nothing_is_imported_before_it_is_asked_for():
    assert "forgeflow.testing.plugin" in sys.modules
    assert not loaded

def test_builder(cron_ctx):
    assert cron_ctx("report").build().cron_name == "report"
    assert "psycopg" not in sys.modules
""",
    "test_second.py": """
from forgeflow.testing import *

def test_star():
    assert TestCronContext.builder("report").as_catch_up().build().is_catch_up
""",
}


def test_plugin_costs_nothing_until_it_is_asked(tmp_path: Path) -> None:
    """In a pytest of its own, as users have it; a warning, say of a class that looks like tests, is an error."""
    for name, text in USERS_TESTS.items():
        (tmp_path / name).write_text(text)
    command = (sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "3 passed" in done.stdout, done.stdout
