"""The testing kit: what its contexts have, what they refuse, and that nothing leaves the test."""

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import httpx2
import pytest

import forgeflow
from forgeflow import Cancel, CronContext, ForgeError, Retry, testing
from forgeflow.errors import CronError, InvalidInput
from forgeflow.testing import LogEntry, MockHttpClient, TestCronContext, UnmockedRequest, run_cron

NOON = datetime(2027, 7, 1, 12, tzinfo=UTC)
URL = "http://api.example.com/orders"


def build(name: str = "report") -> TestCronContext:
    return TestCronContext.builder(name).build()


def test_context_without_wishes_is_a_run_that_is_due_now() -> None:
    before = datetime.now(UTC)
    ctx = build()
    assert before <= ctx.scheduled_time == ctx.execution_time <= datetime.now(UTC)
    assert (ctx.cron_name, ctx.timezone, ctx.is_catch_up) == ("report", "UTC", False)
    assert (ctx.attempt, ctx.max_attempts, ctx.auth.is_authenticated) == (1, 3, False)
    assert ctx.run_id != build().run_id


def test_context_is_what_was_asked_for() -> None:
    run_id, user_id = uuid.uuid4(), uuid.uuid4()
    ctx = (
        TestCronContext.builder("report")
        .scheduled_at(NOON)
        .executed_at(NOON.astimezone(timezone(timedelta(hours=2))) + timedelta(seconds=90))
        .with_timezone("Asia/Tokyo")
        .as_catch_up()
        .with_run_id(run_id)
        .with_attempt(5)
        .as_user(user_id)
        .with_role("admin")
        .with_role("owner")
        .with_env("TOKEN", "t")
        .asked_to_stop()
        .build()
    )
    assert (ctx.scheduled_time, ctx.execution_time.isoformat()) == (NOON, "2027-07-01T12:01:30+00:00")
    assert (ctx.delay(), ctx.is_late()) == (timedelta(seconds=90), True)
    assert ctx.local_scheduled_time().hour == 21
    assert (ctx.run_id, ctx.is_catch_up, ctx.attempt, ctx.max_attempts) == (run_id, True, 5, 5)
    assert (ctx.auth.user_id, ctx.auth.roles) == (user_id, frozenset({"admin", "owner"}))
    assert ctx.env_require("TOKEN") == "t"
    assert ctx.should_stop()


def test_run_is_due_when_it_is_executed_unless_said_otherwise() -> None:
    assert TestCronContext.builder("report").executed_at(NOON).build().scheduled_time == NOON


def test_builder_can_be_built_upon_without_being_changed() -> None:
    base = TestCronContext.builder("report").with_env("A", "1").mock_http_json(URL, 1)
    other = base.as_catch_up().with_env("B", "2").mock_http_json("*", 2).with_role("admin")
    ctx = base.build()
    assert (ctx.is_catch_up, ctx.env("A"), ctx.env("B"), ctx.auth.roles) == (False, "1", None, frozenset())
    with pytest.raises(UnmockedRequest):
        ctx.http().get("http://elsewhere")
    assert other.build().http().get("http://elsewhere").json() == 2


def test_contexts_of_one_builder_share_neither_log_nor_calls() -> None:
    builder = TestCronContext.builder("report").mock_http_json("*", None)
    first, second = builder.build(), builder.build()
    first.log.info("Sent")
    first.http().get(URL)
    assert (second.log.entries(), second.http().calls()) == ([], [])


@pytest.mark.parametrize("method", ["scheduled_at", "executed_at"])
def test_naive_time_is_refused(method: str) -> None:
    set_time = getattr(TestCronContext.builder("report"), method)
    with pytest.raises(InvalidInput, match=f"{method}: expected a datetime with a time zone"):
        set_time(datetime(2027, 7, 1, 12))  # noqa: DTZ001


