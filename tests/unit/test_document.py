"""The strict reader of JSON from outside."""

import contextlib
import json
import string
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgeflow.domain.document import MAX_DEPTH, Refused, find_problems, pointer, read_object, text_problem
from forgeflow.errors import InvalidInput, MalformedBody


def found(body: bytes) -> dict[str, str]:
    """Pointer → code of everything that is wrong."""
    return {problem.pointer: problem.code for problem in find_problems(read_object(body))}


def nested(depth: int) -> bytes:
    """An object whose innermost value lies so many levels down."""
    return b'{"a":' * depth + b"1" + b"}" * depth


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
)
KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=20)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(KEYS, VALUES))
def test_what_can_be_kept_is_read_as_it_was_written(document: dict[str, Any]) -> None:
    read = read_object(json.dumps(document).encode())
    assert read == document
    assert find_problems(read) == []


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_an_object_or_one_of_our_errors(body: bytes) -> None:
    with contextlib.suppress(InvalidInput):
        find_problems(read_object(body))


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='{}[]",:\\u0d8 e9-.NaInfity', max_size=60))
def test_anything_like_json_gives_an_object_or_one_of_our_errors(text: str) -> None:
    with contextlib.suppress(InvalidInput):
        find_problems(read_object(text.encode()))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": NaN}', {"#/a": "bad-number"}),
        (b'{"a": [1, -Infinity]}', {"#/a/1": "bad-number"}),
        (b'{"a": 1e400, "b": -1e400}', {"#/a": "bad-number", "#/b": "bad-number"}),
        (b'{"a": 9223372036854775808}', {"#/a": "bad-number"}),
        (b'{"a": 1%s}' % (b"0" * 10_000), {"#/a": "bad-number"}),
        (b'{"a": 0.%s}' % (b"1" * 63), {"#/a": "bad-number"}),
        (rb'{"a": "\u0000"}', {"#/a": "bad-text"}),
        (rb'{"a": "\ud83d"}', {"#/a": "bad-text"}),
        (rb'{"a": {"b": ["", "\udc00"]}}', {"#/a/b/1": "bad-text"}),
        (rb'{"\u0000": 1}', {"#/%5Cu0000": "bad-text"}),
        (rb'{"\ud800": 1}', {"#/%5Cud800": "bad-text"}),
        (b'{"a": 1, "a": 1}', {"#/a": "duplicate-key"}),
        (b'{"a": {"b": 1, "b": 2, "b": 3}}', {"#/a/b": "duplicate-key"}),
        (rb'{"a": 1, "\u0061": 2}', {"#/a": "duplicate-key"}),
    ],
)
def test_what_cannot_be_kept_is_named(body: bytes, expected: dict[str, str]) -> None:
    assert found(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 9223372036854775807, "b": -9223372036854775807}',
        b'{"a": 1e308, "b": 5e-324, "c": -0.0, "d": 1E+2}',
        rb'{"a": "\ud83d\ude00", "\ud83d\ude00": ""}',
        b'{"a": "\xf0\x9f\x98\x80"}',
        b'{"a": {"x": 1}, "b": {"x": 1}}',
        b'{"": 1, " ": 2}',
        b" \r\n\t{} ",
    ],
)
def test_what_can_be_kept_has_no_problem(body: bytes) -> None:
    assert found(body) == {}
    assert read_object(body) == json.loads(body)


def test_both_of_two_equal_keys_are_dropped() -> None:
    assert isinstance(read_object(b'{"a": 1, "a": 2}')["a"], Refused)


def test_depth_is_counted_from_the_object() -> None:
    assert found(nested(MAX_DEPTH)) == {}
    assert found(nested(MAX_DEPTH + 1)) == {"#" + "/a" * (MAX_DEPTH + 1): "too-deep"}
    assert found(b'{"a": %s}' % (b"[" * 400 + b"]" * 400)) == {"#/a" + "/0" * MAX_DEPTH: "too-deep"}


@pytest.mark.parametrize("body", [nested(100_000), b'{"a":' * 100_000, b"[" * 1_000_000])
def test_depth_that_the_parser_gives_up_on_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        read_object(body)


@pytest.mark.parametrize("body", [b"", b" ", b"{", b"x", b"\xff", b'{"a": "\x00"}', b'{"a": "\xed\xa0\x80"}', b"{} x"])
def test_what_is_no_json_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        read_object(body)


def test_byte_order_mark_is_told() -> None:
    with pytest.raises(MalformedBody, match="byte order mark"):
        read_object(b"\xef\xbb\xbf{}")


@pytest.mark.parametrize("body", [b"[]", b"1", b'"x"', b"null", b"NaN"])
def test_other_value_than_an_object_is_named_as_a_whole(body: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_object(body)
    assert [problem.pointer for problem in caught.value.problems] == ["#"]
    assert not isinstance(caught.value, MalformedBody)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ((), "#"),
        (("a", 0, "b"), "#/a/0/b"),
        (("",), "#/"),
        (("a/b", "~"), "#/a~1b/~0"),
        (("~1",), "#/~01"),
        (("c%d", "e^f", "g|h", " "), "#/c%25d/e%5Ef/g%7Ch/%20"),  # RFC 6901, 6
        (("é", "\ud800", "\n"), "#/%C3%A9/%5Cud800/%0A"),
    ],
)
def test_pointer_is_a_uri_fragment(path: tuple[str | int, ...], expected: str) -> None:
    assert pointer(path) == expected


def test_pointer_of_a_very_long_key_is_cut() -> None:
    assert pointer(["k" * 1_000_000]) == f"#/{'k' * 100}%E2%80%A6"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text() | st.integers(0, 99)))
def test_pointer_is_always_printable_ascii(path: list[str | int]) -> None:
    assert set(pointer(path)) <= set(string.printable) - set(string.whitespace)


@pytest.mark.parametrize(
    ("text", "is_bad"), [("", False), ("a\x1b\n", False), ("\0", True), ("a\udfffb", True), ("\ue000", False)]
)
def test_text_that_cannot_be_stored_has_a_reason(text: str, is_bad: bool) -> None:
    assert (text_problem(text) is not None) is is_bad


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": "%s"}' % (b"x" * 1_000_000),
        b'{"a": %s}' % (b"9" * 1_000_000),
        b'{"a": 1e%s}' % (b"9" * 1_000_000),
        b'{"a": [%s1]}' % (b"1," * 500_000),
        b"{%s}" % b",".join(b'"%d":1' % number for number in range(90_000)),
    ],
)
def test_megabyte_of_anything_is_read_soon(body: bytes) -> None:
    """A square of its length would cost minutes; the processor's time is counted, not that of a busy machine."""
    began = time.process_time()
    find_problems(read_object(body))
    assert time.process_time() - began < 2.0
