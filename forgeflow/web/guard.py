"""Who may talk to us: the host they name, and where a browser's request comes from.

Whoever reaches the API runs commands, and any web page can make its visitor's browser send a form to localhost. So
every request must name a host that we are known by (a rebound DNS name is not), a changing request from a browser
must come from our own pages, and a body without the label of JSON is read only from programs that are no browser.
"""

import re
import socket
from collections.abc import Callable
from typing import Any

from flask import Flask, current_app, request
from gunicorn.http.errors import ParseException

from forgeflow.config import Config
from forgeflow.domain.document import pointer, read_object
from forgeflow.errors import BodyTooLarge, FieldProblem, InvalidInput, MalformedBody
from forgeflow.web.problem import CrossOrigin, UnsupportedMediaType, UntrustedHost

MAX_BODY = "forgeflow.max_body"  # bytes; a key of app.config
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?", re.ASCII)


def _host_name(host: str) -> str | None:
    """The name in a Host header, lower case, without port, brackets and final dot; None when it is malformed."""
    match = _HOST.fullmatch(host.lower())
    return match[1].strip("[]").rstrip(".") if match else None


def known_hosts(config: Config) -> frozenset[str]:
    """Loopback names, this machine's own name and address to listen on, and `server.allowed_hosts`."""
    own = {socket.gethostname().lower(), socket.getfqdn().lower(), config.server.address()[0].lower()}
    names = own | {host.lower() for host in config.server.allowed_hosts}
    return frozenset(_LOOPBACK | {name.strip("[]").rstrip(".") for name in names})


def _check_host(known: frozenset[str]) -> None:
    if _host_name(request.headers.get("Host", "")) not in known:
        raise UntrustedHost("this server is not known by that host name; server.allowed_hosts can add it")


def _is_from_browser() -> bool:
    return "Origin" in request.headers or "Sec-Fetch-Site" in request.headers


def _check_origin() -> None:
    """Both headers must speak for a page of ours; a program that is no browser sends neither."""
    if request.method in _SAFE_METHODS:
        return
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    # No parser of URLs: an origin that none of them takes is refused like any other that is not ours.
    is_foreign = origin is not None and origin.lower().partition("://")[2] != request.headers["Host"].lower()
    if is_foreign or site not in (None, "same-origin", "none"):
        raise CrossOrigin("a page of another origin may not change anything here")


def _check_media_type() -> None:
    kind = request.mimetype
    if kind != "application/json" and (kind not in ("", "application/x-www-form-urlencoded") or _is_from_browser()):
        raise UnsupportedMediaType("expected a body of type application/json")


def _read_body() -> bytes:
    """The whole body.  Raises BodyTooLarge, MalformedBody.

    Flask's own MAX_CONTENT_LENGTH cuts a chunked body off without a word, so it is not used.
    """
    limit: int = current_app.config[MAX_BODY]
    body = b""
    try:
        while len(body) <= limit and (part := request.stream.read(limit + 1 - len(body))):
            body += part
    except (OSError, ParseException) as error:
        raise MalformedBody("the body ends early, or its chunks are not what HTTP expects") from error
    if len(body) < min(request.content_length or 0, limit):
        raise MalformedBody("the body is shorter than its Content-Length")
    if len(body) > limit:
        raise BodyTooLarge(f"the body is longer than {limit} bytes, server.max_body")
    return body


def json_body() -> dict[str, Any]:
    """The request's JSON object, whatever curl calls it; it may still hold Refused.

    Raises UnsupportedMediaType, BodyTooLarge, MalformedBody, InvalidInput.
    """
    _check_media_type()
    return read_object(_read_body())


def optional_body() -> dict[str, Any]:
    """The request's JSON object as `json_body` gives it; nothing is an empty one."""
    body = _read_body()
    if not body:
        return {}
    _check_media_type()
    return read_object(body)


def empty_body() -> None:
    """Nothing, or `{}`, is what these requests carry: a field that would be ignored is refused as by `json_body`."""
    members = optional_body()
    if members:
        problems = [FieldProblem(pointer([key]), "is not a field here", "extra-forbidden") for key in members]
        raise InvalidInput("this request has no fields", problems)


def register(app: Flask, config: Config) -> None:
    app.config[MAX_BODY] = config.server.max_body
    known = known_hosts(config)
    checks: list[Callable[[], None]] = [lambda: _check_host(known), _check_origin]

    @app.before_request
    def check_request() -> None:
        for check in checks:
            check()
