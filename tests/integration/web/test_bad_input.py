"""Bad input: one clear answer that names every bad field, nothing stored, nothing repeated, never a 500."""

import json
import time
from typing import Any

import psycopg
import pytest

from tests.support.web import HELLO, Answer, WebServer, table_digest

JSON = {"Content-Type": "application/json"}
SECRET = "canary-7f3a"
WRONG: dict[str, list[Any]] = {
    "string": [1, 1.5, True, None, [SECRET], {SECRET: SECRET}],
    "integer": [SECRET, "5", 5.0, 1.5, True, None, [5], {"a": 5}],
    "number": [SECRET, "5", True, None, [5], {"a": 5}],
    "boolean": [SECRET, "true", 0, 1, 1.0, None, [True], {"a": True}],
    "optional string": [1, 1.5, False, [SECRET], {"a": SECRET}],
    "list": [SECRET, 1, True, None, {"a": SECRET}],
    "object": [SECRET, 1, 1.5, True, None, [SECRET], []],
}
FIELDS = {
    "name": "string",
    "executor": "string",
    "payload": "object",
    "cron_expr": "optional string",
    "run_at": "optional string",
    "timezone": "string",
    "priority": "integer",
    "max_attempts": "integer",
    "timeout_seconds": "number",
    "catch_up": "string",
    "catch_up_limit": "integer",
    "idempotency_key": "optional string",
    "tags": "list",
    "description": "string",
    "paused": "boolean",
}
INTERNAL = [
    *("id", "status", "version", "next_run_at", "source", "created_at", "updated_at", "request_digest"),
    *("last_run", "latest_run_id", "boot_id", "child", "worker_id", "attempt", "failures", "run_as", "uid", "env"),
    *("paused_until", "trigger", "__class__", "__proto__", "constructor", "self", "model_config"),
]


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in HELLO.items() if key != name}


def refused(
    web: WebServer,
    rows: psycopg.Connection[Any],
    body: bytes | dict[str, Any],
    *,
    statuses: tuple[int, ...] = (422,),
    repeats: bool = False,
) -> Answer:
    """The answer to a submission that must be refused, as every one must be."""
    before = table_digest(rows)
    answer = web.request("POST", "/api/jobs", body if isinstance(body, bytes) else json.dumps(body), JSON)
    assert answer.status in statuses, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json().keys() >= {"type", "title", "status", "detail", "request_id"}
    for one in answer.json().get("errors", []):
        assert one.keys() == {"pointer", "detail", "code"}
        assert one["pointer"].isascii()
    assert repeats or SECRET not in answer.text
    assert table_digest(rows) == before
    return answer


def named(answer: Answer) -> list[str]:
    return [one["pointer"] for one in answer.json()["errors"]]


@pytest.mark.parametrize("field", FIELDS)
def test_wrong_type_is_named(web: WebServer, rows: psycopg.Connection[Any], field: str) -> None:
    for value in WRONG[FIELDS[field]]:
        assert named(refused(web, rows, {**HELLO, field: value})) == [f"#/{field}"], value


@pytest.mark.parametrize("field", ["name", "executor", "payload"])
def test_missing_field_is_named(web: WebServer, rows: psycopg.Connection[Any], field: str) -> None:
    answer = refused(web, rows, without(field))
    assert answer.json()["errors"] == [{"pointer": f"#/{field}", "detail": "is required", "code": "missing"}]


@pytest.mark.parametrize("value", [1, True, "", [], {}])
def test_bad_command_is_named(web: WebServer, rows: psycopg.Connection[Any], value: Any) -> None:
    assert named(refused(web, rows, {**HELLO, "payload": {"command": value}})) == ["#/payload/command"]
    for payload in ({}, {"command": None}, {"command": "true", "argv": ["true"]}):
        assert named(refused(web, rows, {**HELLO, "payload": payload})) == ["#/payload"]


@pytest.mark.parametrize(
    ("payload", "pointers"),
    [
        ({}, ["#/payload/function"]),
        ({"function": ""}, ["#/payload/function"]),
        ({"function": "f" * 201}, ["#/payload/function"]),
        ({"function": 1, "args": [SECRET]}, ["#/payload/function", "#/payload/args"]),
        ({"function": "shop.send", "args": None}, ["#/payload/args"]),
        ({"function": "shop.send", "args": {"a": {"b": "\0"}}}, ["#/payload/args/a/b"]),
        ({"command": "true"}, ["#/payload/function", "#/payload/command"]),
        ({"function": "shop.send", "kwargs": {}}, ["#/payload/kwargs"]),
    ],
)
def test_bad_call_is_named(
    web: WebServer, rows: psycopg.Connection[Any], payload: dict[str, Any], pointers: list[str]
) -> None:
    assert sorted(named(refused(web, rows, {**HELLO, "executor": "python", "payload": payload}))) == sorted(pointers)


