"""The offset of a time zone along the UTC line, and where it changes."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

SECOND = timedelta(seconds=1)
# No zone changes its offset twice within two days (the least in tzdata 2026f is 3.99 days, in
# Freetown, 1939), nor moves its clock by more than one day at once. So the offsets at both ends of
# a window of this length tell whether a change lies inside.
WINDOW = timedelta(days=2)


def to_utc(instant: datetime) -> datetime:
    if instant.utcoffset() is None:
        raise ValueError(f"the instant {instant.isoformat()} is naive; expected one with an offset")
    return instant.astimezone(UTC)


def clamp(instant: datetime, zone: ZoneInfo) -> datetime:
    """The nearest instant at which the local clock shows a year from 1 to 9999."""
    try:
        instant.astimezone(zone)
    except OverflowError:
        edge = datetime.min if instant.year == 1 else datetime.max  # noqa: DTZ901
        return edge.replace(tzinfo=zone).astimezone(UTC)
    return instant


def read_offset(local: datetime) -> timedelta:
    offset = local.utcoffset()
    assert offset is not None  # a ZoneInfo always knows
    return offset


def offset_at(instant: datetime, zone: ZoneInfo) -> timedelta:
    return read_offset(instant.astimezone(zone))


def find_change(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """The instant in (low, high], at most `WINDOW`, from which on the offset is that of `high`.

    At `low` it must be another.
    """
    after = offset_at(high, zone)
    while high - low > SECOND:
        middle = low + (high - low) // SECOND // 2 * SECOND
        if offset_at(middle, zone) == after:
            high = middle
        else:
            low = middle
    return high
