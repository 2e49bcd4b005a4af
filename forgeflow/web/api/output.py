"""/api/runs/{id}/output"""

import threading
import time
from uuid import UUID

from flask import Blueprint, Flask, Response, current_app, jsonify, request

from forgeflow.config import Config
from forgeflow.service.output import OutputPart, read_output, whole_output
from forgeflow.web.api.documents import output_document
from forgeflow.web.api.queries import Query, no_parameters
from forgeflow.web.database import STOPPING, connection

blueprint = Blueprint("output", __name__, url_prefix="/api/runs")

MAX_WAIT_SECONDS = 20
# The database is asked again, for a piece comes once a second at most. A notification for each piece would cost every
# run that lasts, and every session that listens, whether anybody looks or not; a look costs whoever looks.
_LOOK_SECONDS = 1.0
_WAITERS = "forgeflow.waiters"
_LONGEST = "forgeflow.longest_wait"


def register(app: Flask, config: Config) -> None:
    """Half of the threads may wait, so that the others answer; longer than a request may take none waits."""
    app.extensions[_WAITERS] = threading.Semaphore(config.server.threads // 2)
    app.extensions[_LONGEST] = min(MAX_WAIT_SECONDS, config.server.request_timeout / 2)
    app.register_blueprint(blueprint)


@blueprint.get("/<uuid:run_id>/output")
def show(run_id: UUID) -> Response:
    best = request.accept_mimetypes.best_match(["application/json", "text/plain"], "application/json")
    if best == "text/plain":
        return _download(run_id)
    query = Query()
    offset, attempt, wait = query.offset(), query.attempt(), query.wait(MAX_WAIT_SECONDS)
    query.check()
    return jsonify(output_document(_wait_for_output(run_id, attempt, offset, wait)))


def _download(run_id: UUID) -> Response:
    no_parameters()
    with connection() as opened:
        text = "".join(whole_output(opened, run_id))
    response = Response(text, content_type="text/plain; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{run_id}.txt"'
    return response


def _wait_for_output(run_id: UUID, attempt: int | None, offset: int, seconds: float) -> OutputPart:
    """What is there, or comes while we wait; at once when too many wait already, or this process is to stop."""
    part = _read(run_id, attempt, offset)
    waiters: threading.Semaphore = current_app.extensions[_WAITERS]
    if part.data or part.is_finished or not seconds or not waiters.acquire(blocking=False):
        return part
    try:
        deadline = time.monotonic() + min(seconds, current_app.extensions[_LONGEST])
        is_stopping = current_app.extensions.get(STOPPING, bool)
        while not (part.data or part.is_finished or is_stopping()) and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))
            part = _read(run_id, part.attempt, part.next_offset)
    finally:
        waiters.release()
    return part


def _read(run_id: UUID, attempt: int | None, offset: int) -> OutputPart:
    with connection() as opened:
        return read_output(opened, run_id, attempt=attempt, offset=offset)