@pytest.mark.parametrize("tag", [None, 1, True, "", " ", "t" * 51, ["a"], {}])
def test_bad_tag_is_named_by_its_place(web: WebServer, rows: psycopg.Connection[Any], tag: Any) -> None:
    assert named(refused(web, rows, {**HELLO, "tags": ["good", tag, "good"]})) == ["#/tags/1"]


@pytest.mark.parametrize("field", INTERNAL)
def test_internal_column_is_an_unknown_field(web: WebServer, rows: psycopg.Connection[Any], field: str) -> None:
    answer = refused(web, rows, {**HELLO, field: SECRET})
    (error,) = answer.json()["errors"]
    assert (error["pointer"], error["code"]) == (f"#/{field}", "extra-forbidden")
    assert error["detail"].startswith("is not a field of this object")


@pytest.mark.parametrize(
    ("field", "meant"), [("cron", "cron_expr"), ("tz", "timezone"), ("overlaps", "overlap"), ("start", "start_at")]
)
def test_field_of_another_name_is_guessed(
    web: WebServer, rows: psycopg.Connection[Any], field: str, meant: str
) -> None:
    (error,) = refused(web, rows, {**HELLO, field: SECRET}).json()["errors"]
    assert error["detail"] == f"is not a field of this object; did you mean {meant}?"


def test_unknown_fields_are_all_named_at_any_depth(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    odd = {"a/b": 1, "a~b": 2, "caf\xe9": 3, "": 4, "a b%": 5, '"<script>': 6, "\N{GRINNING FACE}": 7, "a\n": 8}
    answer = refused(web, rows, {**HELLO, "nope": 1, **odd, "payload": {"command": "true", "envs": {}, **odd}})
    tokens = ["a~1b", "a~0b", "caf%C3%A9", "", "a%20b%25", "%22%3Cscript%3E", "%F0%9F%98%80", "a%0A"]
    expected = {f"#/{token}" for token in ["nope", *tokens]} | {f"#/payload/{token}" for token in ["envs", *tokens]}
    assert set(named(answer)) == expected
    assert len(named(answer)) == len(expected)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("name", value) for value in ("", " ", "\t\n\u2003", "n" * 201)],
        ("description", "d" * 2001),
        ("executor", "ftp"),
        ("executor", "Shell"),
        ("executor", SECRET),
        *[("priority", value) for value in (0, 10, -1, 2**63 - 1)],
        *[("max_attempts", value) for value in (0, -1, 1001)],
        *[("catch_up_limit", value) for value in (0, 1001)],
        *[("timeout_seconds", value) for value in (0, 0.0, -1, -0.0, 31_622_401, 1e300)],
        ("catch_up", SECRET),
        ("tags", ["t"] * 21),
        ("idempotency_key", ""),
        ("idempotency_key", "k" * 201),
        ("payload", {"command": "c" * 131_072}),
        ("payload", {"command": "\N{GRINNING FACE}" * 40_000}),
    ],
)
def test_value_out_of_range_is_named(web: WebServer, rows: psycopg.Connection[Any], field: str, value: Any) -> None:
    pointer = "#/payload/command" if field == "payload" else f"#/{field}"
    assert named(refused(web, rows, {**HELLO, field: value})) == [pointer]


