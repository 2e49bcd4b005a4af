"""The http executor against a server that does what it should not, and in a real worker."""

import dataclasses
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from forgeflow.config import Config, load_config
from forgeflow.domain.run import Ending
from forgeflow.executors.http import HttpExecutor
from forgeflow.executors.output import OutputKeeper
from forgeflow.executors.secrets import Mask
from forgeflow.service.jobs import submit_job
from forgeflow.service.requests import read_job_request
from forgeflow.store.connection import Connection, connect
from tests.support.databases import config_for, drop_database, make_database
from tests.support.executing import orders_of
from tests.support.hostile import HostileServer, Request, hostile_server, make_certificate, plain
from tests.support.processes import NodeProcess, nodes, nothing_left_behind
from tests.support.scenario import claimed_run
from tests.support.waiting import wait_for
from tests.support.work import wait_for_status

SECRET = "hunter2"
QUICK = {"executor.http.connect_timeout": "300ms", "executor.http.read_timeout": "300ms"}


@pytest.fixture(scope="module")
def server() -> Iterator[HostileServer]:
    with hostile_server() as started:
        yield started


def config(**settings: str) -> Config:
    given = {"executor.http.allow_networks": "127.0.0.0/8", **settings}
    return load_config("/dev/null", environ={}, overrides=given)


@pytest.fixture(scope="module")
def executor() -> HttpExecutor:
    """May reach loopback, as only a test should."""
    return HttpExecutor(config())


@pytest.fixture(scope="module")
def quick() -> HttpExecutor:
    """Loses patience soon."""
    return HttpExecutor(config(**QUICK))


def call(executor: HttpExecutor, url: str, *, timeout: float = 20.0, **payload: Any) -> tuple[Ending, str]:
    """How the run ended, and what was kept of the answer; in the run's own words, for they must not tell secrets."""
    run = dataclasses.replace(claimed_run("http", {"url": url, **payload}), timeout_seconds=timeout)
    keeper = OutputKeeper(1024**2)
    with orders_of() as (orders, _):
        ending = executor(run, orders, keeper)
    assert SECRET not in str(ending)
    output = keeper.output()
    return ending, output.head + output.tail


def kind_of(ending: Ending) -> tuple[str | None, int | None]:
    return (ending.failure.error_type if ending.failure else None), ending.http_status


def error_of(ending: Ending) -> str:
    assert ending.failure
    return ending.failure.error


# How it ends


def test_expected_status_is_success_and_the_answer_is_kept(executor: HttpExecutor, server: HostileServer) -> None:
    ending, kept = call(executor, server.url("/ok"))
    assert (kind_of(ending), kept) == ((None, 200), "fine")


def test_other_status_is_a_failure_that_is_told_in_one_sentence(executor: HttpExecutor, server: HostileServer) -> None:
    ending, kept = call(executor, server.url("/broken"))
    assert (kind_of(ending), kept) == (("failed", 500), SECRET)
    assert error_of(ending) == "answered 500, expected 200 to 299"
    assert ending.failure
    assert ending.failure.charged


def test_job_says_itself_which_status_it_expects(executor: HttpExecutor, server: HostileServer) -> None:
    ending, kept = call(executor, server.url("/teapot"), expect_status=[418])
    assert (kind_of(ending), kept) == ((None, 418), "short and stout")
    ending, _ = call(executor, server.url("/ok"), expect_status=[201, 204])
    assert error_of(ending) == "answered 200, expected 201, 204"


@pytest.mark.parametrize(("path", "seconds"), [("/later", 7.0), ("/slow-down", None), ("/closes-in-a-bad-body", None)])
def test_server_that_has_no_time_is_asked_again_later(
    executor: HttpExecutor, server: HostileServer, path: str, seconds: float | None
) -> None:
    ending, _ = call(executor, server.url(path))
    assert ending.failure
    assert ending.failure.error_type == "postponed"
    assert (ending.failure.charged, ending.failure.is_later) == (True, True)
    assert ending.failure.retry_after_seconds == seconds


def test_answer_that_was_expected_is_no_postponement(executor: HttpExecutor, server: HostileServer) -> None:
    assert kind_of(call(executor, server.url("/later"), expect_status=[503])[0]) == (None, 503)


