"""The offset of a time zone along the UTC line, and where it changes."""

from collections.abc import Iterator
from dataclasses import dataclass
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


def place_reading(zone: ZoneInfo, reading: datetime) -> datetime:
    """First instant at which the clock shows `reading`, which is naive, or, if that is skipped, is past it [3, 4].

    Later readings are never placed earlier, so the next reading of a schedule always is its next tick. The numbers are
    the rules that `tests/unit/test_schedule.py` tells.
    """
    local = reading.replace(tzinfo=zone)
    instant = local.astimezone(UTC)
    jump = read_offset(local.replace(fold=1)) - read_offset(local)
    if jump <= timedelta():
        return instant
    second = instant.replace(microsecond=0)  # clocks are set at whole seconds, and `find_change` steps by them
    return find_change(zone, second - jump, second)


@dataclass(frozen=True, slots=True)
class Change:
    """The clock is set: from the instant `at` on, its offset is `after`; it was `before`.

    Readings from `first` to before `last` are skipped if it is set forward, and come twice if it is set back.
    """

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def is_forward(self) -> bool:
        return self.after > self.before

    @property
    def old_reading(self) -> datetime:
        """What the clock would show at `at` if it were not set; naive, as are all readings."""
        return self.at.replace(tzinfo=None) + self.before

    @property
    def new_reading(self) -> datetime:
        return self.at.replace(tzinfo=None) + self.after

    @property
    def first(self) -> datetime:
        return min(self.old_reading, self.new_reading)

    @property
    def last(self) -> datetime:
        return max(self.old_reading, self.new_reading)


def walk_changes(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[Change]:
    """Changes after `start` and up to `end`, oldest first; a look at the clock for every two days."""
    low, end = clamp(start, zone).replace(microsecond=0), clamp(end, zone).replace(microsecond=0)
    before = offset_at(low, zone)
    while low < end:
        high = low + WINDOW if end - low > WINDOW else end
        after = offset_at(high, zone)
        if before != after:
            yield Change(find_change(zone, low, high), before, after)
        low, before = high, after


def find_latest_change(zone: ZoneInfo, start: datetime, end: datetime) -> Change | None:
    """The last change after `start` and up to `end`, looked for from the end."""
    start, high = clamp(start, zone).replace(microsecond=0), clamp(end, zone).replace(microsecond=0)
    after = offset_at(high, zone)
    while high > start:
        low = high - WINDOW if high - start > WINDOW else start
        before = offset_at(low, zone)
        if before != after:
            return Change(find_change(zone, low, high), before, after)
        high = low
    return None
