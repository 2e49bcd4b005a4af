"""`forgeflow output`: what a run prints, or has printed."""

import sys
import time
from uuid import UUID

from forgeflow.cli.say import say_document, say_text
from forgeflow.config import Config, load_config
from forgeflow.errors import InvalidInput
from forgeflow.service.output import OutputPart, gap_line, read_output
from forgeflow.store.connection import Connection, connect
from forgeflow.store.probe import look
from forgeflow.store.schema import require_current

_DATABASE_SECONDS = 30.0
_LOOK_SECONDS = 1.0


def run_output(config_file: str | None, run: str, *, follow: bool, as_json: bool) -> int:
    """Print it; with `follow` until the run has ended.  Raises NotFound, InvalidInput, ConfigError, StoreError."""
    if follow and as_json:
        raise InvalidInput("--follow and --json exclude each other: a document is about one moment")
    run_id, config = _run_id(run), load_config(config_file)
    if follow:
        return _follow(config, run_id)
    part = look(config, "output", lambda opened: _first_part(opened, run_id), within_seconds=_DATABASE_SECONDS)
    if as_json:
        from forgeflow.web.api.documents import output_document

        say_document(output_document(part))
    else:
        _say(part)
    return 0


def _run_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInput("RUN is no id of a run; the API and the log show them") from None


def _first_part(connection: Connection, run_id: UUID) -> OutputPart:
    require_current(connection)
    return read_output(connection, run_id)


def _follow(config: Config, run_id: UUID) -> int:
    connection = connect(config, "output")
    try:
        part = _first_part(connection, run_id)
        while True:
            _say(part)
            if part.is_finished:
                return 0
            if not part.data:
                time.sleep(_LOOK_SECONDS)
            attempt = part.attempt
            part = read_output(connection, run_id, attempt=attempt, offset=part.next_offset)
            if part.attempt != attempt:
                say_text(f"\n[… attempt {part.attempt} …]\n")
    finally:
        connection.close()


def _say(part: OutputPart) -> None:
    say_text((gap_line(part.skipped) if part.skipped else "") + part.data)
    sys.stdout.flush()
