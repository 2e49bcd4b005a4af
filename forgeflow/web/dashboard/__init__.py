"""The pages for people, made on the server; they work with script off."""

from datetime import UTC, datetime
from http import HTTPStatus

import structlog
from flask import Blueprint, Response, render_template, request

from forgeflow.errors import ForgeError, SchemaMismatch, StoreUnavailable
from forgeflow.service import overview
from forgeflow.web.database import connection

log = structlog.get_logger()

blueprint = Blueprint("dashboard", __name__)

_ROWS = 20


def _clock(instant: datetime | None) -> str:
    """ISO date, 24 h, UTC, to the second."""
    return "" if instant is None else instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


@blueprint.get("/")
def index() -> str:
    with connection() as opened:
        seen = overview.look_over(opened, max_rows=_ROWS)
    return _render("index.html", seen=seen)


@blueprint.errorhandler(StoreUnavailable)
@blueprint.errorhandler(SchemaMismatch)
def unavailable(error: ForgeError) -> Response:
    """A page, not a document for programs: it goes on reloading, so an open one comes back by itself."""
    log.warning("request refused", path=request.path, reason=str(error))
    page = _render("unavailable.html", reason=str(error))
    return Response(page, HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": "5"}, content_type="text/html; charset=utf-8")


def _render(template: str, **values: object) -> str:
    reloads = request.args.get("reload") != "off"
    return render_template(template, clock=_clock, now=datetime.now(UTC), reloads=reloads, **values)