@pytest.mark.parametrize(
    "value",
    [
        *("", SECRET, "now", "1735689600", "2026-07-01", "2026-07-01T09:00:00", "2026-07-01T09:00:00+0530"),
        *("10000-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "-001-01-01T00:00:00Z", "+2026-07-01T09:00:00Z"),
        *("9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00", "2026-06-30T23:59:60Z", "2026-02-30T00:00:00Z"),
        *("2026-07-01T24:00:01Z", "2026-07-01T09:60:00Z", "2026-13-01T00:00:00Z", "2026-07-01T09:00:00+24:00"),
        *("2026-07-01T09:00:00+05:60", "2026-07-01T09:00:00Z ", " 2026-07-01T09:00:00Z", "2026-07-01T09:00:00ZZ"),
        *("\u0662026-07-01T09:00:00Z", "infinity", "-infinity", "today", "epoch", "2026-07-01T09:00:00Z\n"),
        *("2026-07-01T09:00:00 UTC", "2026-W27-3T09:00:00Z", "20260701T090000Z", "2026-07-01T09:00:00.Z"),
        "2" * 10_000,
    ],
)
def test_bad_time_is_named(web: WebServer, rows: psycopg.Connection[Any], value: str) -> None:
    answer = refused(web, rows, {**HELLO, "run_at": value})
    assert named(answer) == ["#/run_at"]
    assert "expected" in answer.json()["errors"][0]["detail"]


@pytest.mark.parametrize(
    "expr",
    [
        *("", " ", "* * * *", "* * * * * * *", "61 * * * *", "0 0 31 2 *", "0 0 30 2 *", "@reboot", "R * * * *"),
        *("*/0 * * * *", "5-1 * * *", "a b c d e", "\uff0a * * * *", "* * * * *\n", "*" * 257, "0 0 31 4,6 *"),
        *("* * * * *; DROP TABLE jobs", "0 0 * * 8", "\N{GRINNING FACE}", "0" * 5000, "*/" * 100 + " * * * *"),
    ],
)
def test_bad_schedule_is_named(web: WebServer, rows: psycopg.Connection[Any], expr: str) -> None:
    assert named(refused(web, rows, {**HELLO, "cron_expr": expr})) == ["#/cron_expr"]


@pytest.mark.parametrize(
    "zone",
    [
        *("", "Mars/Olympus", "utc+1", "localtime", "../../etc/passwd", "/etc/localtime", "Europe/Berlin\n", "Factory"),
        *("EUROPE/BERLIN", "right/UTC", "posix/UTC", "Europe", "e" * 100_000, "\N{GRINNING FACE}", "Europe/Berlin/"),
    ],
)
def test_bad_zone_is_named(web: WebServer, rows: psycopg.Connection[Any], zone: str) -> None:
    assert named(refused(web, rows, {**HELLO, "cron_expr": "* * * * *", "timezone": zone})) == ["#/timezone"]
    assert named(refused(web, rows, {**HELLO, "timezone": zone})) == ["#/timezone"]


def test_bad_zone_and_bad_schedule_are_both_named(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    answer = refused(web, rows, {**HELLO, "cron_expr": "61 * * * *", "timezone": "Mars/Olympus"})
    assert set(named(answer)) == {"#/cron_expr", "#/timezone"}


def test_two_schedules_name_both_fields(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    both = {"cron_expr": "* * * * *", "run_at": "2099-01-01T00:00:00Z"}
    assert named(refused(web, rows, {**HELLO, **both})) == ["#/cron_expr", "#/run_at"]
    worse = refused(web, rows, {**HELLO, **both, "priority": 0, "timezone": "Mars"})
    assert set(named(worse)) == {"#/cron_expr", "#/run_at", "#/priority", "#/timezone"}


def test_all_faults_of_one_body_are_named(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    body = b"""{"name": "\\u0000", "executor": 5, "payload": {"command": "\\ud800", "nope": 1, "\\udfff": 2},
                "cron_expr": "61 * * * *", "run_at": "2026-02-30T00:00:00Z", "timezone": "Mars", "priority": 1e400,
                "max_attempts": 99999999999999999999, "timeout_seconds": NaN, "catch_up": [], "catch_up": [],
                "tags": ["ok", "\\u0000", 7], "paused": "no", "\\u0000": 1}"""
    answer = refused(web, rows, body)
    expected = {
        *("#/name", "#/executor", "#/payload/command", "#/payload/%5Cudfff", "#/cron_expr"),
        *("#/run_at", "#/timezone", "#/priority", "#/max_attempts", "#/timeout_seconds", "#/catch_up"),
        *("#/tags/1", "#/tags/2", "#/paused", "#/%5Cu0000"),
    }
    assert set(named(answer)) == expected
    assert answer.json()["detail"] == f"{len(named(answer))} fields of the job cannot be accepted"


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        (rb'"description": "a\u0000b"', "#/description"),
        (rb'"payload": {"command": "a\u0000b"}', "#/payload/command"),
        (rb'"description": "\ud800"', "#/description"),
        (rb'"description": "\udc00\ud800"', "#/description"),
        (rb'"tags": ["\ud800"]', "#/tags/0"),
        (rb'"idempotency_key": "\u0000"', "#/idempotency_key"),
        (rb'"timezone": "UTC\u0000"', "#/timezone"),
        (rb'"cron_expr": "* * * * *\ud800"', "#/cron_expr"),
        (rb'"run_at": "2026-07-01T09:00:00Z\u0000"', "#/run_at"),
        (b'"timeout_seconds": NaN', "#/timeout_seconds"),
        (b'"timeout_seconds": Infinity', "#/timeout_seconds"),
        (b'"timeout_seconds": -Infinity', "#/timeout_seconds"),
        (b'"timeout_seconds": 1e400', "#/timeout_seconds"),
        (b'"timeout_seconds": -1e400', "#/timeout_seconds"),
        (b'"timeout_seconds": 1.%s' % (b"0" * 100_000), "#/timeout_seconds"),
        (b'"priority": 9223372036854775808', "#/priority"),
        (b'"priority": %s' % (b"9" * 100_000), "#/priority"),
        (b'"priority": -%s' % (b"9" * 20), "#/priority"),
        (b'"timeout_seconds": %s' % (b"9" * 400), "#/timeout_seconds"),
        (b'"timeout_seconds": 9223372036854775807', "#/timeout_seconds"),
        (b'"description": "a", "description": "b"', "#/description"),
        (b'"description": {"a": {"b": 1, "b": 2}}', "#/description/a/b"),
        (b'"description": %s1%s' % (b'{"a":' * 32, b"}" * 32), "#/description" + "/a" * 32),
        (b'"description": %s1%s' % (b"[" * 500, b"]" * 500), "#/description" + "/0" * 32),
    ],
)
def test_what_cannot_be_kept_is_named(web: WebServer, rows: psycopg.Connection[Any], text: bytes, pointer: str) -> None:
    body = json.dumps(HELLO).encode()
    if text.startswith(b'"payload"'):
        body = json.dumps(without("payload")).encode()
    answer = refused(web, rows, body[:-1] + b", " + text + b"}")
    assert pointer in named(answer)
    assert len(answer.body) < 2000


@pytest.mark.parametrize("name", [rb"\u0000", rb"\ud800", rb"a\u0000b"])
def test_key_that_cannot_be_kept_is_named_once(web: WebServer, rows: psycopg.Connection[Any], name: bytes) -> None:
    body = b'{"name": "x", "executor": "shell", "payload": {"command": "true", "%s": 1}}' % name
    shown = name.decode().replace("\\", "%5C")
    assert named(refused(web, rows, body)) == [f"#/payload/{shown}"]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b" \n", b"{", b"}", b'{"name"}', b"{'name': 'x'}", b"{name: 1}", b'{"a": 1,}', b"{} {}", b"nul"),
        *(b"name=hello&executor=shell", b'{"name": "a\nb"}', b'{"name": "\\x"}', b'{"a": 01}', b'{"a": +1}'),
        *(b"\xff\xfe{\x00}\x00", b'{"name": "\xff"}', b'{"name": "\xed\xa0\x80"}', b'{"name": "\xc0\x80"}'),
        b"\xef\xbb\xbf" + json.dumps(HELLO).encode(),
        json.dumps(HELLO).encode("utf-16"),
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"[" * 500_000,
    ],
)
def test_body_that_is_no_json_is_a_400(web: WebServer, rows: psycopg.Connection[Any], body: bytes) -> None:
    answer = refused(web, rows, body, statuses=(400,))
    assert answer.json()["type"] == "/problems/malformed-json"
    assert len(answer.json()["detail"]) < 150


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"null", b"true", b"5", b"NaN", b"1e400", b'[{"name": "x"}]'])
def test_body_that_is_no_object_is_named_as_a_whole(web: WebServer, rows: psycopg.Connection[Any], body: bytes) -> None:
    assert named(refused(web, rows, body)) == ["#"]


