"""The Flask application: blueprints, guards, headers, one line in the log for each request."""

import re
import secrets
import time

import structlog
from flask import Flask, Response, g, request
from flask.json.provider import DefaultJSONProvider

from forgeflow.config import Config
from forgeflow.web import dashboard, guard, problem
from forgeflow.web.api import jobs, output, runs, schedule, system

log = structlog.get_logger()

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}
_QUIET_PATHS = {"/healthz", "/readyz", "/metrics"}


def _begin_request() -> None:
    given = request.headers.get("X-Request-Id", "")
    g.request_id = given if re.fullmatch(r"[A-Za-z0-9._-]{1,64}", given, re.ASCII) else secrets.token_hex(8)
    g.began = time.monotonic()


def _end_request(response: Response) -> Response:
    response.headers["X-Request-Id"] = g.request_id
    for name, value in _HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")
    tell = log.debug if request.path in _QUIET_PATHS else log.info
    tell(
        "request answered",
        method=request.method,
        path=request.path,
        status=response.status_code,
        duration_seconds=round(time.monotonic() - g.began, 4),
        request_id=g.request_id,
    )
    return response


def create_app(config: Config) -> Flask:
    """The application; `extensions[database.POOL]` must hold an open pool before it serves."""
    app = Flask(__name__)
    app.url_map.merge_slashes = False  # //api/jobs is not /api/jobs, nor a redirect to it
    assert isinstance(app.json, DefaultJSONProvider)
    app.json.sort_keys = False
    app.before_request(_begin_request)
    guard.register(app, config)
    problem.register(app)
    app.after_request(_end_request)
    for blueprint in (jobs.blueprint, runs.blueprint, schedule.blueprint, system.blueprint, dashboard.blueprint):
        app.register_blueprint(blueprint)
    output.register(app, config)
    return app
