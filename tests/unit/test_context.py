"""What a function is told of its run, what it says, and what it raises."""

import dataclasses
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from forgeflow import (
    AuthContext,
    Cancel,
    CronContext,
    CronLog,
    ForgeError,
    LogEntry,
    MissingEnvError,
    PermissionDenied,
    Retry,
)
from forgeflow.errors import InvalidInput

NOON = datetime(2027, 7, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Place:
    """Surroundings that keep what they are told; pool and client are only handed on."""

    def __init__(self) -> None:
        self.environ: Mapping[str, str] = {"TOKEN": "t", "EMPTY": ""}
        self.is_stopping = False
        self.progress: list[tuple[int, str]] = []
        self.entries: list[LogEntry] = []
        self.own_pool: Any = object()
        self.own_client: Any = object()

    def pool(self) -> Any:
        return self.own_pool

    def client(self) -> Any:
        return self.own_client

    def should_stop(self) -> bool:
        return self.is_stopping

    def note_progress(self, percent: int, note: str) -> None:
        self.progress.append((percent, note))

    def log_entry(self, entry: LogEntry) -> None:
        self.entries.append(entry)


def context(place: Place, *, delay: timedelta = timedelta(0), timezone: str = "Europe/London") -> CronContext:
    return CronContext(
        run_id=uuid.uuid4(),
        cron_name="report",
        scheduled_time=NOON,
        execution_time=NOON + delay,
        timezone=timezone,
        is_catch_up=False,
        attempt=1,
        max_attempts=3,
        log=CronLog("report", place.log_entry),
        surroundings=place,
    )


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.mark.parametrize(
    ("began", "delay", "is_late"),
    [
        (-SECOND, timedelta(0), False),
        (timedelta(0), timedelta(0), False),
        (60 * SECOND, 60 * SECOND, False),
        (61 * SECOND, 61 * SECOND, True),
    ],
)
def test_delay_is_never_negative_and_late_is_more_than_a_minute(
    place: Place, began: timedelta, delay: timedelta, is_late: bool
) -> None:
    ctx = context(place, delay=began)
    assert (ctx.delay(), ctx.is_late()) == (delay, is_late)


def test_late_is_what_one_calls_late(place: Place) -> None:
    ctx = context(place, delay=5 * SECOND)
    assert ctx.is_late(4 * SECOND)
    assert not ctx.is_late(threshold=5 * SECOND)


def test_local_scheduled_time_is_the_same_instant_on_its_own_clock(place: Place) -> None:
    ctx = context(place)
    assert ctx.local_scheduled_time().isoformat() == "2027-07-01T13:00:00+01:00"
    assert ctx.local_scheduled_time() == ctx.scheduled_time


def test_environment_is_that_of_the_surroundings(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELSEWHERE", "x")
    ctx = context(place)
    assert (ctx.env("TOKEN"), ctx.env("EMPTY"), ctx.env("ELSEWHERE")) == ("t", "", None)
    assert (ctx.env_require("TOKEN"), ctx.env_require("EMPTY")) == ("t", "")
    with pytest.raises(MissingEnvError) as caught:
        ctx.env_require("ELSEWHERE")
    assert str(caught.value) == "the environment variable ELSEWHERE is not set, and the function needs it"
    assert caught.value.key == "ELSEWHERE"
    assert isinstance(caught.value, ForgeError)
    assert isinstance(caught.value, KeyError)


def test_pool_and_client_are_those_of_the_surroundings(place: Place) -> None:
    assert context(place).db() is place.own_pool
    assert context(place).http() is place.own_client


def test_stop_is_heard_while_it_runs(place: Place) -> None:
    ctx = context(place)
    assert not ctx.should_stop()
    place.is_stopping = True
    assert ctx.should_stop()


def test_progress_is_told_in_whole_percent(place: Place) -> None:
    ctx = context(place)
    for done in (0, 0.29, 1 / 3, 0.999, 1, 1 + 1e-9, -1e-9):
        ctx.progress(done)
    ctx.progress(0.5, "half of the invoices")
    assert place.progress == [(n, "") for n in (0, 29, 33, 99, 100, 100, 0)] + [(50, "half of the invoices")]


@pytest.mark.parametrize("done", [-0.01, 1.01, 42, float("nan"), float("inf")])
def test_progress_that_is_no_part_is_refused(place: Place, done: float) -> None:
    with pytest.raises(InvalidInput, match="progress: done: expected the part that is done, from 0 to 1"):
        context(place).progress(done)
    assert place.progress == []


def test_context_cannot_be_changed_and_acting_for_somebody_gives_a_copy(place: Place) -> None:
    ctx = context(place)
    user = AuthContext(uuid.uuid4(), frozenset({"admin"}))
    theirs = ctx.with_auth(user)
    assert (theirs.auth, theirs.run_id, theirs.log) == (user, ctx.run_id, ctx.log)
    assert ctx.auth == AuthContext()
    with pytest.raises(dataclasses.FrozenInstanceError):
        ctx.attempt = 2  # type: ignore[misc]


def test_nobody_has_no_role() -> None:
    nobody = AuthContext()
    assert not nobody.is_authenticated
    assert not nobody.has_role("admin")
    with pytest.raises(PermissionDenied, match="this needs the role admin") as caught:
        nobody.require_role("admin")
    assert caught.value.role == "admin"


def test_user_has_their_roles_and_no_others() -> None:
    user = AuthContext(uuid.uuid4(), frozenset({"admin"}))
    assert user.is_authenticated
    user.require_role("admin")
    with pytest.raises(PermissionDenied):
        user.require_role("owner")


def test_entries_have_level_message_data_and_the_name_of_the_function(place: Place) -> None:
    log = context(place).log
    log.debug("Looked")
    log.info("Sent", {"rows": 3, "to": "a"}, to="b", message="m")
    log.warn("Slow", seconds=2)
    log.warning("Slower", seconds=3)
    log.error("Failed", {"data": None})
    assert place.entries == [
        LogEntry("debug", "Looked", {}, "report"),
        LogEntry("info", "Sent", {"rows": 3, "to": "b", "message": "m"}, "report"),
        LogEntry("warn", "Slow", {"seconds": 2}, "report"),
        LogEntry("warn", "Slower", {"seconds": 3}, "report"),
        LogEntry("error", "Failed", {"data": None}, "report"),
    ]


def test_entry_keeps_the_data_of_its_moment(place: Place) -> None:
    data = {"rows": 1}
    context(place).log.info("Sent", data)
    data["rows"] = 2
    assert place.entries[0].data == {"rows": 1}


def test_data_that_is_no_mapping_is_refused(place: Place) -> None:
    data: Any = 5
    with pytest.raises(InvalidInput, match=r'log.warn: expected a mapping such as \{"rows": 3\}, or keywords'):
        context(place).log.warn("Sent", data)


@pytest.mark.parametrize(
    ("after", "seconds"),
    [(None, None), (0, 0.0), (1.5, 1.5), ("1m30s", 90.0), (timedelta(hours=1), 3600.0), ("366d", 366 * 86400.0)],
)
def test_retry_says_why_and_when(after: timedelta | str | float | None, seconds: float | None) -> None:
    retry = Retry("the ledger is closed", after=after)
    assert isinstance(retry, ForgeError)
    assert (str(retry), retry.reason, retry.after_seconds) == ("the ledger is closed", "the ledger is closed", seconds)


@pytest.mark.parametrize("after", ["", "soon", "5", " 5s", -1, "367d", 10**400, float("nan"), True, b"5s"])
def test_retry_at_no_time_that_we_know_is_refused(after: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^Retry: after: expected a ") as caught:
        Retry(after=after)
    assert [problem.pointer for problem in caught.value.problems] == ["#/after"]


def test_cancel_says_why() -> None:
    cancel = Cancel("the order is gone")
    assert (str(cancel), cancel.reason, str(Cancel())) == ("the order is gone", "the order is gone", "")
    assert isinstance(cancel, ForgeError)
