"""Instants as users write them: RFC 3339, always with an offset."""

import re
from datetime import UTC, datetime

# Programs in Go write nanoseconds; what is below a microsecond is dropped.
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII)


def read_instant(text: object) -> datetime:
    """An RFC 3339 time with an offset, as UTC.  Raises ValueError, which does not repeat it."""
    if not isinstance(text, str) or not _RFC3339.fullmatch(text):
        raise ValueError("expected a time such as 2026-07-01T09:00:00Z, with Z or an offset")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError("expected an existing time between the years 1 and 9999, in UTC too") from error
