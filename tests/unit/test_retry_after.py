"""When a server wants to be asked again."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgeflow.executors.exchange import retry_after_seconds

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120),
        (" 7 ", 7),
        ("999999999999", 999_999_999_999),
        ("Fri, 01 May 2026 12:01:30 GMT", 90),
        ("Friday, 01-May-26 12:01:30 GMT", 90),
        ("Fri May  1 12:01:30 2026", 90),
        ("Fri, 01 May 2026 14:01:30 +0200", 90),
    ],
)
def test_seconds_and_dates_are_understood(text: str, seconds: float) -> None:
    assert retry_after_seconds(text, NOW) == seconds


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "0",
        "-1",
        "Fri, 01 May 2026 11:00:00 GMT",
        "Sat, 01 Jan 0001 00:00:00 GMT",
        "soon",
        "1.5",
        "1e3",
        "inf",
        "nan",
        "+5",
        "٣",
        "9" * 400,
        "5, 6",
        "Fri, 31 Feb 2026 12:00:00 GMT",
        "Fri",
    ],
)
def test_nonsense_and_what_is_over_are_as_if_nothing_had_been_said(text: str | None) -> None:
    assert retry_after_seconds(text, NOW) is None


@given(st.text())
def test_no_text_is_too_odd(text: str) -> None:
    seconds = retry_after_seconds(text, NOW)
    assert seconds is None or seconds > 0