def test_nobody_there_is_told_from_a_failure(executor: HttpExecutor) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        ending, _ = call(executor, f"http://127.0.0.1:{closed.getsockname()[1]}/")
    assert kind_of(ending) == ("not_started", None)
    assert error_of(ending) == "no connection with 127.0.0.1: Connection refused"
    assert ending.failure
    assert ending.failure.charged


def test_server_that_takes_no_connection_costs_the_time_to_connect(quick: HttpExecutor) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        fillers = [_dial(full.getsockname()) for _ in range(4)]
        ending, _ = call(quick, f"http://127.0.0.1:{full.getsockname()[1]}/")
        for filler in fillers:
            filler.close()
    assert kind_of(ending) == ("timed_out", None)
    assert "no request was sent" in error_of(ending)


def _dial(address: tuple[str, int]) -> socket.socket:
    """Takes a place in the queue of a server that accepts nobody."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(address)
    return sock


@pytest.mark.parametrize("url", ["http://0177.0.0.1/", "http://①②⑦.0.0.1/", "http://a b/", "http://[::1/"])
def test_url_that_cannot_be_called_is_told(executor: HttpExecutor, url: str) -> None:
    """A submission refuses most of these; a secret that is put into a URL is none that it sees."""
    ending, _ = call(executor, url)
    assert kind_of(ending) == ("not_started", None)


def test_header_that_http_cannot_say_is_told_without_its_value(executor: HttpExecutor, server: HostileServer) -> None:
    ending, _ = call(executor, server.url("/ok"), headers={"Authorization": f"{SECRET}\r\nHost: evil"})
    assert kind_of(ending) == ("not_started", None)


# What servers do


@pytest.mark.parametrize("path", ["/hang", "/drip", "/drip-head", "/between", "/empty-gzip", "/silent-body"])
def test_timeout_ends_the_whole_call_whatever_the_server_does(
    executor: HttpExecutor, server: HostileServer, path: str
) -> None:
    began = time.monotonic()
    ending, _ = call(executor, server.url(path), timeout=0.3)
    assert kind_of(ending)[0] == "timed_out"
    assert error_of(ending) == "not over after 0.3 s, stopped"
    assert time.monotonic() - began < 3


@pytest.mark.parametrize(("path", "status"), [("/hang", None), ("/silent-body", 200)])
def test_silent_server_is_given_up(quick: HttpExecutor, server: HostileServer, path: str, status: int | None) -> None:
    ending, _ = call(quick, server.url(path))
    assert kind_of(ending) == ("timed_out", status)
    assert error_of(ending) == "127.0.0.1 was silent for 0.3 s, given up"


def test_server_that_takes_nothing_is_given_up(quick: HttpExecutor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        ending, _ = call(quick, url, body="x" * 20_000_000)
    assert error_of(ending) == "127.0.0.1 took nothing for 0.3 s, given up"


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def _serve_one(listener: socket.socket, words: bytes, *, reads: int) -> threading.Thread:
    """One connection: read a little, say something, and close, whatever else may come."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(reads)
            connection.sendall(words)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_answer_that_comes_before_the_request_is_whole_is_heard(executor: HttpExecutor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hasty:
        thread = _serve_one(hasty, b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n", reads=100)
        ending, _ = call(executor, f"http://127.0.0.1:{hasty.getsockname()[1]}/", body="x" * 20_000_000)
        thread.join()
    assert kind_of(ending) == ("failed", 413)


@pytest.mark.parametrize("path", ["/endless", "/bomb"])
def test_endless_answers_and_bombs_cost_no_memory_and_go_by_the_status(server: HostileServer, path: str) -> None:
    limited = HttpExecutor(config(**{"executor.http.response_limit": "64K"}))
    call(limited, server.url("/ok"))
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what it is now
    before = _peak_bytes()
    ending, kept = call(limited, server.url(path))
    assert (kind_of(ending), len(kept)) == ((None, 200), 64 * 1024)
    # The server is in this process, too.
    assert _peak_bytes() - before < 30 * 1024**2


def _peak_bytes() -> int:
    """The most that this process has had in memory since its peak was cleared."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("size", [4, 3])
def test_answer_is_kept_up_to_the_limit(server: HostileServer, size: int) -> None:
    limited = HttpExecutor(config(**{"executor.http.response_limit": str(size)}))
    assert call(limited, server.url("/ok"))[1] == "fine"[:size]


def test_secret_that_the_limit_halves_is_not_shown(server: HostileServer) -> None:
    limited = HttpExecutor(config(**{"executor.http.response_limit": "12"}))
    run = claimed_run("http", {"url": server.url("/echo"), "body": f"it is {SECRET}, and more"})
    keeper = OutputKeeper(1024)
    keeper.hide(Mask({"token": SECRET}))
    with orders_of() as (orders, _):
        assert limited(run, orders, keeper).http_status == 200
    assert keeper.output().head == "it is "


@pytest.mark.parametrize(
    ("path", "status", "kept"),
    [
        ("/closes", None, ""),
        ("/closes-in-the-head", None, ""),
        ("/closes-in-the-body", 200, "half"),
        ("/no-http", None, ""),
        ("/bad-chunk", 200, "good"),
        ("/no-last-chunk", 200, "good"),
        ("/two-lengths", None, ""),
        ("/flood", None, ""),
        ("/no-gzip", 200, ""),
    ],
)
def test_broken_answer_is_a_failure(
    executor: HttpExecutor, server: HostileServer, path: str, status: int | None, kept: str
) -> None:
    before = len(server.requests)
    ending, output = call(executor, server.url(path))
    assert (kind_of(ending), output) == (("failed", status), kept)
    # Not sent again: the server may have done what it was asked.
    assert len(server.requests) == before + 1


def test_packed_answer_is_unpacked_once_and_no_more(executor: HttpExecutor, server: HostileServer) -> None:
    assert call(executor, server.url("/gzip"))[1] == "unpacked"
    assert call(executor, server.url("/twice"))[1] == "as it came"


# What ends it


@pytest.mark.parametrize("path", ["/hang", "/drip", "/between", "/silent-body", "/empty-gzip"])
@pytest.mark.parametrize("reason", ["cancelled", "interrupted", "lost", "fenced"])
def test_what_ends_a_run_is_heard_whatever_the_server_does(
    executor: HttpExecutor, server: HostileServer, path: str, reason: str
) -> None:
    before = len(server.requests)
    run = claimed_run("http", {"url": server.url(path)})
    with orders_of(fenced_in=0.2 if reason == "fenced" else 60.0) as (orders, master):

        def tell() -> None:
            wait_for(lambda: len(server.requests) > before)
            match reason:
                case "cancelled":
                    master.send("CANCEL", run=str(run.id), attempt=run.attempt)
                case "interrupted":
                    master.send("STOP")
                case "lost":
                    master.close()

        thread = threading.Thread(target=tell)
        thread.start()
        ending = executor(run, orders, OutputKeeper(1024))
        thread.join()
    assert kind_of(ending)[0] == reason
    assert ending.failure
    assert ending.failure.charged == (reason == "lost")


def test_cancel_is_heard_while_a_name_is_looked_up(executor: HttpExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    library = socket.getaddrinfo
    asked, hanging = threading.Event(), threading.Event()

    def hang(host: str, port: int, **options: Any) -> Any:
        if options.get("flags"):
            return library(host, port, **options)
        asked.set()
        hanging.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "no")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    run = claimed_run("http", {"url": "http://slow.example/"})
    with orders_of() as (orders, master):

        def tell() -> None:
            asked.wait(10)
            master.send("CANCEL", run=str(run.id), attempt=run.attempt)

        thread = threading.Thread(target=tell)
        thread.start()
        ending = executor(run, orders, OutputKeeper(1024))
        thread.join()
    hanging.set()
    assert kind_of(ending) == ("cancelled", None)


# What is sent


def test_server_is_told_which_run_calls(executor: HttpExecutor, server: HostileServer) -> None:
    run = dataclasses.replace(
        claimed_run("http", {"url": server.url("/echo")}),
        id=uuid.UUID("0192f0aa-0000-7000-8000-000000000001"),
        attempt=3,
        job_name="Täglich: 100 %\n",
        timezone="Europe/Berlin",
        scheduled_for=datetime(2026, 5, 1, 12, tzinfo=UTC),
        is_catch_up=True,
    )
    with orders_of() as (orders, _):
        executor(run, orders, OutputKeeper(1024))
        executor(run, orders, OutputKeeper(1024))
    first, second = (request.headers for request in server.requests[-2:])
    assert first["idempotency-key"] == second["idempotency-key"] == str(run.id)
    told = {name: value for name, value in first.items() if name.startswith("x-forgeflow-")}
    assert told == {
        "x-forgeflow-run-id": str(run.id),
        "x-forgeflow-attempt": "3",
        "x-forgeflow-job-id": str(run.job_id),
        "x-forgeflow-job-name": "T%C3%A4glich%3A 100 %25%0A",
        "x-forgeflow-scheduled-for": "2026-05-01T12:00:00Z",
        "x-forgeflow-timezone": "Europe/Berlin",
        "x-forgeflow-is-catch-up": "true",
    }
    version, trace, span, flags = first["traceparent"].split("-")
    assert (version, trace, len(span), flags) == ("00", run.id.hex, 16, "01")
    assert span != second["traceparent"].split("-")[2]
    assert first["user-agent"].startswith("forgeflow/")


def test_what_tells_of_the_run_cannot_be_forged(executor: HttpExecutor, server: HostileServer) -> None:
    """A submission refuses such headers, but need not be the only way into the database for ever."""
    call(executor, server.url("/echo"), headers={"idempotency-key": "forged", "X-Forgeflow-Attempt": "forged"})
    assert "forged" not in str(server.requests[-1].headers)


def test_blanks_around_a_value_are_none_of_it(executor: HttpExecutor, server: HostileServer) -> None:
    assert kind_of(call(executor, server.url("/echo"), headers={"X-Blank": " a b\t"})[0]) == (None, 200)
    assert server.requests[-1].headers["x-blank"] == "a b"


@pytest.mark.parametrize(
    ("payload", "body", "content_type"),
    [
        ({}, b"", None),
        ({"body": "Grüße"}, "Grüße".encode(), "text/plain; charset=utf-8"),
        ({"body": {"ä": [1, None, 0.5]}}, '{"ä":[1,null,0.5]}'.encode(), "application/json"),
        ({"body": False, "method": "PUT"}, b"false", "application/json"),
        ({"body": "<a/>", "headers": {"content-type": "text/xml"}}, b"<a/>", "text/xml"),
    ],
)
def test_body_is_sent_with_its_type(
    executor: HttpExecutor, server: HostileServer, payload: dict[str, Any], body: bytes, content_type: str | None
) -> None:
    call(executor, server.url("/echo"), **payload)
    sent = server.requests[-1]
    assert (sent.method, sent.body) == (payload.get("method", "POST"), body)
    assert sent.headers.get("content-type") == content_type
    assert sent.headers["content-length"] == str(len(body))


def test_nothing_of_the_machine_goes_into_a_request(
    server: HostileServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither its proxy nor its netrc; and no cookie of one run into another."""
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login me password {SECRET}\n")
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9/")
    monkeypatch.setenv("NETRC", str(netrc))
    fresh = HttpExecutor(config())
    call(fresh, server.url("/cookie"))
    call(fresh, server.url("/ok"))
    assert not {"cookie", "authorization"} & set(server.requests[-1].headers)
    assert server.requests[-1].path == "/ok"


def test_connection_is_used_again(server: HostileServer) -> None:
    fresh = HttpExecutor(config())
    before = server.connections
    for _ in range(5):
        assert call(fresh, server.url("/ok"))[1] == "fine"
    assert server.connections == before + 1


def test_connection_that_the_server_has_closed_is_not_used_again(executor: HttpExecutor) -> None:
    with hostile_server() as server:
        for count in range(1, 4):
            assert call(executor, server.url("/ok-and-closes"))[1] == "fine"
            wait_for(lambda count=count: server.ended == count)  # type: ignore[misc]


@pytest.mark.parametrize("more", [b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", b"rest of a body"])
def test_nothing_that_a_server_says_too_much_is_the_next_answer(executor: HttpExecutor, more: bytes) -> None:
    with hostile_server(answers={"/more": lambda connection, _: connection.sendall(OK + more)}) as server:
        for _ in range(3):
            ending, output = call(executor, server.url("/more"))
            assert (kind_of(ending), output) == ((None, 200), "ok")


def test_connection_of_a_run_that_was_stopped_is_not_used_again(quick: HttpExecutor, server: HostileServer) -> None:
    assert kind_of(call(quick, server.url("/silent-body"))[0]) == ("timed_out", 200)
    assert call(quick, server.url("/ok"))[1] == "fine"


# Redirects


def test_redirects_are_answers_like_any_other(executor: HttpExecutor, server: HostileServer) -> None:
    before = len(server.requests)
    ending, _ = call(executor, server.url("/moved"))
    assert kind_of(ending) == ("failed", 302)
    assert len(server.requests) == before + 1


@pytest.fixture(scope="module")
def following() -> HttpExecutor:
    return HttpExecutor(config(**{"executor.http.max_redirects": "3"}))


def test_redirects_are_followed_as_far_as_is_allowed(following: HttpExecutor, server: HostileServer) -> None:
    assert call(following, server.url("/moved"))[1] == "fine"
    before = len(server.requests)
    assert kind_of(call(following, server.url("/loop"))[0]) == ("failed", 302)
    assert len(server.requests) == before + 4


def test_redirect_that_is_expected_is_not_followed(following: HttpExecutor, server: HostileServer) -> None:
    assert kind_of(call(following, server.url("/moved"), expect_status=[302])[0]) == (None, 302)


def test_redirect_within_an_origin_takes_everything_along(following: HttpExecutor, server: HostileServer) -> None:
    _, kept = call(following, server.url("/moved-as-it-is"), body="kept", headers={"Authorization": "mine"})
    assert kept == "kept"
    assert (server.requests[-1].method, server.requests[-1].headers["authorization"]) == ("POST", "mine")


def test_redirected_post_becomes_a_get_without_a_body(following: HttpExecutor, server: HostileServer) -> None:
    call(following, server.url("/moved"), body="gone")
    assert (server.requests[-1].method, server.requests[-1].body) == ("GET", b"")
    assert "content-type" not in server.requests[-1].headers


def test_nothing_of_the_job_goes_to_another_origin(following: HttpExecutor, server: HostileServer) -> None:
    """Its headers stay behind, and a request that would be sent with its body is not made."""
    keys = {"Authorization": "mine", "Cookie": "mine=1", "X-Api-Key": "mine"}
    away = {
        "/302": plain("302 Found", b"", f"Location: {server.url('/echo')}"),
        "/307": plain("307 Moved", b"", f"Location: {server.url('/echo')}"),
    }
    with hostile_server(answers=away) as origin:
        assert kind_of(call(following, origin.url("/302"), body="mine", headers=keys)[0]) == (None, 200)
        told = server.requests[-1]
        assert "mine" not in str(told.headers)
        assert (told.body, told.headers["host"]) == (b"", f"127.0.0.1:{server.port}")
        before = len(server.requests)
        assert kind_of(call(following, origin.url("/307"), body="mine", headers=keys)[0]) == ("failed", 307)
    assert len(server.requests) == before


def test_guard_stands_before_each_redirect(following: HttpExecutor, server: HostileServer) -> None:
    ending, _ = call(following, server.url("/moved-to-metadata"))
    # No failure to start: the first request had been sent.
    assert kind_of(ending) == ("failed", 302)
    assert error_of(ending) == (
        "redirected, but 169.254.169.254 has an address that executor.http.deny_networks refuses: 169.254.0.0/16"
    )


@pytest.mark.parametrize("where", ["a-file", "nonsense", "a-monster", "a-password"])
def test_redirect_to_what_is_no_web_address_is_not_followed(
    following: HttpExecutor, server: HostileServer, where: str
) -> None:
    ending, _ = call(following, server.url(f"/moved-to-{where}"))
    assert (kind_of(ending), error_of(ending)) == (("failed", 302), "answered 302, expected 200 to 299")


# TLS

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HostileServer, Path]]:
    """With a certificate for localhost that nobody has signed, and the file that makes it trusted."""
    folder = tmp_path_factory.mktemp("tls")
    with hostile_server(make_certificate(folder, "localhost")) as server:
        yield server, folder / "cert.pem"


@needs_openssl
def test_certificate_is_checked(executor: HttpExecutor, secured: tuple[HostileServer, Path]) -> None:
    ending, _ = call(executor, secured[0].url("/ok", "localhost"))
    assert kind_of(ending) == ("not_started", None)
    assert error_of(ending) == "no TLS with localhost: self-signed certificate"
    assert not secured[0].requests


@needs_openssl
def test_name_in_the_certificate_is_checked(
    secured: tuple[HostileServer, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, trusted = secured
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    trusting = HttpExecutor(config(**{"executor.http.allow_networks": "127.0.0.0/8 ::1/128"}))
    assert call(trusting, server.url("/ok", "localhost"))[1] == "fine"
    ending, _ = call(trusting, server.url("/ok", "127.0.0.1"))
    assert kind_of(ending) == ("not_started", None)
    assert "is not valid for '127.0.0.1'" in error_of(ending)


@needs_openssl
@pytest.mark.parametrize("path", ["/drip", "/hang"])
def test_timeout_ends_a_call_through_tls(secured: tuple[HostileServer, Path], path: str) -> None:
    careless = HttpExecutor(config(**{"executor.http.verify_tls": "no"}))
    assert call(careless, secured[0].url("/ok"))[1] == "fine"
    assert error_of(call(careless, secured[0].url(path), timeout=0.3)[0]) == "not over after 0.3 s, stopped"


def test_server_that_speaks_no_tls_is_told(executor: HttpExecutor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mail:
        thread = _serve_one(mail, b"220 hunter2 ready\r\n", reads=65536)
        ending, _ = call(executor, f"https://127.0.0.1:{mail.getsockname()[1]}/")
        thread.join()
    assert kind_of(ending) == ("not_started", None)
    assert error_of(ending).startswith("no TLS with 127.0.0.1: ")


# In a real worker


@pytest.fixture(scope="module")
def world(server_url: str, template: str) -> Iterator[tuple[Connection, NodeProcess]]:
    url = make_database(server_url, template=template)
    with nothing_left_behind(), nodes() as start, connect(config_for(url), "test") as connection:
        node = start(url, log__level="debug", executor__http__allow_networks="127.0.0.1/32", worker__concurrency="1")
        node.wait_for_log("node ready")
        yield connection, node
    drop_database(server_url, url)


def submit(connection: Connection, url: str, **payload: Any) -> Callable[[str], Any]:
    body = {"name": "job", "executor": "http", "payload": {"url": url, **payload}, "max_attempts": 2}
    job_id = submit_job(connection, read_job_request(body), source="api").job.id
    return lambda status: wait_for_status(connection, job_id, status)


def test_run_of_a_job_has_its_status_and_its_answer(
    world: tuple[Connection, NodeProcess], server: HostileServer
) -> None:
    connection, node = world
    run = submit(connection, server.url("/ok"), headers={"Authorization": SECRET})("succeeded")
    assert (run.http_status, run.output_head, run.outcome) == (200, "fine", "succeeded")
    assert server.requests[-1].headers["authorization"] == SECRET
    assert SECRET not in node.log_text()


def test_run_that_fails_is_tried_again_with_the_same_key(
    world: tuple[Connection, NodeProcess], server: HostileServer
) -> None:
    connection, node = world
    run = submit(connection, server.url("/broken"))("dead")
    assert SECRET not in node.log_text()
    assert (run.http_status, run.outcome, run.error) == (500, "failed", "answered 500, expected 200 to 299")
    first, second = (request.headers for request in server.requests[-2:])
    assert first["idempotency-key"] == second["idempotency-key"] == str(run.id)
    assert (first["x-forgeflow-attempt"], second["x-forgeflow-attempt"]) == ("1", "2")


@pytest.mark.parametrize("url", ["http://127.0.0.2:9/", "http://[::ffff:169.254.169.254]/", "http://2852039166/"])
def test_run_that_may_not_reach_its_server_could_not_start(world: tuple[Connection, NodeProcess], url: str) -> None:
    run = submit(world[0], url)("dead")
    assert (run.error_type, run.outcome, run.http_status) == ("not_started", "could_not_start", None)
    assert "executor.http.deny_networks refuses" in run.error


def test_server_that_recovers_is_found_by_the_next_attempt(world: tuple[Connection, NodeProcess]) -> None:
    busy = [True]

    def recover(connection: socket.socket, request: Request) -> None:
        plain("503 Busy" if busy else "200 OK", b"", "Retry-After: 0")(connection, request)
        busy.clear()

    with hostile_server(answers={"/recovers": recover}) as server:
        run = submit(world[0], server.url("/recovers"))("succeeded")
    assert (run.http_status, run.attempt) == (200, 2)