def test_unknown_zone_and_attempt_are_refused() -> None:
    with pytest.raises(CronError, match="Europe/London"):
        TestCronContext.builder("report").with_timezone("Europe/Lundon")
    with pytest.raises(InvalidInput, match="with_attempt: expected a whole number from 1"):
        TestCronContext.builder("report").with_attempt(0)


def test_environment_of_the_machine_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "real")
    assert build().env("TOKEN") is None


def test_context_without_pool_says_how_to_get_one() -> None:
    with pytest.raises(ForgeError, match=r"the test of report has no database: build its context .with_pool\(pool\)"):
        build().db()


def test_pool_is_the_one_that_was_given() -> None:
    pool: Any = object()
    assert TestCronContext.builder("report").with_pool(pool).build().db() is pool


def test_entries_and_progress_are_recorded() -> None:
    ctx = build()
    seen = ctx.log.entries()
    ctx.log.info("Sent", rows=3)
    ctx.progress(0.5, "half")
    assert ctx.log.entries() == [LogEntry("info", "Sent", {"rows": 3}, "report")]
    assert ctx.progress_told() == [(50, "half")]
    assert seen == []


def test_copy_for_a_user_says_and_asks_in_the_same_place() -> None:
    ctx = TestCronContext.builder("report").mock_http_json("*", None).build()
    theirs = ctx.with_auth(forgeflow.AuthContext(uuid.uuid4()))
    theirs.log.info("Sent")
    theirs.http().get(URL)
    assert len(ctx.log.entries()) == len(ctx.http().calls()) == 1


# Requests


def mocked(pattern: str, handler: Callable[[httpx2.Request], Any]) -> MockHttpClient:
    return TestCronContext.builder("report").mock_http(pattern, handler).build().http()


def test_first_mock_that_matches_answers() -> None:
    builder = TestCronContext.builder("report").mock_http_json(f"{URL}/1", "one").mock_http_json(f"{URL}/*", "any")
    client = builder.mock_http_json("*", "other").build().http()
    answers = [client.get(url).json() for url in (f"{URL}/1", f"{URL}/2?page=3", "https://elsewhere", f"{URL}/1")]
    assert answers == ["one", "any", "other", "one"]
    assert [str(call.url) for call in client.calls(f"{URL}/*")] == [f"{URL}/1", f"{URL}/2?page=3", f"{URL}/1"]


@pytest.mark.parametrize("url", ["http://[::1]:8080/", "http://api.example.com", "http://api.example.com/a?b=[c]"])
def test_url_is_its_own_pattern(url: str) -> None:
    client = mocked(str(httpx2.URL(url)), lambda request: request.method)
    assert client.put(url).json() == "PUT"


def test_handler_sees_the_request_and_answers_as_it_likes() -> None:
    def handle(request: httpx2.Request) -> object:
        if request.method == "DELETE":
            raise httpx2.ConnectError("refused")
        return httpx2.Response(503, text="busy") if request.method == "POST" else {"got": request.url.path}

    client = mocked("*", handle)
    assert client.get(URL).json() == {"got": "/orders"}
    assert (client.post(URL, json={"a": 1}).status_code, client.calls()[1].content) == (503, b'{"a":1}')
    with pytest.raises(httpx2.ConnectError):
        client.delete(URL)
    client.assert_called(URL, times=3)


@pytest.mark.parametrize("value", [None, 0, "text", [], {"a": [1.5, None, True]}])
def test_any_json_is_an_answer(value: object) -> None:
    for client in (
        TestCronContext.builder("report").mock_http_json("*", value).build().http(),
        mocked("*", lambda _: value),
    ):
        answer = client.get(URL)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        assert answer.json() == value


def test_answer_is_what_the_value_was_when_it_was_given() -> None:
    value = {"data": [1]}
    client = TestCronContext.builder("report").mock_http_json("*", value).build().http()
    value["data"].append(2)
    assert client.get(URL).json() == {"data": [1]}


