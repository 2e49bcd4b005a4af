"""`forgeflow next`: what a schedule, or a job, is going to do.

For a schedule it asks no database and reads no configuration; what a job needs is imported only for one.
"""

import re
from datetime import UTC, datetime

from forgeflow.cli.say import say, say_document
from forgeflow.cli.times import fire_lines
from forgeflow.domain.instant import read_instant
from forgeflow.domain.preview import MAX_COUNT, preview
from forgeflow.domain.schedule import Schedule
from forgeflow.errors import InvalidInput


def run_next(
    arguments: tuple[str, ...],
    *,
    config_file: str | None,
    zone: str | None,
    count: str,
    after: str | None,
    as_json: bool,
) -> int:
    """Show the next fires of a schedule, now or after an instant, or of a job.

    Raises InvalidInput, and for a job what `ask_about_job` raises.
    """
    asked = _single(arguments)
    if _is_schedule(asked):
        schedule = Schedule.parse(asked, "UTC" if zone is None else zone)
        return _show_schedule(schedule, _read_count(count), _read_after(after), as_json=as_json)
    if zone is not None:
        raise InvalidInput("--tz is for an expression; a single word names a job, which has a zone of its own")
    if after is not None:
        raise InvalidInput("--after is for an expression; a single word names a job, which is shown from now on")
    number = _read_count(count)
    from forgeflow.cli.job import show_upcoming

    return show_upcoming(config_file, asked, number, as_json=as_json)


def _single(arguments: tuple[str, ...]) -> str:
    """The argument; when an expression was not quoted the shell has cut it, and put file names for each `*`."""
    if len(arguments) == 1:
        return arguments[0]
    found = f"got {len(arguments)} arguments" if arguments else "got none"
    raise InvalidInput(f"expected a job, or one expression in quotes, such as '0 9 * * MON-FRI'; {found}")


def _is_schedule(text: str) -> bool:
    """No expression but an alias is one word; a job whose name is none is asked for by its id."""
    return text.startswith("@") or text.split() != [text]


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


def _show_schedule(schedule: Schedule, count: int, after: datetime, *, as_json: bool) -> int:
    seen = preview(schedule, after, count)
    if as_json:
        from forgeflow.web.api.documents import preview_document

        say_document(preview_document(seen, after))
        return 0
    say(seen.description)
    for line in fire_lines(seen.fires, schedule.zone) if seen.fires else ["no time is left before the year 10000"]:
        say(line)
    for warning in seen.warnings:
        say(f"warning: {warning}")
    return 0
