"""Which addresses HTTP calls may reach, however they are written."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from forgeflow.config import Config, Http
from forgeflow.executors.http import HttpExecutor
from forgeflow.executors.network import Guard
from forgeflow.executors.output import OutputKeeper
from forgeflow.executors.wire import Backend, NotSent, Stream, TimedOut, Watch
from tests.support.executing import orders_of
from tests.support.scenario import claimed_run
from tests.support.waiting import wait_for

GUARD = Guard.of(Http().deny_networks, ())


@pytest.fixture
def backend() -> Iterator[Backend]:
    """As a run has it that may take a minute."""
    made = Backend(GUARD)
    with orders_of() as (orders, _):
        made.watch = Watch(claimed_run(), orders)
        yield made


def _guarded_by(backend: Backend, deny: list[str], allow: list[str]) -> Backend:
    """For the same run."""
    other = Backend(Guard.of(deny, allow))
    other.watch = backend.watch
    return other


REFUSED = [
    # Ways to write an IPv4 address that the C library knows.
    ("127.0.0.1", "127.0.0.0/8"),
    ("127.255.255.254", "127.0.0.0/8"),
    ("2130706433", "127.0.0.0/8"),
    ("017700000001", "127.0.0.0/8"),
    ("0x7f000001", "127.0.0.0/8"),
    ("0x7f.1", "127.0.0.0/8"),
    ("127.1", "127.0.0.0/8"),
    ("127.0.1", "127.0.0.0/8"),
    ("0177.0.0.1", "127.0.0.0/8"),
    ("0x7f.0x0.0x0.0x1", "127.0.0.0/8"),
    ("１２７.0.0.1", "127.0.0.0/8"),
    ("①②⑦.⓪.⓪.①", "127.0.0.0/8"),
    ("127。0。0。1", "127.0.0.0/8"),
    ("0", "0.0.0.0/8"),
    ("0.0.0.0", "0.0.0.0/8"),
    ("0.1.2.3", "0.0.0.0/8"),
    # The machine's own name of itself.
    ("localhost", "127.0.0.0/8"),
    # Link-local, where clouds hand out credentials; the same written otherwise.
    ("169.254.169.254", "169.254.0.0/16"),
    ("2852039166", "169.254.0.0/16"),
    ("0xa9fea9fe", "169.254.0.0/16"),
    ("0251.0376.0251.0376", "169.254.0.0/16"),
    ("100.100.100.200", "100.64.0.0/10"),
    ("100.64.0.1", "100.64.0.0/10"),
    ("fd00:ec2::254", "fd00:ec2::254/128"),
    ("168.63.129.16", "168.63.129.16/32"),
    ("192.0.0.192", "192.0.0.0/24"),
    ("fd20:ce::254", "fd20:ce::254/128"),
    ("fd00:c1::a9fe:a9fe", "fd00:c1::a9fe:a9fe/128"),
    ("198.19.0.1", "198.18.0.0/15"),
    ("100::1", "100::/64"),
    # Many at once, and none.
    ("224.0.0.1", "224.0.0.0/4"),
    ("239.255.255.250", "224.0.0.0/4"),
    ("240.0.0.1", "240.0.0.0/4"),
    ("255.255.255.255", "240.0.0.0/4"),
    ("ff02::1", "ff00::/8"),
    ("::", "::/128"),
    # IPv6, and IPv4 within.
    ("::1", "::1/128"),
    ("0:0:0:0:0:0:0:1", "::1/128"),
    ("fe80::1", "fe80::/10"),
    ("fe80::1%lo", "fe80::/10"),
    ("fec0::1", "fec0::/10"),
    ("::ffff:127.0.0.1", "127.0.0.0/8"),
    ("::ffff:7f00:1", "127.0.0.0/8"),
    ("::ffff:169.254.169.254", "169.254.0.0/16"),
    ("::127.0.0.1", "127.0.0.0/8"),
    ("::a9fe:a9fe", "169.254.0.0/16"),
    ("64:ff9b::a9fe:a9fe", "64:ff9b::/96"),
    ("64:ff9b::127.0.0.1", "64:ff9b::/96"),
    ("64:ff9b:1::a9fe:a9fe", "64:ff9b:1::/48"),
    ("::ffff:0:a9fe:a9fe", "::ffff:0:0:0/96"),
    ("2001:0:a9fe:a9fe::5601:5601", "2001::/32"),
    ("2002:a9fe:a9fe::", "2002::/16"),
    ("2002:7f00:1::1", "2002::/16"),
]


@pytest.mark.parametrize(("host", "word"), REFUSED)
def test_no_way_to_write_an_address_gets_past_the_guard(backend: Backend, host: str, word: str) -> None:
    with pytest.raises(NotSent) as caught:
        backend.connect_tcp(host, 9, timeout=5.0)
    refused = str(caught.value)
    assert refused.startswith(f"{host} has an address that executor.http.deny_networks refuses: ")
    # A machine may have an IPv6 address for localhost first.
    assert refused.endswith(word) or host == "localhost"


@pytest.fixture(scope="module")
def executor() -> HttpExecutor:
    return HttpExecutor(Config())


@pytest.mark.parametrize("host", [host for host, _ in REFUSED])
def test_no_url_gets_past_the_guard(executor: HttpExecutor, host: str) -> None:
    """Some are refused before, as no URL."""
    run = claimed_run("http", {"url": f"http://[{host}]:9/" if ":" in host else f"http://{host}:9/"})
    with orders_of() as (orders, _):
        ending = executor(run, orders, OutputKeeper(1024))
    assert ending.failure
    assert (ending.failure.error_type, ending.failure.charged, ending.http_status) == ("not_started", True, None)
    assert "refuses" in ending.failure.error or "none that can be called" in ending.failure.error


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "10.0.0.1", "192.168.1.1", "2606:2800:220:1::1", "fd00::1", "::ffff:93.184.216.34"]
)
def test_other_addresses_may_be_reached(address: str) -> None:
    assert GUARD.refused_by(address) is None


@pytest.mark.parametrize("address", ["10.1.2.3", "172.16.0.1", "192.168.1.1", "fd00::1", "::ffff:10.0.0.1"])
def test_private_networks_are_refused_by_one_word(address: str) -> None:
    assert Guard.of(["private"], []).refused_by(address) == "private"


@pytest.mark.parametrize("address", ["127.0.0.5", "::ffff:127.0.0.5"])
def test_what_is_allowed_wins_over_what_is_denied_and_opens_nothing_else(address: str) -> None:
    guard = Guard.of(Http().deny_networks, ["127.0.0.5"])
    assert guard.refused_by(address) is None
    assert guard.refused_by("127.0.0.6") == "127.0.0.0/8"


def test_what_is_no_address_is_refused() -> None:
    assert GUARD.refused_by("localhost")


Found = list[tuple[int, int, int, str, Any]]


def _found(*addresses: tuple[str, int]) -> Found:
    return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address) for address in addresses]


class Resolver:
    """Answers as a name server does that belongs to somebody else; each name once, then otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Found | OSError) -> None:
        self._answers = list(answers)
        self._library = socket.getaddrinfo
        self.asked = 0
        monkeypatch.setattr(socket, "getaddrinfo", self._answer)

    def _answer(self, host: str, port: int, **options: Any) -> Any:
        if options.get("flags"):
            return self._library(host, port, **options)
        self.asked += 1
        answer = self._answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer


def test_name_that_changes_its_address_is_connected_to_as_it_was_checked(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        allowed = server.getsockname()
        resolver = Resolver(monkeypatch, _found(allowed), _found(("169.254.169.254", 80)))
        guarded = _guarded_by(backend, list(Http().deny_networks), ["127.0.0.1"])
        stream = guarded.connect_tcp("rebinding.example", 80, timeout=5.0)
        accepted, _ = server.accept()
        accepted.close()
        stream.close()
    assert isinstance(stream, Stream)
    assert resolver.asked == 1


def test_one_refused_address_among_many_is_enough(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    Resolver(monkeypatch, _found(("93.184.216.34", 80), ("127.0.0.1", 80)))
    with pytest.raises(NotSent, match=r"^mixed\.example has an address .* refuses: 127\.0\.0\.0/8$"):
        backend.connect_tcp("mixed.example", 80, timeout=5.0)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "Temporary failure"),
        ([], "it is no host's name"),
    ],
)
def test_what_cannot_be_looked_up_is_refused(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, answer: Found | OSError, told: str
) -> None:
    Resolver(monkeypatch, answer)
    with pytest.raises(NotSent, match=rf"^a\.example could not be looked up: {told}$"):
        backend.connect_tcp("a.example", 80, timeout=5.0)


@pytest.mark.parametrize("host", ["a..example", "x" * 70 + ".example", "%31.example"])
def test_what_is_no_name_is_refused(backend: Backend, host: str) -> None:
    with pytest.raises(NotSent, match="could not be looked up"):
        backend.connect_tcp(host, 80, timeout=5.0)


def test_look_up_that_hangs_costs_no_more_than_the_time_to_connect(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = threading.Event()
    library = socket.getaddrinfo

    def hang(host: str, port: int, **options: Any) -> Any:
        if options.get("flags"):
            return library(host, port, **options)
        hanging.wait(30)
        return _found(("127.0.0.1", 80))

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    with pytest.raises(TimedOut, match=r"^slow\.example was not looked up within 0\.05 s"):
        backend.connect_tcp("slow.example", 80, timeout=0.05)
    hanging.set()
    wait_for(lambda: "look-up" not in {thread.name for thread in threading.enumerate()}, why="the end of the look-up")


def test_address_that_takes_nobody_leaves_time_for_the_next(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.create_server(("127.0.0.1", 0)) as server:
        queued = [socket.socket() for _ in range(4)]
        for each in queued:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        Resolver(monkeypatch, _found(full.getsockname(), server.getsockname()))
        _guarded_by(backend, [], []).connect_tcp("two.example", 80, timeout=0.4).close()
        for each in queued:
            each.close()


def test_client_is_loaded_with_the_first_call_alone() -> None:
    script = "import sys, forgeflow.worker.loop; print({'httpx2', 'httpcore2'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "set()\n"
    )