def test_answer_that_is_no_json_is_refused() -> None:
    expected = "the answer of a mock: expected a value that JSON has, or an httpx2.Response"
    with pytest.raises(InvalidInput, match=expected):
        TestCronContext.builder("report").mock_http_json("*", {NOON})
    with pytest.raises(InvalidInput, match=expected):
        mocked("*", lambda _: float("nan")).get(URL)
    handler: Any = {"status": "ok"}
    with pytest.raises(InvalidInput, match="mock_http: handler: expected a function of the request"):
        mocked("*", handler)


def test_request_that_is_not_mocked_names_what_is() -> None:
    client = TestCronContext.builder("report").mock_http_json(URL, 1).mock_http_json("https://*", 2).build().http()
    with pytest.raises(UnmockedRequest) as caught:
        client.post(f"{URL}/1")
    assert str(caught.value) == f"POST {URL}/1 is not mocked; known patterns: {URL}, https://*"
    with pytest.raises(UnmockedRequest, match=f"GET {URL} is not mocked; known patterns: none"):
        build().http().get(URL)
    assert isinstance(caught.value, AssertionError)


def test_calls_are_asserted_by_pattern_and_number() -> None:
    client = mocked("*", lambda _: None)
    client.assert_not_called()
    client.get(URL)
    client.get(URL)
    client.assert_called("*/orders")
    client.assert_called("*/orders", times=2)
    client.assert_called("https://*", times=0)
    client.assert_not_called("https://*")


def test_calls_that_were_not_made_are_told_beside_those_that_were() -> None:
    client = mocked("*", lambda _: None)
    with pytest.raises(AssertionError, match=r"expected a request to \*/orders, not 0; there was no request"):
        client.assert_called("*/orders")
    client.get(URL)
    with pytest.raises(AssertionError) as caught:
        client.assert_called("*/orders", times=2)
    assert str(caught.value) == f"expected 2 requests to */orders, not 1; the requests were:\n  GET {URL}"
    with pytest.raises(AssertionError, match=r"expected no request to \*, not 1"):
        client.assert_not_called()


# Calling


async def double(ctx: CronContext, *, number: int = 1) -> int:
    await asyncio.sleep(0)
    ctx.log.info("Doubled")
    return 2 * number


def test_run_cron_calls_both_kinds_with_what_they_take() -> None:
    ctx = build()
    assert run_cron(double, ctx) == 2
    assert run_cron(double, ctx, number=3) == 6
    assert run_cron(lambda ctx: ctx.cron_name, ctx) == "report"
    assert run_cron(lambda: "nothing", ctx) == "nothing"
    assert len(ctx.log.entries()) == 2


@pytest.mark.parametrize("error", [Retry("later", after="5m"), Cancel("gone"), SystemExit(3), ValueError()])
def test_run_cron_raises_what_the_function_raises(error: BaseException) -> None:
    def fail() -> None:
        raise error

    async def fail_later() -> None:
        raise error

    for function in (fail, fail_later):
        with pytest.raises(type(error)) as caught:
            run_cron(function, build())
        assert caught.value is error


def test_run_cron_in_an_event_loop_says_to_await() -> None:
    async def test() -> int:
        with pytest.raises(ForgeError, match="in an asynchronous test, await the function itself"):
            run_cron(double, build())
        return await double(build())

    assert asyncio.run(test()) == 2


# Importing


def test_star_brings_every_name_that_there_is() -> None:
    names: dict[str, Any] = {}
    exec("from forgeflow.testing import *", names)
    assert set(testing.__all__) == set(names) - {"__builtins__"}
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = testing.nope


def test_context_and_client_need_no_database_driver() -> None:
    look = (
        "import sys; from forgeflow.testing import *; TestCronContext.builder('report').build();"
        "print(*[name for name in ('psycopg', 'pydantic', 'structlog', 'pytest') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", look], text=True).strip() == ""
