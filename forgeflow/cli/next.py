"""`forgeflow next`: what a schedule is going to do; asks no database and reads no configuration."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from forgeflow.cli.say import say, say_document
from forgeflow.domain.instant import read_instant
from forgeflow.domain.preview import MAX_COUNT, Preview, preview
from forgeflow.domain.schedule import Schedule
from forgeflow.errors import InvalidInput


def run_next(expressions: tuple[str, ...], *, zone: str, count: str, after: str | None, as_json: bool) -> int:
    """Show the next fires, now or after an instant.  Raises InvalidInput."""
    schedule = Schedule.parse(_single(expressions), zone)
    number, start = _read_count(count), _read_after(after)
    seen = preview(schedule, start, number)
    if as_json:
        from forgeflow.web.api.documents import preview_document

        say_document(preview_document(seen, start))
        return 0
    for line in _lines(seen):
        say(line)
    return 0


def _single(expressions: tuple[str, ...]) -> str:
    """The expression; when it was not quoted the shell has cut it, and put file names for each `*`."""
    if len(expressions) == 1:
        return expressions[0]
    found = f"got {len(expressions)} arguments" if expressions else "got none"
    raise InvalidInput(f"expected one expression in quotes, such as '0 9 * * MON-FRI'; {found}")


def _read_count(text: str) -> int:
    # int() takes 1_000, signs and the digits of other scripts too.
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or not 1 <= int(text) <= MAX_COUNT:
        raise InvalidInput(f"--count: expected a whole number from 1 to {MAX_COUNT}")
    return int(text)


def _read_after(text: str | None) -> datetime:
    if text is None:
        return datetime.now(UTC)
    try:
        return read_instant(text)
    except ValueError as error:
        raise InvalidInput(f"--after: {error}") from error


def _lines(seen: Preview) -> Iterator[str]:
    zone = seen.schedule.zone
    yield seen.description
    if not seen.fires:
        yield "no time is left before the year 10000"
    has_seconds = any(fire.local.second or fire.at.second for fire in seen.fires)
    rows = [
        (f"{_clock(fire.local, has_seconds)} {fire.offset}", _clock(fire.at, has_seconds), fire.notes)
        for fire in seen.fires
    ]
    width = max([len(zone), *(len(local) for local, _, _ in rows)])
    if rows:
        yield f"{zone:{width}}  UTC" if zone != "UTC" else zone
    for local, utc, notes in rows:
        yield f"{local:{width}}  {utc}" if zone != "UTC" else utc
        yield from (f"    {note}" for note in notes)
    yield from (f"warning: {warning}" for warning in seen.warnings)


def _clock(reading: datetime, has_seconds: bool) -> str:
    """`Sun 2026-10-25 02:30`"""
    text = reading.replace(tzinfo=None).isoformat(" ", "seconds" if has_seconds else "minutes")
    return f"{reading:%a} {text}"
