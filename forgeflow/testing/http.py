"""An HTTP client that reaches nobody: what is asked of it is answered by what the test has said."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import httpx2

from forgeflow.errors import ForgeError, InvalidInput

# A function of the request: it gives a response, or a value for the body of one with status 200, or raises.
Handler = Callable[[httpx2.Request], Any]


class UnmockedRequest(ForgeError, AssertionError):
    """A request that the test has said nothing about."""


@dataclass(frozen=True, slots=True)
class Mock:
    """What answers the requests whose URL the pattern matches, as in `fnmatch`: `*`, `?` and `[…]`."""

    pattern: str
    handler: Handler


def json_mock(pattern: str, value: Any) -> Mock:
    """Answers 200 with that value.  Raises InvalidInput for one that JSON does not have."""
    content = _to_json(value)
    return Mock(pattern, lambda _: _respond(content))


class MockHttpClient(httpx2.Client):
    """Of several mocks that match the first one answers; a request that none matches raises UnmockedRequest."""

    def __init__(self, mocks: Sequence[Mock] = ()) -> None:
        self._mocks = tuple(mocks)
        self._calls: list[httpx2.Request] = []
        super().__init__(transport=httpx2.MockTransport(self._answer), trust_env=False)

    def calls(self, pattern: str = "*") -> list[httpx2.Request]:
        """The requests that were made, in their order; those with a body have it read."""
        return [request for request in self._calls if _matches(request, pattern)]

    def assert_called(self, pattern: str, *, times: int | None = None) -> None:
        """At least once or, if given, exactly so many times."""
        found = len(self.calls(pattern))
        if found != times if times is not None else not found:
            wanted = "a request" if times is None else f"{times} request{'' if times == 1 else 's'}"
            raise AssertionError(f"expected {wanted} to {pattern}, not {found}; {self._made()}")

    def assert_not_called(self, pattern: str = "*") -> None:
        if found := len(self.calls(pattern)):
            raise AssertionError(f"expected no request to {pattern}, not {found}; {self._made()}")

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self._calls.append(request)
        for mock in self._mocks:
            if _matches(request, mock.pattern):
                answer = mock.handler(request)
                return answer if isinstance(answer, httpx2.Response) else _respond(_to_json(answer))
        known = ", ".join(mock.pattern for mock in self._mocks) or "none"
        raise UnmockedRequest(f"{request.method} {request.url} is not mocked; known patterns: {known}")

    def _made(self) -> str:
        made = "".join(f"\n  {request.method} {request.url}" for request in self._calls)
        return f"the requests were:{made}" if made else "there was no request"


def _matches(request: httpx2.Request, pattern: str) -> bool:
    """An address of IPv6 has brackets, which a pattern would read as a set of characters."""
    url = str(request.url)
    return url == pattern or fnmatchcase(url, pattern)


def _to_json(value: object) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput("the answer of a mock: expected a value that JSON has, or an httpx2.Response") from error


def _respond(content: str) -> httpx2.Response:
    """Not by `json=`, for which None is no body at all."""
    return httpx2.Response(200, headers={"Content-Type": "application/json"}, content=content)
