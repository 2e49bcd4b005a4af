"""Instants as users write them: RFC 3339, with an offset, or as a clock shows them."""

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from forgeflow.domain.offsets import place_reading

# Programs in Go write nanoseconds; what is below a microsecond is dropped.
_READING = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?", re.ASCII)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII)


def read_instant(text: object) -> datetime:
    """An RFC 3339 time with an offset, as UTC.  Raises ValueError, which does not repeat it."""
    if not isinstance(text, str) or not _RFC3339.fullmatch(text):
        raise ValueError("expected a time such as 2026-07-01T09:00:00Z, with Z or an offset")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError("expected an existing time between the years 1 and 9999, in UTC too") from error


def read_moment(text: object, zone: ZoneInfo) -> datetime:
    """As `read_instant`, or without an offset a reading of the zone's clock: the first instant that shows it.

    A reading that the clock skips is the first instant after the gap, where a fixed time runs.  Raises ValueError.
    """
    if not isinstance(text, str) or not _READING.fullmatch(text):
        return read_instant(text)
    try:
        return place_reading(zone, datetime.fromisoformat(text.upper()))
    except (ValueError, OverflowError) as error:
        raise ValueError("expected an existing time between the years 1 and 9999, in UTC too") from error
