"""Who may talk to us: the host they name, and where a browser's request comes from.

Whoever reaches the API runs commands, and any web page can make its visitor's browser send a form to localhost. So
every request must name a host that we are known by (a rebound DNS name is not), a changing request from a browser
must come from our own pages, and a body without the label of JSON is read only from programs that are no browser.
"""

import re
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from flask import Flask, request

from forgeflow.config import Config
from forgeflow.domain.document import read_object
from forgeflow.web.problem import CrossOrigin, UnsupportedMediaType, UntrustedHost

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
    return frozenset(_LOOPBACK | own | {host.lower() for host in config.server.allowed_hosts})


def _check_host(known: frozenset[str]) -> None:
    if _host_name(request.headers.get("Host", "")) not in known:
        raise UntrustedHost("this server is not known by that host name; server.allowed_hosts can add it")


def _is_from_browser() -> bool:
    return "Origin" in request.headers or "Sec-Fetch-Site" in request.headers


def _check_origin() -> None:
    if request.method in _SAFE_METHODS:
        return
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site not in ("same-origin", "none"):
        raise CrossOrigin("a page of another origin may not change anything here")
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("Host", "").lower():
        raise CrossOrigin("a page of another origin may not change anything here")


def json_body() -> dict[str, Any]:
    """The request's JSON object, whatever curl calls it.  Raises UnsupportedMediaType, MalformedBody, InvalidInput."""
    kind = request.mimetype
    if kind != "application/json" and (kind not in ("", "application/x-www-form-urlencoded") or _is_from_browser()):
        raise UnsupportedMediaType("expected a body of type application/json")
    return read_object(request.get_data(cache=False))


def register(app: Flask, config: Config) -> None:
    known = known_hosts(config)
    checks: list[Callable[[], None]] = [lambda: _check_host(known), _check_origin]

    @app.before_request
    def check_request() -> None:
        for check in checks:
            check()
