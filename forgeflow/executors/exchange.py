"""One HTTP request and what becomes of it, through a client that keeps connections from run to run.

Nothing of the machine goes into a request: no proxy, no netrc, no cookie. Whether a request had an effect nobody knows
once a byte of it is out, so none is sent a second time by us; the next attempt of the run has the same Idempotency-Key.
"""

import json
import logging
import re
import secrets
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import httpcore2
import httpx2

from forgeflow import __version__
from forgeflow.config import Http
from forgeflow.domain.run import Ending, Failure
from forgeflow.executors.base import STOPPED, Orders, run_environment
from forgeflow.executors.network import Guard
from forgeflow.executors.output import OutputKeeper
from forgeflow.executors.wire import Backend, NotSent, Stopped, TimedOut, Watch
from forgeflow.store.runs import ClaimedRun

# At debug they would tell every header, what a job has as a secret among them.
logging.getLogger("httpcore2").setLevel(logging.WARNING)

_MAX_CONNECTIONS = 8
# Below what servers commonly wait: the later a connection is used again, the likelier it is just being closed.
_KEEPALIVE_SECONDS = 5.0
# One coding can grow a thousandfold, and is counted as it grows; several could do so unseen, one inside the other.
_DECODED = ("gzip", "deflate")
_REDIRECTS = (301, 302, 303, 307, 308)
_LATER = (429, 503)
# Of any name in the DNS; what a server makes up may stand in an error.
_MAX_HOST_LENGTH = 253
_SECONDS = re.compile(r"-?[0-9]{1,12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Call:
    """A request as a payload or a redirect asks for it; `own` are the headers that tell of the run."""

    method: str
    url: httpx2.URL
    own: Mapping[str, str]
    given: Mapping[str, str]
    body: bytes | None


@dataclass(slots=True)
class _Progress:
    """How far an attempt has come, for whatever ends it."""

    status: int | None = None
    redirects: int = 0


class Exchange:
    """Executes HTTP runs, one at a time; made once per worker, in the worker."""

    def __init__(self, settings: Http) -> None:
        self._settings = settings
        self._backend = Backend(Guard.of(settings.deny_networks, settings.allow_networks))
        self._pool = httpcore2.ConnectionPool(
            ssl_context=_tls(settings.verify_tls),
            max_connections=_MAX_CONNECTIONS,
            keepalive_expiry=_KEEPALIVE_SECONDS,
            network_backend=self._backend,
        )

    def __call__(self, run: ClaimedRun, orders: Orders, keeper: OutputKeeper) -> Ending:
        self._backend.watch = Watch(run, orders)
        progress = _Progress()
        failure: Failure | None
        try:
            failure = self._follow(first_call(run), run.payload.get("expect_status"), keeper, progress)
        except Stopped as stopped:
            failure = STOPPED[stopped.reason]
        except TimedOut as error:
            failure = Failure("timed_out", str(error), charged=True)
        except NotSent as error:
            failure = _not_sent(str(error), progress)
        except httpcore2.LocalProtocolError:
            failure = _not_sent("the request holds what HTTP cannot say, in its headers or its URL", progress)
        except httpcore2.RemoteProtocolError:
            failure = Failure("failed", "the server broke off, or answered with what is no HTTP", charged=True)
        except httpcore2.NetworkError:
            failure = Failure("failed", "the connection broke after the request was sent", charged=True)
        return Ending(run.id, run.attempt, failure, http_status=progress.status)

    def _follow(
        self, call: Call, expected: Sequence[int] | None, keeper: OutputKeeper, progress: _Progress
    ) -> Failure | None:
        """Send it, and what redirects make of it, as far as they are followed; why it failed, if it did."""
        while True:
            response = self._send(call)
            try:
                progress.status = response.status_code
                following = None
                if not _is_expected(response.status_code, expected):
                    following = redirected(call, response)
                if following is None or progress.redirects >= self._settings.max_redirects:
                    return self._judge(response, expected, keeper)
            finally:
                response.close()
                self._drop_soiled()
            call = following
            progress.redirects += 1

    def _send(self, call: Call) -> httpx2.Response:
        """The answer as far as its headers.  Raises NotSent, and what the wire and httpcore2 raise."""
        request = build_request(call)
        patience = {
            "connect": self._settings.connect_timeout,
            "read": self._settings.read_timeout,
            "write": self._settings.read_timeout,
            # Only a connection that was never given back could be waited for; then the worker must not be deaf.
            "pool": self._settings.connect_timeout,
        }
        answer = self._pool.handle_request(
            httpcore2.Request(
                method=request.method,
                url=httpcore2.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=call.body,
                extensions={"timeout": patience},
            )
        )
        return httpx2.Response(answer.status, headers=answer.headers, stream=_Body(answer.stream))

    def _drop_soiled(self) -> None:
        """Close connections over which more has come than was asked for: the next run would take it for its answer.

        Of what the server sends later the pool takes care; what came along has been read, and only h11 has it.
        """
        for connection in self._pool.connections:
            exchange = getattr(getattr(connection, "_connection", None), "_h11_state", None)
            if exchange is not None and exchange.trailing_data[0]:
                connection.close()

    def _judge(self, response: httpx2.Response, expected: Sequence[int] | None, keeper: OutputKeeper) -> Failure | None:
        """By the status, and, where that is as expected, by whether the answer came whole."""
        status = response.status_code
        trouble = ""
        try:
            self._read(response, keeper)
        except (httpcore2.NetworkError, httpcore2.ProtocolError):
            trouble = "the answer broke off"
        except httpx2.DecodingError:
            trouble = "the answer is not what its Content-Encoding says"
        if _is_expected(status, expected):
            return Failure("failed", f"answered {status}, but {trouble}", charged=True) if trouble else None
        told = f"answered {status}, expected {_words(expected)}"
        if status in _LATER:
            seconds = retry_after_seconds(response.headers.get("retry-after"), datetime.now(UTC))
            return Failure("postponed", told, charged=True, is_later=True, retry_after_seconds=seconds)
        return Failure("failed", told, charged=True)

    def _read(self, response: httpx2.Response, keeper: OutputKeeper) -> None:
        """Feed the answer to the keeper, up to the limit."""
        coding = response.headers.get("content-encoding", "").strip().lower()
        left = self._settings.response_limit
        for part in response.iter_bytes() if coding in _DECODED else response.iter_raw():
            keeper.feed(part[:left])
            left -= len(part)
            if left < 0:
                keeper.cut()
                return


class _Body(httpx2.SyncByteStream):
    """What httpcore2 reads, for httpx2 to decode."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._stream)

    def close(self) -> None:
        self._stream.close()


def first_call(run: ClaimedRun) -> Call:
    """The request of a payload.  Raises NotSent."""
    payload = run.payload
    body, content_type = _body(payload.get("body"))
    given = dict(payload.get("headers", {}))
    if content_type and not any(name.lower() == "content-type" for name in given):
        given["Content-Type"] = content_type
    try:
        url = httpx2.URL(payload["url"])
    except httpx2.InvalidURL as error:
        raise NotSent("the URL is none that can be called; expected one such as https://example.com/path") from error
    return Call(payload.get("method", "POST"), url, _own_headers(run), given, body)


def _body(value: Any) -> tuple[bytes | None, str | None]:
    if value is None:
        return None, None
    if isinstance(value, str):
        return value.encode(), "text/plain; charset=utf-8"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), "application/json"


def _own_headers(run: ClaimedRun) -> Mapping[str, str]:
    """What tells the server which run it is, so that it can be idempotent.  Source: README "HTTP jobs"."""
    told = {f"X-{name.title().replace('_', '-')}": value for name, value in run_environment(run).items()}
    # A header has no code for most characters, and every server knows this one.
    told["X-Forgeflow-Job-Name"] = quote(run.job_name, safe=" ")
    return {
        **told,
        "Idempotency-Key": str(run.id),
        # One trace per run, whatever its attempts.  Source: W3C Trace Context, 3.2.
        "traceparent": f"00-{run.id.hex}-{secrets.token_hex(8)}-01",
    }


def build_request(call: Call) -> httpx2.Request:
    """With what a job may say otherwise below its own headers, and ours above them."""
    headers = {"Accept": "*/*", "Accept-Encoding": ", ".join(_DECODED), "User-Agent": f"forgeflow/{__version__}"}
    merged = httpx2.Headers(headers)
    for given in (call.given, call.own):
        merged.update([(name.encode(), value.strip().encode()) for name, value in given.items()])
    return httpx2.Request(call.method, call.url, headers=merged, content=call.body)


def redirected(call: Call, response: httpx2.Response) -> Call | None:
    """The request that a redirect asks for; None when it asks for none, or for one that shall not be made.

    Any header of a job may be a key to the place it was meant for, and so may its body: to another origin none of them
    goes along, and a request that would be sent with its body is not made there.
    """
    location = response.headers.get("location")
    if response.status_code not in _REDIRECTS or location is None:
        return None
    try:
        url = call.url.join(location)
    except httpx2.InvalidURL:
        return None
    if url.scheme not in ("http", "https") or not 0 < len(url.host) <= _MAX_HOST_LENGTH or url.userinfo:
        return None
    is_same = (url.scheme, url.host, url.port) == (call.url.scheme, call.url.host, call.url.port)
    turned = call if response.status_code in (307, 308) else _turned_into_get(call, response.status_code)
    if is_same:
        return replace(turned, url=url)
    return None if turned.body is not None else replace(turned, url=url, given={})


def _turned_into_get(call: Call, status: int) -> Call:
    """As browsers do it.  Source: RFC 9110, 15.4.2 to 15.4.4."""
    if call.method == "POST" or (status == 303 and call.method != "HEAD"):
        given = {name: value for name, value in call.given.items() if not name.lower().startswith("content-")}
        return replace(call, method="GET", body=None, given=given)
    return call


def retry_after_seconds(text: str | None, now: datetime) -> float | None:
    """Of a header Retry-After: seconds or a date to come; None for anything else.  Source: RFC 9110, 10.2.3."""
    text = (text or "").strip()
    if _SECONDS.fullmatch(text):
        return float(text) if float(text) > 0 else None
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    seconds = (at - now).total_seconds()
    return seconds if seconds > 0 else None


def _is_expected(status: int, expected: Sequence[int] | None) -> bool:
    return 200 <= status <= 299 if expected is None else status in expected


def _words(expected: Sequence[int] | None) -> str:
    return "200 to 299" if expected is None else ", ".join(map(str, expected))


def _not_sent(reason: str, progress: _Progress) -> Failure:
    """After a redirect a request was sent, and may have had its effect."""
    if progress.redirects:
        return Failure("failed", f"redirected, but {reason}", charged=True)
    return Failure("not_started", reason, charged=True)


def _tls(verify: bool) -> ssl.SSLContext:
    context = httpcore2.default_ssl_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
