"""/api/runs"""

from uuid import UUID

from flask import Blueprint, Response, jsonify

from forgeflow.service import runs
from forgeflow.web.api.documents import run_detail_document, run_document
from forgeflow.web.api.queries import Query, no_parameters
from forgeflow.web.database import connection

blueprint = Blueprint("runs", __name__, url_prefix="/api/runs")


@blueprint.get("")
def index() -> Response:
    query = Query()
    limit, job_id, status = query.limit(), query.uuid("job_id"), query.run_status()
    before = query.uuid("cursor")
    query.check()
    with connection() as opened:
        rows = runs.list_runs(opened, job_id=job_id, status=status, before=before, max_rows=limit + 1)
    cursor = str(rows[limit - 1].id) if len(rows) > limit else None
    return jsonify(items=[run_document(row) for row in rows[:limit]], next_cursor=cursor)


@blueprint.get("/<uuid:run_id>")
def show(run_id: UUID) -> Response:
    no_parameters()
    with connection() as opened:
        return jsonify(run_detail_document(runs.get_run(opened, run_id)))
