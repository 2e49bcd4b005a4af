"""Where the offset of a zone changes."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from forgeflow.domain.offsets import find_latest_change, walk_changes

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "start", "end", "changes"),
    [
        ("Europe/Berlin", "2026-01-01", "2027-01-01", ["03-29 01:00 02:00>03:00", "10-25 01:00 03:00>02:00"]),
        ("Australia/Lord_Howe", "2026-01-01", "2027-01-01", ["04-04 15:00 02:00>01:30", "10-03 15:30 02:00>02:30"]),
        ("America/St_Johns", "2010-06-01", "2011-01-01", ["11-07 02:31 00:01>23:01"]),
        ("Pacific/Apia", "2011-12-01", "2012-01-01", ["12-30 10:00 00:00>00:00"]),
        ("America/New_York", "2040-01-01", "2041-01-01", ["03-11 07:00 02:00>03:00", "11-04 06:00 02:00>01:00"]),
        # After the start, up to the end.
        ("Europe/Berlin", "2026-03-29T01:00", "2026-10-25T00:59:59", []),
        ("Europe/Berlin", "2026-03-29T00:59:59.5", "2026-03-29T01:00", ["03-29 01:00 02:00>03:00"]),
        ("Europe/Berlin", "2026-03-29T01:00", "2026-03-29T01:00", []),
        ("Europe/Berlin", "2027-03-29T01:00", "2026-03-29T01:00", []),
        ("UTC", "1900-01-01", "2100-01-01", []),
        ("Asia/Tokyo", "2000-01-01", "2030-01-01", []),
    ],
)
def test_changes_of_offset_are_found_to_the_second(zone: str, start: str, end: str, changes: list[str]) -> None:
    found = list(walk_changes(ZoneInfo(zone), at(start), at(end)))
    assert [f"{c.at:%m-%d %H:%M} {c.old_reading:%H:%M}>{c.new_reading:%H:%M}" for c in found] == changes
    latest = find_latest_change(ZoneInfo(zone), at(start), at(end))
    assert latest == (found[-1] if found else None)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Tokyo", "America/New_York"])
def test_the_ends_of_the_calendar_are_served(zone: str) -> None:
    day = timedelta(days=1)
    for start, end in [(FIRST, FIRST + day), (LAST - day, LAST), (LAST, LAST), (FIRST, FIRST)]:
        assert list(walk_changes(ZoneInfo(zone), start, end)) == []
        assert find_latest_change(ZoneInfo(zone), start, end) is None
