"""/api/runs"""

from uuid import UUID

from flask import Blueprint, Response, jsonify, url_for

from forgeflow.service import retries, runs, selection
from forgeflow.service.requests import read_bulk_request
from forgeflow.web.api.documents import bulk_document, run_detail_document, run_document
from forgeflow.web.api.queries import Query, no_parameters
from forgeflow.web.database import connection
from forgeflow.web.guard import empty_body, json_body

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


@blueprint.post("/<uuid:run_id>/cancel")
def cancel(run_id: UUID) -> Response:
    no_parameters()
    empty_body()
    with connection() as opened:
        cancelled = runs.cancel_run(opened, run_id)
    response = jsonify(run_document(cancelled.run))
    response.status_code = 202 if cancelled.is_asked else 200
    return response


@blueprint.post("/<uuid:run_id>/retry")
def retry(run_id: UUID) -> Response:
    no_parameters()
    empty_body()
    with connection() as opened:
        run = retries.retry_run(opened, run_id)
    response = jsonify(run_document(run))
    response.status_code = 201
    response.headers["Location"] = url_for("runs.show", run_id=run.id)
    return response


@blueprint.post("/bulk")
def bulk() -> Response:
    no_parameters()
    asked = read_bulk_request(json_body())
    with connection() as opened:
        if asked.dry_run:
            return jsonify(action=asked.action, dry_run=True, selected=len(selection.select_runs(opened, asked)))
        return jsonify(bulk_document(asked.action, selection.change_runs(opened, asked)))
