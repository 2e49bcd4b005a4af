"""The patterns and tests of our first users, in their words; those with a database are beside the pytest plugin."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from httpx2 import Response
from psycopg import Connection
from psycopg_pool import ConnectionPool

from forgeflow import Cancel, CronContext, ForgeError, MissingEnvError, PermissionDenied, cron, spec_of
from forgeflow.domain.catch_up import plan_ticks
from forgeflow.domain.schedule import Schedule
from forgeflow.domain.timetable import Timetable, make_timetable
from forgeflow.functions.spec import FunctionSpec
from forgeflow.testing import LogEntry, MockHttpClient, TestCronContext, TestCronContextBuilder, run_cron
from tests.support.crons import (
    charge,
    daily_report,
    morning_summary,
    nightly_data_export,
    poll_api,
    poll_iss_location,
    sync_external_data,
    weekly_cleanup,
)

# Testing


def test_cron_executes() -> None:
    ctx = TestCronContext.builder("morning_summary").build()

    run_cron(morning_summary, ctx)

    assert ctx.log.entries()


def test_catch_up_run() -> None:
    ctx = TestCronContext.builder("weekly_cleanup").as_catch_up().build()

    assert ctx.is_catch_up


def test_late_detection() -> None:
    scheduled = datetime.now(UTC) - timedelta(minutes=5)
    ctx = TestCronContext.builder("sync_task").scheduled_at(scheduled).build()

    assert ctx.is_late()
    assert ctx.delay() >= timedelta(minutes=4)


def test_with_timezone() -> None:
    ctx = TestCronContext.builder("morning_summary").with_timezone("Europe/London").build()

    assert ctx.timezone == "Europe/London"


def test_with_mocked_http() -> None:
    ctx = (
        TestCronContext.builder("poll_api")
        .mock_http_json("http://api.example.com/*", {"status": "ok", "data": []})
        .build()
    )

    assert run_cron(poll_api, ctx) == 0

    ctx.http().assert_called("http://api.example.com/*")


def test_logging() -> None:
    ctx = TestCronContext.builder("my_cron").build()

    ctx.log.info("Started")
    ctx.log.warn("Warning")
    ctx.log.error("Failed")

    entries = ctx.log.entries()
    assert len(entries) == 3
    assert entries[0].level == "info"
    assert entries[1].level == "warn"
    assert entries[2].level == "error"


# Patterns


def test_summary_knows_its_zone_and_the_time_there(cron_ctx: Callable[[str], TestCronContextBuilder]) -> None:
    ctx = (
        cron_ctx("morning_summary")
        .scheduled_at(datetime(2027, 7, 1, 8, tzinfo=UTC))
        .with_timezone("Europe/London")
        .build()
    )
    run_cron(morning_summary, ctx)
    assert ctx.log.entries() == [
        LogEntry("info", "Morning summary", {"tz": "Europe/London", "at": "09:00"}, "morning_summary")
    ]


def test_late_execution_is_detected_and_told() -> None:
    builder = TestCronContext.builder("sync_external_data").scheduled_at(datetime(2027, 7, 1, 8, tzinfo=UTC))
    in_time = builder.executed_at(datetime(2027, 7, 1, 8, 1, tzinfo=UTC)).build()
    late = builder.executed_at(datetime(2027, 7, 1, 8, 1, 30, tzinfo=UTC)).build()
    run_cron(sync_external_data, in_time)
    run_cron(sync_external_data, late)
    assert in_time.log.entries() == []
    (entry,) = late.log.entries()
    assert (entry.level, entry.message) == ("warn", "Running late")
    assert entry.data == {"delay_seconds": 90.0, "scheduled": "2027-07-01T08:00:00+00:00"}


def test_answer_of_an_api_that_fails_is_told() -> None:
    builder = TestCronContext.builder("poll_iss_location")
    ctx = builder.mock_http("http://api.open-notify.org/*", lambda request: Response(502)).build()
    with pytest.raises(ForgeError, match="API request failed"):
        run_cron(poll_iss_location, ctx)
    assert [(entry.level, entry.data) for entry in ctx.log.entries()] == [("error", {"status": 502})]


def test_job_is_called_with_its_arguments_and_for_somebody() -> None:
    builder = TestCronContext.builder("charge").with_attempt(2)
    with pytest.raises(PermissionDenied):
        run_cron(charge, builder.build(), order_id=7, amount=1.5)
    ctx = builder.as_user(uuid4()).with_role("billing").build()
    assert run_cron(charge, ctx, order_id=7, amount=1.5) == "order 7, try 2 of 3"
    with pytest.raises(Cancel, match="nothing to charge for order 7"):
        run_cron(charge, ctx, order_id=7, amount=0.0)


# Attributes


def test_attributes_and_their_defaults() -> None:
    report, cleanup, sync = spec_of(daily_report), spec_of(weekly_cleanup), spec_of(sync_external_data)
    assert (report.name, report.schedule, report.timezone) == ("daily_report", "0 9 * * *", "America/New_York")
    assert (report.timeout_seconds, report.catch_up, report.catch_up_limit) == (3600.0, "skip", 10)
    assert (cleanup.catch_up, cleanup.catch_up_limit, cleanup.timezone) == ("all", 4, "UTC")
    assert (sync.timeout_seconds, spec_of(nightly_data_export).timeout_seconds) == (300.0, 7200.0)
    assert (report.is_async, cleanup.is_async) == (True, False)


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("0 9 * * *", "0 0 9 * * *"),
        ("*/5 * * * *", "0 */5 * * * *"),
        ("0 0 1 * *", "0 0 0 1 * *"),
        ("0 12 * * 1-5", "0 0 12 * * 1-5"),
    ],
)
def test_five_fields_are_six_with_second_zero(short: str, full: str) -> None:
    assert ticks(spec_of(cron(short, name=short)(lambda: None))) == ticks(spec_of(cron(full, name=full)(lambda: None)))


def test_six_fields_begin_with_the_second() -> None:
    assert [tick.second for tick in ticks(spec_of(poll_api))] == [30, 30, 30]


def ticks(spec: FunctionSpec, after: datetime = datetime(2027, 1, 1, tzinfo=UTC)) -> list[datetime]:
    assert spec.schedule
    return Schedule.parse(spec.schedule, spec.timezone).between(after, after + timedelta(days=60), 3)


@pytest.mark.parametrize(("limit", "hours"), [(10, [10, 11, 12]), (1, [12])])
def test_outage_of_three_hours_is_caught_up_within_the_limit(limit: int, hours: list[int]) -> None:
    @cron("0 * * * *", catch_up=True, catch_up_limit=limit)
    def hourly() -> None: ...

    spec = spec_of(hourly)
    timetable = make_timetable(spec.schedule, None, spec.timezone)
    assert isinstance(timetable, Timetable)
    due, now = datetime(2027, 7, 1, 10, tzinfo=UTC), datetime(2027, 7, 1, 12, 30, tzinfo=UTC)
    plan = plan_ticks(timetable, due, now, misfire_grace=60.0, catch_up=spec.catch_up, limit=spec.catch_up_limit)
    assert [tick.hour for tick in plan.caught_up] == hours


@pytest.mark.parametrize("day", [datetime(2027, 3, 14, tzinfo=UTC), datetime(2027, 11, 7, tzinfo=UTC)])
def test_nine_is_nine_on_the_days_when_the_clock_is_set(day: datetime) -> None:
    first, second, _ = ticks(spec_of(daily_report), day)
    local = [tick.astimezone(ZoneInfo("America/New_York")) for tick in (first, second)]
    assert [(tick.day - day.day, tick.hour) for tick in local] == [(0, 9), (1, 9)]


# The context, as a type checker sees it


def test_context_has_the_fields_and_methods_of_the_page() -> None:
    ctx = TestCronContext.builder("report").with_env("A", "1").build()
    assert_type(ctx.run_id, UUID)
    assert_type(ctx.scheduled_time, datetime)
    assert_type(ctx.http(), MockHttpClient)
    assert_type(ctx.delay(), timedelta)
    assert_type(ctx.env("A"), str | None)
    assert_type(ctx.env_require("A"), str)
    assert_type(ctx.with_auth(ctx.auth), TestCronContext)
    with pytest.raises(MissingEnvError):
        ctx.env_require("B")


def look(ctx: CronContext) -> None:
    """Never called: what it says is checked by mypy."""
    assert_type(ctx.db(), ConnectionPool[Connection[tuple[Any, ...]]])
    with ctx.db().connection() as connection:
        assert_type(connection.execute("SELECT 1").fetchone(), tuple[Any, ...] | None)
