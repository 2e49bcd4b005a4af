"""Times as people read them on a terminal."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from forgeflow.domain.preview import Fire


def reading_text(reading: datetime, precision: str | None = None) -> str:
    """`Sun 2026-10-25 02:30`; to `precision`, which is minutes, seconds or microseconds, or as far as it takes."""
    if precision is None:
        precision = "microseconds" if reading.microsecond else "seconds" if reading.second else "minutes"
    return f"{reading:%a} {reading.replace(tzinfo=None).isoformat(' ', precision)}"


def local_text(local: datetime) -> str:
    """`Sun 2026-10-25 02:30 +02:00`"""
    return f"{reading_text(local)} {Fire(local, local).offset}"


def fire_lines(fires: Sequence[Fire], zone: str) -> Iterator[str]:
    """A table of one fire at least, on the zone's clock and in UTC, each with its notes below."""
    precision = "seconds" if any(fire.local.second or fire.at.second for fire in fires) else "minutes"
    rows = [
        (f"{reading_text(fire.local, precision)} {fire.offset}", reading_text(fire.at, precision), fire.notes)
        for fire in fires
    ]
    width = max([len(zone), *(len(local) for local, _, _ in rows)])
    yield f"{zone:{width}}  UTC" if zone != "UTC" else zone
    for local, utc, notes in rows:
        yield f"{local:{width}}  {utc}" if zone != "UTC" else utc
        yield from (f"    {note}" for note in notes)