def test_two_megabytes_are_refused(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    answer = refused(web, rows, {**HELLO, "description": "d" * 2 * 1024**2}, statuses=(413,))
    assert answer.json()["type"] == "/problems/payload-too-large"


def test_thousands_of_faults_give_a_short_answer_soon(web: WebServer, rows: psycopg.Connection[Any]) -> None:
    began = time.monotonic()
    answer = refused(web, rows, {**HELLO, **{f"nope-{number}": number for number in range(40_000)}})
    assert time.monotonic() - began < 5
    assert len(answer.json()["errors"]) == 100
    assert answer.json()["detail"] == "40000 fields of the job cannot be accepted"
    answer = refused(web, rows, {**HELLO, "k" * 900_000: 1})
    assert len(answer.body) < 2000


@pytest.mark.parametrize(
    "fields",
    [
        {"name": [SECRET]},
        {"description": SECRET * 300},
        {"payload": {"command": [SECRET]}},
        {"payload": {"command": "true", "password": SECRET}},
        {"executor": SECRET},
        {"catch_up": SECRET},
        {"tags": [{"a": SECRET}]},
        {"idempotency_key": SECRET * 50},
        {"run_at": SECRET},
    ],
)
def test_refused_value_is_repeated_neither_in_the_answer_nor_in_the_log(
    web: WebServer, rows: psycopg.Connection[Any], fields: dict[str, Any]
) -> None:
    refused(web, rows, {**HELLO, **fields})
    assert SECRET not in web.log.read_text()


@pytest.mark.parametrize(("field", "code"), [("cron_expr", "bad-schedule"), ("timezone", "unknown-timezone")])
def test_of_a_refused_schedule_only_a_short_piece_is_quoted(
    web: WebServer, rows: psycopg.Connection[Any], field: str, code: str
) -> None:
    """The one exception: which part of a schedule is wrong cannot be said without it."""
    answer = refused(web, rows, {**HELLO, field: f"{'a' * 30}{SECRET}"}, repeats=True)
    assert answer.json()["errors"][0]["code"] == code
    assert SECRET not in answer.text
