"""Errors as RFC 9457 problem documents; one table, class → status."""

from http import HTTPStatus

import structlog
from flask import Flask, Response, g, json, request
from werkzeug.exceptions import HTTPException

from forgeflow.errors import (
    BodyTooLarge,
    Conflict,
    ForgeError,
    IdempotencyConflict,
    InvalidInput,
    MalformedBody,
    NotFound,
    RunFinished,
    RunNotFinished,
    SchemaMismatch,
    SelectionChanged,
    StatusConflict,
    StoreUnavailable,
    VersionMismatch,
)

log = structlog.get_logger()


class UntrustedHost(ForgeError):
    """The request names a host that this server is not known by."""


class CrossOrigin(ForgeError):
    """A browser sends this from a page of another origin."""


class UnsupportedMediaType(ForgeError):
    """The body is labelled as something that is not read."""


# The first class that fits decides, so the special stand before the general.
_TABLE: list[tuple[type[ForgeError], int, str]] = [
    (MalformedBody, 400, "malformed-json"),
    (BodyTooLarge, 413, "payload-too-large"),
    (IdempotencyConflict, 422, "idempotency-key-reused"),
    (InvalidInput, 422, "validation-failed"),
    (UntrustedHost, 400, "untrusted-host"),
    (CrossOrigin, 403, "cross-origin"),
    (UnsupportedMediaType, 415, "unsupported-media-type"),
    (NotFound, 404, "not-found"),
    (StatusConflict, 409, "job-cancelled"),
    (RunFinished, 409, "run-finished"),
    (RunNotFinished, 409, "run-not-finished"),
    (SelectionChanged, 409, "selection-changed"),
    (VersionMismatch, 412, "version-mismatch"),
    (Conflict, 409, "conflict"),
    (SchemaMismatch, 503, "database-unavailable"),
    (StoreUnavailable, 503, "database-unavailable"),
]
_MAX_ERRORS = 100
_STATUS_NAMES = {404: "not-found", 405: "method-not-allowed"}


def problem(status: int, kind: str, detail: str, **members: object) -> Response:
    """A problem document; `detail` is for people and never repeats a refused value."""
    document = {
        "type": f"/problems/{kind}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": request.path,
        **members,
        "request_id": g.get("request_id", ""),
    }
    return Response(json.dumps(document) + "\n", status, content_type="application/problem+json")


def _answer_forge_error(error: ForgeError) -> Response:
    entry = next((row for row in _TABLE if isinstance(error, row[0])), None)
    if entry is None:
        return _answer_bug(error)
    _, status, kind = entry
    members: dict[str, object] = {}
    if isinstance(error, InvalidInput) and error.problems:
        members["errors"] = [
            {_place(one.pointer): one.pointer, "detail": one.detail, "code": one.code}
            for one in error.problems[:_MAX_ERRORS]
        ]
    response = problem(status, kind, str(error), **members)
    if status == 503:
        log.warning("request refused", path=request.path, reason=str(error))
        response.headers["Retry-After"] = "5"
    return response


def _place(pointer: str) -> str:
    return "pointer" if pointer.startswith("#") else "parameter"


def _answer_http_error(error: HTTPException) -> Response:
    """Flask's own: no such path, no such method, a request that is not HTTP."""
    status = error.code or 500
    details = {
        404: "there is nothing at this path",
        405: "this path does not answer this method",
    }
    response = problem(
        status, _STATUS_NAMES.get(status, "bad-request"), details.get(status, "the request is malformed")
    )
    if status == 405 and (allowed := getattr(error, "valid_methods", None)):
        response.headers["Allow"] = ", ".join(sorted(allowed))
    return response


def _answer_bug(error: Exception) -> Response:
    log.error("request failed", path=request.path, exc_info=error)
    return problem(500, "internal", "ForgeFlow failed to answer; its log has the reason under this request_id")


def register(app: Flask) -> None:
    app.register_error_handler(ForgeError, _answer_forge_error)
    app.register_error_handler(HTTPException, _answer_http_error)
    app.register_error_handler(Exception, _answer_bug)
