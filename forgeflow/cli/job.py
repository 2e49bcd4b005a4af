"""What a person asks about one job, straight from the database."""

from collections.abc import Callable, Iterator
from typing import TypeVar
from uuid import UUID

from forgeflow.cli.say import say, say_document
from forgeflow.cli.times import fire_lines, local_text
from forgeflow.config import load_config
from forgeflow.service.jobs import find_job
from forgeflow.service.upcoming import Upcoming, local_time, preview_job
from forgeflow.store.connection import Connection
from forgeflow.store.probe import look
from forgeflow.store.schema import require_current

T = TypeVar("T")

# However many hosts and addresses there are, and whatever hangs; each statement has its own, shorter, deadline.
_DATABASE_SECONDS = 30.0


def ask_about_job(config_file: str | None, text: str, ask: Callable[[Connection, UUID], T]) -> T:
    """What `ask` says of the job of that name or id, or of the only one whose id begins so; writes nothing.

    Blocks for half a minute at most.  Raises NotFound, InvalidInput where more than one fits, ConfigError, StoreError.
    """

    def answer(connection: Connection) -> T:
        require_current(connection)
        return ask(connection, find_job(connection, text).id)

    return look(load_config(config_file), "ask", answer, within_seconds=_DATABASE_SECONDS)


def show_upcoming(config_file: str | None, text: str, count: int, *, as_json: bool) -> int:
    """Show the next fires of a job, or why there are none.  Raises as `ask_about_job`."""
    upcoming = ask_about_job(config_file, text, lambda connection, job_id: preview_job(connection, job_id, count=count))
    if as_json:
        from forgeflow.web.api.documents import upcoming_document

        say_document(upcoming_document(upcoming))
        return 0
    for line in _lines(upcoming):
        say(line)
    return 0


def _lines(upcoming: Upcoming) -> Iterator[str]:
    job = upcoming.job
    yield f"{job.name}: {upcoming.description}"
    why = f": {job.pause_reason}" if job.pause_reason else ""
    if upcoming.reason:
        yield upcoming.reason
    if job.paused_until:
        yield f"paused until {local_text(local_time(job.paused_until, job.timezone))}{why}"
    elif why:
        yield f"paused{why}"
    if upcoming.fires:
        yield from fire_lines(upcoming.fires, str(upcoming.fires[0].local.tzinfo))
        if job.jitter_seconds:
            yield f"each run waits up to {job.jitter_seconds:g} s more"
    for tick in upcoming.skipped:
        yield f"taken out: {local_text(local_time(tick, job.timezone))}"
    yield from (f"warning: {warning}" for warning in upcoming.warnings)
