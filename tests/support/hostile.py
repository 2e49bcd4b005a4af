"""An HTTP server on loopback that does what servers should not; the path of a request says what."""

import contextlib
import gzip
import socket
import ssl
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_MEGABYTE = 1024**2


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Answer = Callable[[socket.socket, Request], None]


def plain(status: str, body: bytes = b"", *headers: str) -> Answer:
    head = "".join(f"{header}\r\n" for header in headers)
    whole = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body
    return lambda connection, _: connection.sendall(whole)


def _endlessly(first: bytes, then: bytes, *, seconds: float = 0.0) -> Answer:
    """Until the other side has had enough."""

    def answer(connection: socket.socket, _: Request) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(then)
            threading.Event().wait(seconds)

    return answer


def _then_close(data: bytes) -> Answer:
    def answer(connection: socket.socket, _: Request) -> None:
        connection.sendall(data)
        raise ConnectionAbortedError

    return answer


def _hang(connection: socket.socket, _: Request) -> None:
    connection.recv(1)


def _bomb(connection: socket.socket, _: Request) -> None:
    """300 MB of zeros in 300 kB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    first = packer.compress(bytes(_MEGABYTE)) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(bytes(_MEGABYTE)) + packer.flush(zlib.Z_FULL_FLUSH)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + first)
    for _number in range(299):
        connection.sendall(again)
    raise ConnectionAbortedError


def _echo(connection: socket.socket, request: Request) -> None:
    plain("200 OK", request.body)(connection, request)


_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

ANSWERS: Mapping[str, Answer] = {
    "/ok": plain("200 OK", b"fine"),
    "/cookie": plain("200 OK", b"", "Set-Cookie: id=1; Path=/"),
    "/echo": _echo,
    "/teapot": plain("418 I am a teapot", b"short and stout"),
    "/broken": plain("500 No", b"hunter2", "X-Secret: hunter2"),
    "/later": plain("503 Busy", b"", "Retry-After: 7"),
    "/slow-down": plain("429 Slow", b"", "Retry-After: soon"),
    "/gzip": plain("200 OK", gzip.compress(b"unpacked"), "Content-Encoding: gzip"),
    "/no-gzip": plain("200 OK", b"hunter2", "Content-Encoding: gzip"),
    "/twice": plain("200 OK", b"as it came", "Content-Encoding: gzip, gzip"),
    "/hang": _hang,
    "/drip": _endlessly(b"HTTP/1.1 200 OK\r\n\r\n", b"x", seconds=0.02),
    "/drip-head": _endlessly(b"HTTP/1.1 200 OK\r\nX: ", b"x", seconds=0.02),
    "/between": _endlessly(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "/endless": _endlessly(b"HTTP/1.1 200 OK\r\n\r\n", bytes(65536)),
    "/silent-body": _endlessly(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfour", b"", seconds=3600),
    "/empty-gzip": _endlessly(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"")[:10], b"\0\0\0\xff\xff" * 10_000
    ),
    "/bomb": _bomb,
    "/ok-and-closes": _then_close(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"),
    "/closes": _then_close(b""),
    "/closes-in-the-head": _then_close(b"HTTP/1.1 200 OK\r\nContent-"),
    "/closes-in-the-body": _then_close(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"),
    "/closes-in-a-bad-body": _then_close(b"HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\nhalf"),
    "/flood": _endlessly(b"HTTP/1.1 200 OK\r\n", b"X-Flood: flood\r\n" * 1000),
    "/no-http": _then_close(b"SSH-2.0-hunter2\r\n\r\n"),
    "/bad-chunk": _then_close(_CHUNKED + b"4\r\ngood\r\nhunter2\r\n"),
    "/no-last-chunk": _then_close(_CHUNKED + b"4\r\ngood\r\n"),
    "/two-lengths": _then_close(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
    "/loop": plain("302 Found", b"", "Location: /loop"),
    "/moved": plain("302 Found", b"", "Location: /ok"),
    "/moved-as-it-is": plain("307 Moved", b"", "Location: /echo"),
    "/moved-to-metadata": plain("302 Found", b"", "Location: http://169.254.169.254/latest"),
    "/moved-to-a-file": plain("302 Found", b"", "Location: file:///etc/passwd"),
    "/moved-to-a-monster": plain("302 Found", b"", f"Location: http://{'m' * 60_000}/"),
    "/moved-to-a-password": plain("302 Found", b"", "Location: http://me:hunter2@127.0.0.1/"),
    "/moved-to-nonsense": plain("302 Found", b"", "Location: http://[::1/"),
}


class HostileServer:
    """Remembers what it was asked, and over how many connections."""

    def __init__(self, tls: ssl.SSLContext | None = None, answers: Mapping[str, Answer] | None = None) -> None:
        self._tls = tls
        self._answers = {**ANSWERS, **(answers or {})}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.requests: list[Request] = []
        self.connections = 0
        self.ended = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}{path}"

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            if self._tls:
                connection = self._tls.wrap_socket(connection, server_side=True)
                self._open.append(connection)
            with connection, connection.makefile("rb") as stream:
                while (request := _read_request(stream.readline, stream.read)) is not None:
                    self.requests.append(request)
                    self._answers.get(request.path, plain("404 Not Found"))(connection, request)
        self.ended += 1


def _read_request(line: Callable[[], bytes], read: Callable[[int], bytes]) -> Request | None:
    first = line().decode("latin-1").split()
    if len(first) != 3:
        return None
    headers = {}
    while text := line().decode("latin-1").strip():
        name, _, value = text.partition(":")
        headers[name.lower()] = value.strip()
    return Request(first[0], first[1], headers, read(int(headers.get("content-length", "0"))))


@contextlib.contextmanager
def hostile_server(
    tls: ssl.SSLContext | None = None, answers: Mapping[str, Answer] | None = None
) -> Iterator[HostileServer]:
    server = HostileServer(tls, answers)
    try:
        yield server
    finally:
        server.close()


def make_certificate(folder: Path, name: str) -> ssl.SSLContext:
    """A server's side of TLS with a certificate of its own making for that name, `cert.pem` in the folder."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    asked = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name}".split()
    whose = ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(["openssl", *asked, *whose], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context
