"""Who may talk to the API: known hosts, pages of our own, labelled bodies; and what every answer carries."""

import json
import re
import socket
from typing import Any

import psycopg
import pytest

from forgeflow.config import load_config
from forgeflow.web.app import create_app
from tests.support.web import HELLO, Answer, WebServer, table_digest, web_server

# The id of no job: constant, for it is part of the names of tests.
NOBODY = "00000000-0000-4000-8000-000000000000"

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
BODY = json.dumps(HELLO)


def routes() -> list[tuple[str, str]]:
    """Every method and path that the application answers, ids filled in."""
    app = create_app(load_config(environ={}))
    return sorted(
        (method, re.sub(r"<.*?>", NOBODY if "uuid" in rule.rule else "forgeflow.css", rule.rule))
        for rule in app.url_map.iter_rules()
        for method in rule.methods or ()
    )


ROUTES = routes()
PREVIEW, BULK = "/api/schedule/preview", "/api/runs/bulk"
COMMANDS = ("pause", "resume", "cancel", "skip-next", "unskip", "trigger")
CHANGES = [
    *("POST /api/jobs", "PATCH /api/jobs/{job}", f"POST {PREVIEW}"),
    *(f"POST /api/jobs/{{job}}/{name}" for name in COMMANDS),
    *(f"POST /api/runs/{{run}}/{name}" for name in ("cancel", "retry")),
    f"POST {BULK}",
]
BODIES = {
    "/api/jobs": BODY,
    PREVIEW: '{"cron_expr": "@daily"}',
    BULK: '{"action": "cancel", "filter": {"status": "pending"}}',
    "/api/jobs/{job}": '{"priority": 9}',
}


def subjects(web: WebServer, call: str) -> dict[str, str]:
    """A job with ticks to come, and a run that the call can change."""
    run: str = web.submit()["latest_run_id"]
    if call.endswith("/retry"):
        assert web.post(f"/api/runs/{run}/cancel").status == 200
    return {"job": web.submit(cron_expr="0 0 1 1 *")["id"], "run": run}


def change(web: WebServer, call: str, of: dict[str, str], headers: dict[str, str]) -> Answer:
    method, _, path = call.partition(" ")
    return web.request(method, path.format(**of), BODIES.get(path, b""), {**JSON, **headers})


def test_every_call_that_changes_anything_is_tried_here() -> None:
    changing = [call for call in ROUTES if call[0] not in ("GET", "HEAD", "OPTIONS")]
    tried = [tuple(call.format(job=NOBODY, run=NOBODY).split()) for call in CHANGES]
    assert sorted(changing) == sorted(tried)


@pytest.mark.parametrize("call", CHANGES)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[::1"},
        {"Origin": "http://{host}.evil.example"},
        {"Origin": "http://evil.example@{host}"},
        {"Origin": "{host}"},
        {"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": ""},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://{host}"},
    ],
)
def test_page_of_another_origin_changes_nothing(
    web: WebServer, rows: psycopg.Connection[Any], call: str, headers: dict[str, str]
) -> None:
    of = subjects(web, call)
    before = table_digest(rows)
    host = f"127.0.0.1:{web.port}"
    answer = change(web, call, of, {name: value.format(host=host) for name, value in headers.items()})
    assert (answer.status, answer.json()["type"]) == (403, "/problems/cross-origin")
    assert table_digest(rows) == before


@pytest.mark.parametrize("call", CHANGES)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://{host}"},
        {"Origin": "https://{host}"},
        {"Origin": "http://{host}", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_our_own_pages_may_change_things(web: WebServer, call: str, headers: dict[str, str]) -> None:
    of = subjects(web, call)
    host = f"127.0.0.1:{web.port}"
    answer = change(web, call, of, {name: value.format(host=host) for name, value in headers.items()})
    assert answer.status in (200, 201), answer.text


def test_no_get_changes_anything(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    job = web.submit()
    before = table_digest(rows)
    for method, path in ROUTES:
        if method != "POST":
            web.request(method, path)
    web.get(f"/api/jobs/{job['id']}")
    web.get(f"/api/runs/{job['latest_run_id']}")
    assert table_digest(rows) == before


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "",
        "localhost.evil.example",
        "127.0.0.1.evil.example:{port}",
        "127.0.0.1:{port}:80",
        "127.0.0.1:{port}@evil.example",
        "localhost/evil",
        "localhost evil.example",
        "[::1",
        "[::ffff:7f00:1]",
        "2130706433",
        "localhost:port",
        "l\xf6calhost",
    ],
)
def test_foreign_host_is_refused_for_every_method_and_route(
    web: WebServer, rows: psycopg.Connection[Any], host: str
) -> None:
    named = host.format(port=web.port)
    for method, path in [*ROUTES, ("DELETE", "/api/jobs"), ("TRACE", "/"), ("GET", "/nothing")]:
        answer = web.request(method, path, BODY if method == "POST" else None, {**JSON, "Host": named})
        assert answer.status == 400, (method, path)
        if method != "HEAD" and b"<html>" not in answer.body:
            assert answer.json()["type"] == "/problems/untrusted-host"
    assert rows.execute("SELECT count(*) FROM jobs").fetchone() == (0,)


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST", "localhost:{port}", "localhost.", "LocalHost.:{port}"),
        *("127.0.0.1", "127.0.0.1:{port}", "[::1]", "[::1]:{port}", socket.gethostname()),
    ],
)
def test_known_host_is_served(web: WebServer, host: str) -> None:
    named = host.format(port=web.port)
    assert web.request("POST", "/api/jobs", BODY, {"Host": named}).status == 201
    own_page = {**JSON, "Host": named, "Origin": f"http://{named}"}
    assert web.request("POST", "/api/jobs", BODY, own_page).status == 201


