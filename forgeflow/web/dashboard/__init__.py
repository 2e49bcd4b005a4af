"""The pages for people, made on the server; they work with script off."""

from datetime import UTC, datetime

from flask import Blueprint, render_template, request

from forgeflow.service import overview
from forgeflow.web.database import connection

blueprint = Blueprint("dashboard", __name__)

_ROWS = 20


def _clock(instant: datetime | None) -> str:
    """ISO date, 24 h, UTC, to the second."""
    return "" if instant is None else instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


@blueprint.get("/")
def index() -> str:
    with connection() as opened:
        seen = overview.look_over(opened, max_rows=_ROWS)
    reloads = request.args.get("reload") != "off"
    return render_template("index.html", seen=seen, clock=_clock, now=datetime.now(UTC), reloads=reloads)
