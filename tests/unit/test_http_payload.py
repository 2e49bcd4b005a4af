"""What a submission may say about a call: each bad field is named, and what it said is not repeated."""

from typing import Any

import pytest

from forgeflow.domain.document import pointer
from forgeflow.errors import InvalidInput
from forgeflow.service.requests import read_job_request

SECRET = "hunter2"


def refused(**payload: Any) -> list[str]:
    """The fields that are named."""
    given = {"url": "https://example.com/", **payload}
    with pytest.raises(InvalidInput) as caught:
        read_job_request({"name": "job", "executor": "http", "payload": given})
    told = [(problem.pointer, problem.detail) for problem in caught.value.problems]
    assert SECRET not in str([detail for _, detail in told])
    assert all(detail for _, detail in told)
    return [where.removeprefix("#/payload/") for where, _ in told]


@pytest.mark.parametrize(
    "url",
    [
        None,
        7,
        "",
        "hunter2",
        "/hunter2",
        "ftp://hunter2/",
        "file:///hunter2",
        "gopher://hunter2",
        "javascript:hunter2",
        "//hunter2/",
        "http:hunter2",
        "http://",
        "http:///hunter2",
        "http://:80/hunter2",
        "http://?hunter2",
        "http://hunter2:hunter2@example.com/",
        "http://hunter2@example.com/",
        "http://@hunter2/",
        "http://example.com:0/hunter2",
        "http://example.com:65536/hunter2",
        "http://example.com:hunter2/",
        "http://[::1/hunter2",
        "http://[hunter2]/",
        "http://example.com/hunter2 2",
        "http://example.com/\r\nhunter2: 2",
        "http://example.com\\@hunter2/",
        "http://example.com/\x7fhunter2",
        " http://hunter2/",
        "http://" + "h" * 254 + "/",
        "http://example.com/" + "x" * 8000,
    ],
)
def test_url_that_is_none_is_refused(url: Any) -> None:
    assert refused(url=url) == ["url"]


@pytest.mark.parametrize(
    ("payload", "fields"),
    [
        ({"method": "BREW"}, ["method"]),
        ({"method": "get"}, ["method"]),
        ({"method": "GET\r\n"}, ["method"]),
        ({"headers": []}, ["headers"]),
        ({"headers": {"X": 1}}, ["headers/X"]),
        ({"headers": {"X": None}}, ["headers/X"]),
        ({"headers": {"X": "a\r\nhunter2: 1"}}, ["headers/X"]),
        ({"headers": {"X": "a\nhunter2"}}, ["headers/X"]),
        ({"headers": {"X": "x" * 8001}}, ["headers/X"]),
        ({"headers": {"X": "\0hunter2"}}, ["headers/X"]),
        ({"headers": {"X": "hunter2", "x": "hunter2"}}, ["headers"]),
        ({"headers": {f"X-{number}": "1" for number in range(101)}}, ["headers"]),
        ({"expect_status": 200}, ["expect_status"]),
        ({"expect_status": []}, ["expect_status"]),
        ({"expect_status": [200, 99]}, ["expect_status/1"]),
        ({"expect_status": [600]}, ["expect_status/0"]),
        ({"expect_status": ["200"]}, ["expect_status/0"]),
        ({"expect_status": [True]}, ["expect_status/0"]),
        ({"expect_status": [200.5]}, ["expect_status/0"]),
        ({"body": {"a": "\0"}}, ["body/a"]),
        ({"body": "\ud800"}, ["body"]),
        ({"timeout": 1}, ["timeout"]),
        ({"url": "hunter2", "method": "hunter2"}, ["url", "method"]),
    ],
)
def test_bad_field_of_a_call_is_named(payload: dict[str, Any], fields: list[str]) -> None:
    assert refused(**payload) == fields


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "CONNECTION",
        "Upgrade",
        "Expect",
        "Idempotency-Key",
        "traceparent",
        "X-Forgeflow-Run-Id",
        "x-forgeflow-hunter2",
        "",
        "X Y",
        "X:",
        "X\r\nY",
        "Ü",
    ],
)
def test_header_that_is_ours_or_none_is_refused(name: str) -> None:
    assert refused(headers={name: SECRET}) == [pointer(["headers", name]).removeprefix("#/")]


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"url": "HTTP://EXAMPLE.com:8080/a?b=c#d", "method": "DELETE"},
        {"url": "http://[2001:db8::1]:80/"},
        {"url": "http://bücher.example/"},
        {"headers": {"Authorization": "Bearer x", "Accept": "a/b", "User-Agent": "me", "X": "Grüße\tdu"}},
        {"body": {"a": [1, 0.5, None, True, "x"]}, "expect_status": [100, 404, 599]},
        {"body": None},
        {"body": 0},
        {"body": ""},
    ],
)
def test_good_call_is_accepted_as_it_is_given(payload: dict[str, Any]) -> None:
    given = {"url": "https://example.com/", **payload}
    kept = read_job_request({"name": "job", "executor": "http", "payload": given}).definition().payload
    assert {name: kept[name] for name in given} == given
