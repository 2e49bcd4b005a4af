"""Instants as users write them: RFC 3339, with an offset, or as a clock shows them."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from forgeflow.domain.offsets import place_reading, read_offset

# Programs in Go write nanoseconds; what is below a microsecond is dropped.
_READING = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?", re.ASCII)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII)


def read_instant(text: object) -> datetime:
    """An RFC 3339 time with an offset, as UTC.  Raises ValueError, which does not repeat it."""
    if not isinstance(text, str) or not _RFC3339.fullmatch(text):
        raise ValueError("expected a time such as 2026-07-01T09:00:00Z, with Z or an offset as +02:00")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError("expected an existing time between the years 1 and 9999, in UTC too") from error


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant as somebody asked for it; `reading` is what they said of a clock, None when they gave an offset.

    The clock skips the reading, or shows it twice: then `at` is the first instant after the gap, or the first pass.
    """

    at: datetime
    reading: datetime | None = None
    is_skipped: bool = False
    is_repeated: bool = False


def read_moment(text: object, zone: ZoneInfo) -> Moment:
    """As `read_instant`, or without an offset a reading of the zone's clock.  Raises ValueError."""
    if not isinstance(text, str) or not _READING.fullmatch(text):
        try:
            return Moment(read_instant(text))
        except ValueError as error:
            detail = "expected a time such as 2026-07-01T09:00 on the job's clock, or one with Z or an offset as +02:00"
            raise ValueError(detail) from error
    try:
        reading = datetime.fromisoformat(text.upper())
        at = place_reading(zone, reading)
        local = at.astimezone(zone)
    except (ValueError, OverflowError) as error:
        raise ValueError("expected an existing time between the years 1 and 9999, in UTC too") from error
    is_skipped = local.replace(tzinfo=None) != reading
    is_repeated = not is_skipped and read_offset(local.replace(fold=1)) != read_offset(local.replace(fold=0))
    return Moment(at, reading, is_skipped, is_repeated)
