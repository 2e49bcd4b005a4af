"""Odd but real HTTP: long lines, old versions, paths in disguise, bodies that do not end."""

import http.client
import json
import socket
import time

import pytest

from tests.support.web import HELLO, WebServer

BODY = json.dumps(HELLO).encode()


def head(web: WebServer, method: bytes = b"POST", path: bytes = b"/api/jobs", *lines: bytes) -> bytes:
    host = b"Host: 127.0.0.1:%d" % web.port
    return b"\r\n".join([b"%s %s HTTP/1.1" % (method, path), host, b"Connection: close", *lines, b"", b""])


def status(received: bytes) -> int:
    """Of the last response, for a 100 Continue may go before it."""
    return int(received[received.rindex(b"HTTP/1.1 ") :].split()[1])


@pytest.mark.parametrize(
    "path",
    [
        *("/api//jobs", "/api/jobs/", "/api/jobs//", "/API/jobs", "/api/jobs;x", "/api/./jobs"),
        *("/api/jobs%2f", "/api/jobs%00", "/api/jobs%0d%0aX:%201", "//evil.example/%2e%2e", "/%5cevil.example"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_path_in_disguise_is_not_found_and_never_redirects(web: WebServer, path: str, method: str) -> None:
    answer = web.request(method, path, BODY if method == "POST" else None)
    assert answer.status == 404
    assert "Location" not in answer.headers
    assert answer.json()["type"] == "/problems/not-found"


@pytest.mark.parametrize("path", ["/%61pi/%6aobs", "//api/jobs"])
def test_path_in_another_spelling_is_the_same_path(web: WebServer, path: str) -> None:
    """gunicorn decodes, and drops a second slash at the beginning."""
    assert web.get(path).json() == {"items": [], "next_cursor": None}


def test_line_break_in_a_path_forges_no_line_in_the_log(web: WebServer) -> None:
    web.get('/x%0a{"event":"forged"}%1b[31m')
    lines = web.log.read_text().splitlines()
    assert json.loads(lines[-1])["path"] == '/x\n{"event":"forged"}\x1b[31m'


def test_eight_kilobytes_of_query_are_read(web: WebServer) -> None:
    answer = web.get(f"/api/jobs?x={'a' * 8100}")
    assert (answer.status, answer.json()["errors"][0]["parameter"]) == (422, "x")
    assert len(answer.body) < 1000


@pytest.mark.parametrize(
    ("request_head", "expected"),
    [
        (b"GET /%s HTTP/1.1\r\n" % (b"a" * 20_000), 414),
        (b"GET / HTTP/1.1\r\nX-Long: %s\r\n" % (b"a" * 20_000), 431),
        (b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 200, 431),
        (b"GET / HTTP/9.9\r\n", 400),
        (b"get / HTTP/1.1\r\n", 400),
        (b"\x16\x03\x01\r\n", 400),
        (b"POST /api/jobs HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n", 400),
        (b"POST /api/jobs HTTP/1.1\r\nContent-Length: -5\r\n", 400),
        (b"POST /api/jobs HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"POST /api/jobs HTTP/1.1\r\nTransfer-Encoding: gzip\r\n", 400),
        (b"POST /api/jobs HTTP/1.1\r\nHost : localhost\r\n", 400),
    ],
)
def test_request_that_is_no_http_is_answered_sanely(web: WebServer, request_head: bytes, expected: int) -> None:
    received = web.send(request_head + b"Host: localhost\r\n\r\n")
    assert int(received.split()[1]) == expected
    assert b"Traceback" not in received
    assert web.get("/healthz").status == 200


def test_http_1_0_is_served(web: WebServer) -> None:
    received = web.send(b"GET /api/jobs HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert (received.split()[1], b'"items"' in received) == (b"200", True)
    received = web.send(
        b"POST /api/jobs HTTP/1.0\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
    )
    assert received.split()[1] == b"201"


def test_head_has_the_headers_of_get_and_no_body(web: WebServer) -> None:
    for path in ("/", "/api/jobs", "/healthz", "/metrics"):
        answer = web.request("HEAD", path)
        assert (answer.status, answer.body) == (200, b"")


def test_method_override_is_ignored(web: WebServer) -> None:
    answer = web.get("/api/jobs", {"X-HTTP-Method-Override": "POST", "X-HTTP-Method": "DELETE"})
    assert answer.json() == {"items": [], "next_cursor": None}


def test_headers_of_a_proxy_change_nothing(web: WebServer) -> None:
    spoofed = {
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Prefix": "/evil",
        "SCRIPT_NAME": "/evil",
        "PATH_INFO": "/evil",
    }
    answer = web.post("/api/jobs", HELLO, spoofed)
    assert answer.headers["Location"] == f"/api/jobs/{answer.json()['id']}"
    assert web.get("/evil/healthz", {"SCRIPT_NAME": "/evil"}).status == 404


def chunked(data: bytes, size: int = 8192) -> bytes:
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def test_chunked_body_is_read(web: WebServer) -> None:
    received = web.send(head(web, b"POST", b"/api/jobs", b"Transfer-Encoding: chunked") + chunked(BODY, 7))
    assert status(received) == 201


@pytest.mark.parametrize("body", [b"zz\r\nabc\r\n", b"5\r\nabc", b"", b"5\r\nabcdefgh\r\n0\r\n\r\n", b"-1\r\n\r\n"])
def test_broken_chunks_are_refused(web: WebServer, body: bytes) -> None:
    received = web.send(head(web, b"POST", b"/api/jobs", b"Transfer-Encoding: chunked") + body)
    assert status(received) == 400
    assert b"application/problem+json" in received


def test_body_that_ends_early_is_refused(web: WebServer) -> None:
    received = web.send(head(web, b"POST", b"/api/jobs", b"Content-Length: 1000") + BODY)
    assert status(received) == 400


def test_largest_body_is_read_and_one_byte_more_is_not(web: WebServer) -> None:
    body = BODY + b" " * (1024**2 - len(BODY))
    for framing in ("length", "chunked"):
        for data, expected in ((body, 201), (body + b" ", 413)):
            lines = b"Transfer-Encoding: chunked" if framing == "chunked" else b"Content-Length: %d" % len(data)
            sent = chunked(data) if framing == "chunked" else data
            assert status(web.send(head(web, b"POST", b"/api/jobs", lines) + sent)) == expected
    assert len(web.get("/api/jobs").json()["items"]) == 2


LARGE = b'{"name": "' + b"a" * 2 * 1024**2 + b'"}'


@pytest.mark.parametrize("framing", ["length", "chunked", "expect"])
@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        (b"/api/jobs", [], 413),
        (b"/api/jobs", [b"Content-Type: text/plain"], 415),
        (b"/api/jobs", [b"Origin: http://evil.example"], 403),
        (b"/api/nothing", [], 404),
        (b"/api/stats", [], 405),
    ],
)
def test_client_of_two_megabytes_gets_its_answer(
    web: WebServer, framing: str, path: bytes, headers: list[bytes], expected: int
) -> None:
    """Sent to the end before anything is read, as http.client and many others do."""
    if framing == "chunked":
        sent, line = chunked(LARGE), b"Transfer-Encoding: chunked"
    else:
        sent, line = LARGE, b"Content-Length: %d" % len(LARGE)
    more = [b"Expect: 100-continue"] if framing == "expect" else []
    received = web.send(head(web, b"POST", path, line, *headers, *more) + sent)
    assert status(received) == expected
    document = json.loads(received[received.rindex(b"\r\n\r\n") :])
    assert document["status"] == expected


def test_connection_is_kept_after_a_large_refused_body(web: WebServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=20)
    connection.request("POST", "/api/jobs", LARGE, {"Content-Type": "application/json"})
    refused = connection.getresponse()
    assert (refused.status, json.loads(refused.read())["type"]) == (413, "/problems/payload-too-large")
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()


def _send_until(connection: socket.socket, part: bytes, deadline: float) -> None:
    while time.monotonic() < deadline:
        connection.sendall(part)


def test_endless_body_is_cut_off(web: WebServer) -> None:
    with socket.create_connection(("127.0.0.1", web.port), timeout=20) as connection:
        connection.sendall(head(web, b"POST", b"/api/jobs", b"Transfer-Encoding: chunked"))
        chunk, began = b"10000\r\n" + b" " * 65536 + b"\r\n", time.monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            _send_until(connection, chunk, began + 20)


def test_bodies_that_stall_hold_no_thread_for_long_once_refused(web: WebServer) -> None:
    stalled = []
    for _ in range(16):
        connection = socket.create_connection(("127.0.0.1", web.port), timeout=20)
        connection.sendall(head(web, b"POST", b"/api/jobs", b"Content-Length: 99999", b"Content-Type: text/plain"))
        stalled.append(connection)
    for connection in stalled:
        assert b" 415 " in connection.recv(65536)
        connection.close()
    assert web.get("/healthz").status == 200