def test_missing_and_repeated_host_are_refused(web: WebServer) -> None:
    for hosts in (b"", b"Host: localhost\r\nHost: evil.example\r\n"):
        received = web.send(b"GET /api/jobs HTTP/1.1\r\n" + hosts + b"Connection: close\r\n\r\n")
        assert b" 400 " in received.splitlines()[0]


def test_allowed_hosts_adds_names(web_database: str) -> None:
    with web_server(web_database, SERVER_ALLOWED_HOSTS="Forge.Example. [fd00::1]") as server:
        for host in ("forge.example", "FORGE.example:443", "[fd00::1]:80", "localhost"):
            assert server.get("/healthz", {"Host": host}).status == 200
        assert server.get("/healthz", {"Host": "evil.example"}).status == 400


@pytest.mark.parametrize(
    "kind",
    [
        *("text/plain", "multipart/form-data; boundary=x", "text/plain;application/json", "application/xml"),
        *("application/json-seq", "application", "*/*", "application/vnd.forge+json", "text/json"),
    ],
)
def test_other_media_type_is_refused(web: WebServer, rows: psycopg.Connection[Any], kind: str) -> None:
    answer = web.request("POST", "/api/jobs", BODY, {"Content-Type": kind})
    assert (answer.status, answer.json()["type"]) == (415, "/problems/unsupported-media-type")
    job = web.submit()
    answer = web.request("POST", f"/api/jobs/{job['id']}/cancel", BODY, {"Content-Type": kind})
    assert answer.status == 415
    assert rows.execute("SELECT count(*), min(status) FROM jobs").fetchone() == (1, "active")


@pytest.mark.parametrize("kind", [FORM, {}])
@pytest.mark.parametrize("browser", [{"Origin": "http://127.0.0.1:{port}"}, {"Sec-Fetch-Site": "same-origin"}])
def test_body_of_a_browser_must_be_labelled_json(
    web: WebServer, rows: psycopg.Connection[Any], kind: dict[str, str], browser: dict[str, str]
) -> None:
    headers = {name: value.format(port=web.port) for name, value in browser.items()}
    assert web.request("POST", "/api/jobs", BODY, {**kind, **headers}).status == 415
    assert rows.execute("SELECT count(*) FROM jobs").fetchone() == (0,)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        *(("GET", path, 200) for path in ("/", "/api/jobs", "/api/stats", "/healthz", "/readyz", "/metrics")),
        ("GET", "/static/forgeflow.css", 200),
        ("HEAD", "/api/jobs", 200),
        ("OPTIONS", "/api/jobs", 200),
        ("GET", "/api/nothing", 404),
        ("GET", "/static/nothing", 404),
        ("GET", "/static/../app.py", 404),
        ("GET", "/static/%2e%2e/app.py", 404),
        ("DELETE", "/api/jobs", 405),
        ("POST", "/api/jobs", 400),
        ("GET", "/api/jobs?x=1", 422),
    ],
)
def test_every_answer_carries_the_security_headers(web: WebServer, method: str, path: str, status: int) -> None:
    answer = web.request(method, path, b"" if method == "POST" else None)
    assert answer.status == status
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert re.fullmatch("[0-9a-f]{16}", answer.headers["X-Request-Id"])
    assert answer.headers["Cache-Control"] in ("no-store", "no-cache")
    assert answer.headers["Server"] == "gunicorn"
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api", 404),
        ("GET", "/api/", 404),
        ("GET", f"/api/jobs/{NOBODY}", 404),
        ("PUT", f"/api/jobs/{NOBODY}", 405),
        ("GET", f"/api/jobs/{NOBODY}/pause", 405),
        ("POST", "/api/jobs", 400),
        ("POST", "/api/runs", 405),
        ("GET", "/api/runs?limit=0", 422),
    ],
)
def test_every_refusal_is_a_problem_document(web: WebServer, method: str, path: str, status: int) -> None:
    answer = web.request(method, path, b"" if method == "POST" else None, {"X-Request-Id": "my-request.1"})
    problem = answer.json()
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json")
    assert problem.keys() >= {"type", "title", "status", "detail", "instance", "request_id"}
    assert problem["type"].startswith("/problems/")
    assert (problem["status"], problem["instance"]) == (status, path.partition("?")[0])
    assert problem["request_id"] == answer.headers["X-Request-Id"] == "my-request.1"
    if status == 405:
        assert set(answer.headers["Allow"].split(", ")) >= {"OPTIONS"}


@pytest.mark.parametrize("given", ["a b", "x" * 65, "<script>", "\xe9", ""])
def test_odd_request_id_is_replaced(web: WebServer, given: str) -> None:
    assert re.fullmatch("[0-9a-f]{16}", web.get("/healthz", {"X-Request-Id": given}).headers["X-Request-Id"])


def test_options_names_the_methods_and_grants_no_origin(web: WebServer) -> None:
    answer = web.request("OPTIONS", "/api/jobs", headers={"Origin": "http://evil.example"})
    assert set(answer.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS", "POST"}
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
