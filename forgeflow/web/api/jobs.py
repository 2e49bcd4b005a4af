"""/api/jobs"""

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

from flask import Blueprint, Response, jsonify, request, url_for

from forgeflow.errors import FieldProblem, InvalidInput
from forgeflow.service import explain, jobs, lifecycle, upcoming
from forgeflow.service.requests import (
    read_job_request,
    read_pause_request,
    read_skip_request,
    read_trigger_request,
)
from forgeflow.store.connection import Connection
from forgeflow.store.jobs import JobRow
from forgeflow.web.api.documents import explanation_document, job_document, run_document, upcoming_document
from forgeflow.web.api.queries import Query, no_parameters
from forgeflow.web.database import connection
from forgeflow.web.guard import empty_body, json_body, optional_body

blueprint = Blueprint("jobs", __name__, url_prefix="/api/jobs")


def _with_key(body: dict[str, Any]) -> dict[str, Any]:
    """The body with the key of the header Idempotency-Key; the two may both be given when they agree."""
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return body
    problem = None
    if not key.isascii():  # its bytes have no agreed encoding
        problem = FieldProblem("Idempotency-Key", "expected a header of ASCII characters", "bad-header")
    elif body.get("idempotency_key") not in (None, key):
        problem = FieldProblem("#/idempotency_key", "differs from the header Idempotency-Key", "conflicting-key")
    if problem:
        raise InvalidInput("the idempotency key cannot be accepted", [problem])
    return {**body, "idempotency_key": key}


def _answer(job: JobRow, status: int = 200) -> Response:
    response = jsonify(job_document(job))
    response.status_code = status
    response.set_etag(str(job.version))
    return response


@blueprint.post("")
def submit() -> Response:
    no_parameters()
    request_ = read_job_request(_with_key(json_body()))
    with connection() as opened:
        submission = jobs.submit_job(opened, request_, source="api")
    response = _answer(submission.job, 201 if submission.is_new else 200)
    response.headers["Location"] = url_for("jobs.show", job_id=submission.job.id)
    if not submission.is_new:
        response.headers["Idempotent-Replayed"] = "true"
    return response


@blueprint.get("")
def index() -> Response:
    query = Query()
    limit, before = query.limit(), query.uuid("cursor")
    query.check()
    with connection() as opened:
        rows = jobs.list_jobs(opened, before=before, max_rows=limit + 1)
    cursor = str(rows[limit - 1].id) if len(rows) > limit else None
    return jsonify(items=[job_document(row) for row in rows[:limit]], next_cursor=cursor)


@blueprint.get("/<uuid:job_id>")
def show(job_id: UUID) -> Response:
    no_parameters()
    with connection() as opened:
        return _answer(jobs.get_job(opened, job_id))


@blueprint.get("/<uuid:job_id>/next")
def show_next(job_id: UUID) -> Response:
    query = Query()
    count = query.count()
    query.check()
    with connection() as opened:
        return jsonify(upcoming_document(upcoming.preview_job(opened, job_id, count=count)))


@blueprint.get("/<uuid:job_id>/explain")
def show_explanation(job_id: UUID) -> Response:
    query = Query()
    at = query.moment("at")
    query.check()
    with connection() as opened:
        return jsonify(explanation_document(explain.explain_tick(opened, job_id, at)))


@blueprint.patch("/<uuid:job_id>")
def edit(job_id: UUID) -> Response:
    no_parameters()
    body = json_body()
    with connection() as opened:
        return _answer(lifecycle.edit_job(opened, job_id, body, versions=_asked_versions()))


def _asked_versions() -> set[int] | None:
    """The versions that If-Match names, of which the job must have one; None: any.

    A weak tag names none, for it promises too little, and neither does what is no tag of ours: a script whose
    variable is empty must not change whatever there is.
    """
    if "If-Match" not in request.headers or request.if_match.star_tag:
        return None
    tags = filter(None, request.if_match.as_set())  # an empty tag is None there
    return {int(tag) for tag in tags if re.fullmatch(r"[1-9][0-9]{0,8}", tag, re.ASCII)}


@blueprint.post("/<uuid:job_id>/pause")
def pause(job_id: UUID) -> Response:
    no_parameters()
    asked = read_pause_request(optional_body())
    with connection() as opened:
        return _answer(lifecycle.pause_job(opened, job_id, asked))


def _change(job_id: UUID, change: Callable[[Connection, UUID], JobRow]) -> Response:
    no_parameters()
    empty_body()
    with connection() as opened:
        return _answer(change(opened, job_id))


@blueprint.post("/<uuid:job_id>/resume")
def resume(job_id: UUID) -> Response:
    return _change(job_id, lifecycle.resume_job)


@blueprint.post("/<uuid:job_id>/cancel")
def cancel(job_id: UUID) -> Response:
    return _change(job_id, lifecycle.cancel_job)


def _change_ticks(job_id: UUID, change: Callable[..., JobRow]) -> Response:
    """Of a job; `tick_at` in the body says which one is meant."""
    no_parameters()
    asked = read_skip_request(optional_body())
    with connection() as opened:
        return _answer(change(opened, job_id, tick_at=asked.tick_at))


@blueprint.post("/<uuid:job_id>/skip-next")
def skip_next(job_id: UUID) -> Response:
    return _change_ticks(job_id, lifecycle.skip_next)


@blueprint.post("/<uuid:job_id>/unskip")
def unskip(job_id: UUID) -> Response:
    return _change_ticks(job_id, lifecycle.unskip)


@blueprint.post("/<uuid:job_id>/trigger")
def trigger(job_id: UUID) -> Response:
    no_parameters()
    asked = read_trigger_request(optional_body())
    with connection() as opened:
        run = lifecycle.trigger_job(opened, job_id, asked.payload)
    response = jsonify(run_document(run))
    response.status_code = 201
    response.headers["Location"] = url_for("runs.show", run_id=run.id)
    return response
