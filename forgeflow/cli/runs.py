"""`forgeflow retry` and `forgeflow cancel`: runs by their ids, or by what they have in common."""

import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import click

from forgeflow.cli.exits import FAILED
from forgeflow.cli.say import say, say_document
from forgeflow.config import load_config
from forgeflow.domain.instant import read_instant
from forgeflow.duration import in_seconds
from forgeflow.errors import InvalidInput
from forgeflow.service.jobs import find_job
from forgeflow.service.requests import ID, BulkRequest, read_bulk_request
from forgeflow.service.retries import retry_run
from forgeflow.service.runs import cancel_run
from forgeflow.service.selection import change_runs, select_runs
from forgeflow.store.connection import Connection, connect
from forgeflow.store.jobs import server_now
from forgeflow.store.schema import require_current

_DONE = {"retry": "retried", "cancel": "cancelled"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says; which runs are meant by ids, or by the others."""

    action: str
    run_ids: tuple[str, ...]
    job: str | None
    status: str | None
    since: str | None
    until: str | None
    is_dry: bool
    is_sure: bool
    as_json: bool


def change(config_file: str | None, asked: Asked) -> int:
    """Do it; FAILED when some of them could not be changed.

    Raises InvalidInput, what the service raises for a single run, ConfigError, StoreError.
    """
    ids = _ids(asked)
    connection = connect(load_config(config_file), "ask")
    try:
        require_current(connection)
        if len(ids) == 1 and not asked.is_dry:
            return _change_one(connection, asked, ids[0])
        return _change_many(connection, asked, _request(connection, asked, ids))
    finally:
        connection.close()


def _ids(asked: Asked) -> list[UUID]:
    """Raises InvalidInput where it is not clear what is meant."""
    is_filtered = any(value is not None for value in (asked.job, asked.status, asked.since, asked.until))
    if bool(asked.run_ids) == is_filtered:
        raise InvalidInput("expected either ids of runs, or some of --job, --status, --since and --until")
    if not all(ID.fullmatch(text) for text in asked.run_ids):
        raise InvalidInput("RUN: expected an id of a run, whole, as the API gives it")
    return list(dict.fromkeys(UUID(text) for text in asked.run_ids))


def _change_one(connection: Connection, asked: Asked, run_id: UUID) -> int:
    if asked.action == "retry":
        run = retry_run(connection, run_id)
        told = f"retried by {run.id}"
    else:
        cancelled = cancel_run(connection, run_id)
        run, told = cancelled.run, "asked to stop" if cancelled.is_asked else "cancelled"
    if asked.as_json:
        from forgeflow.web.api.documents import run_document

        say_document(run_document(run))
    else:
        say(f"{run_id} {told}")
    return 0


def _request(connection: Connection, asked: Asked, ids: list[UUID]) -> BulkRequest:
    """What the API would be sent.  Raises InvalidInput, NotFound for the job."""
    body: dict[str, Any] = {"action": asked.action, "dry_run": asked.is_dry}
    if ids:
        return read_bulk_request({**body, "ids": [str(run_id) for run_id in ids]})
    now = server_now(connection)
    since, until = _instant("--since", asked.since, now), _instant("--until", asked.until, now)
    if since and until and until < since:
        raise InvalidInput("--until: is before --since")
    meant = {
        "job_id": str(find_job(connection, asked.job).id) if asked.job is not None else None,
        "status": asked.status,
        "since": since and since.isoformat(),
        "until": until and until.isoformat(),
    }
    return read_bulk_request({**body, "filter": meant})


def _instant(option: str, text: str | None, now: datetime) -> datetime | None:
    """A time, or one so long before now.  Raises InvalidInput."""
    if text is None:
        return None
    try:
        return read_instant(text)
    except ValueError:
        pass
    try:
        return now - timedelta(seconds=in_seconds(text))
    except (ValueError, OverflowError) as error:
        detail = "expected how long ago, such as 90m or 24h, or a time such as 2026-07-01T09:00:00Z"
        raise InvalidInput(f"{option}: {detail}") from error


def _change_many(connection: Connection, asked: Asked, request: BulkRequest) -> int:
    if asked.is_dry:
        count = len(select_runs(connection, request))
        if asked.as_json:
            say_document({"action": asked.action, "dry_run": True, "selected": count})
        else:
            say(f"{_count(count)} would be {_DONE[asked.action]}")
        return 0
    if request.filter and not asked.is_sure:
        request = _confirmed(connection, asked, request)
    result = change_runs(connection, request)
    if asked.as_json:
        from forgeflow.web.api.documents import bulk_document

        say_document(bulk_document(asked.action, result))
    else:
        for one in result.skipped:
            say(f"{one.run_id} skipped: {one.reason}")
        say(f"{_count(result.done)} {_DONE[asked.action]}, {len(result.skipped)} skipped")
    return FAILED if result.skipped else 0


def _confirmed(connection: Connection, asked: Asked, request: BulkRequest) -> BulkRequest:
    """The request for as many runs as somebody has agreed to.  Raises InvalidInput where nobody can be asked."""
    count = len(select_runs(connection, request))
    what = f"{_count(count)} would be {_DONE[asked.action]}"
    if not sys.stdin.isatty():
        raise InvalidInput(f"{what}: say --yes, or look at them with --dry-run")
    click.confirm(f"{what}. Go on?", abort=True, err=True)
    return request.model_copy(update={"expected_count": count})


def _count(number: int) -> str:
    return f"{number} run" if number == 1 else f"{number} runs"
