"""/api/schedule"""

from datetime import UTC, datetime

from flask import Blueprint, Response, jsonify

from forgeflow.domain.preview import preview
from forgeflow.service.requests import read_preview_request
from forgeflow.web.api.documents import preview_document
from forgeflow.web.api.queries import no_parameters
from forgeflow.web.guard import json_body

blueprint = Blueprint("schedule", __name__, url_prefix="/api/schedule")


@blueprint.post("/preview")
def show() -> Response:
    """What a schedule would do, whoever had it.

    Asks no database, so that a form can ask at each key stroke; nothing is decided by this machine's clock.
    """
    no_parameters()
    asked = read_preview_request(json_body())
    after = asked.after or datetime.now(UTC)
    return jsonify(preview_document(preview(asked.schedule(), after, asked.count), after))
