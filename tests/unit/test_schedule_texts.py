"""Schedules from any text: an answer or a refusal, and the answers that croniter has for the readings of a clock."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from croniter import CroniterBadDateError, croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from forgeflow.domain.expression import read_columns
from forgeflow.domain.preview import preview
from forgeflow.domain.schedule import Schedule
from forgeflow.errors import CronError
from tests.support.schedules import Texts

SECOND = timedelta(seconds=1)


def read(expr: str, zone: str) -> Schedule | None:
    try:
        return Schedule.parse(expr, zone)
    except CronError:
        return None


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.text() | st.text("0123456789*/,-#LW@ \t", max_size=30), st.text(max_size=70) | st.just("UTC"))
def test_any_text_and_any_zone_are_a_schedule_or_refused(expr: str, zone: str) -> None:
    read(expr, zone)


def test_whatever_is_read_can_be_asked_from_anywhere() -> None:
    texts, asked = Texts(seed=7), 0
    for _ in range(2500):
        schedule, instant = read(texts.draw(), texts.draw_zone()), texts.draw_instant()
        if schedule is None:
            continue
        asked += 1
        later, earlier = schedule.next_after(instant), schedule.previous(instant)
        assert later is None or later > instant
        assert earlier is None or earlier < instant
        assert later or earlier, "a schedule without ticks was read"
        if asked % 20 == 0:
            assert len(preview(schedule, instant, 10).fires) == 10 or instant.year > 9000
    assert asked > 900


def test_readings_are_those_that_croniter_finds() -> None:
    """croniter takes no two kinds of days at once, so it is asked for every pair of them, on a clock without a zone."""
    texts, asked = Texts(seed=11), 0
    while asked < 600:
        expr, instant = texts.draw(), texts.draw_instant()
        if not 1990 < instant.year < 2200 or len(expr) > 120 or (schedule := read(expr, "UTC")) is None:
            continue
        asked += 1
        start = instant.replace(tzinfo=None, microsecond=0)
        later = [found for arm in split(expr) if (found := search(arm.get_next, start))]
        earlier = [found for arm in split(expr) if (found := search(arm.get_prev, start))]
        assert schedule.next_after(start.replace(tzinfo=UTC)) == min(later).replace(tzinfo=UTC), expr
        assert schedule.previous(start.replace(tzinfo=UTC)) == max(earlier).replace(tzinfo=UTC), expr


def split(expr: str) -> list[croniter]:
    c = read_columns(expr)
    pairs = [(day, weekday) for day in c.days for weekday in c.weekdays]
    if c.is_either:
        pairs = [(day, "*") for day in c.days] + [("*", weekday) for weekday in c.weekdays]
    clock = f"{c.second} {c.minute} {c.hour}"
    return [croniter(f"{clock} {d} {c.month} {w}", day_or=False, second_at_beginning=True) for d, w in pairs]


def search(ask: Callable[..., datetime], start: datetime) -> datetime | None:
    try:
        return ask(datetime, start)
    except CroniterBadDateError:
        return None
