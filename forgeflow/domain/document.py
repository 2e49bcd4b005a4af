"""The JSON that comes in from outside: what we accept is what PostgreSQL can keep and give back unchanged.

jsonb refuses NUL, unpaired surrogates, NaN and huge numbers, keeps the last of duplicate keys and turns long numbers
into others; all of that is refused at the door, by name, instead of failing later.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from forgeflow.errors import FieldProblem, InvalidInput, MalformedBody

MAX_DEPTH = 32
_MAX_INTEGER = 2**63 - 1
_MAX_NUMBER_LENGTH = 64
_MAX_TOKEN_LENGTH = 100
_SURROGATE = re.compile("[\ud800-\udfff]")
_FRAGMENT_SAFE = "!$&'()*+,;=:@?"  # beside letters, digits and -._~; RFC 3986, 3.5


@dataclass(frozen=True, slots=True)
class Refused:
    """Stands in a document where something was that cannot be kept, until `find_problems` names the place."""

    reason: str
    code: str


def _refuse_constant(name: str) -> Refused:
    return Refused(f"is {name}, which is not JSON; expected a finite number", "bad-number")


def _read_integer(text: str) -> int | Refused:
    # int() of a very long text is quadratic, and refused by Python with a message of its own.
    if len(text) > 20 or abs(int(text)) > _MAX_INTEGER:
        return Refused("is an integer beyond 64 bits; send it as a string", "bad-number")
    return int(text)


def _read_float(text: str) -> float | Refused:
    value = float(text)
    if len(text) > _MAX_NUMBER_LENGTH or value in (float("inf"), float("-inf")):
        return Refused("is a number beyond double precision; send it as a string", "bad-number")
    return value


def _read_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; under a key that is bad or given twice stands Refused, whatever was there."""
    members: dict[str, Any] = {}
    for key, value in pairs:
        reason = text_problem(key)
        if reason:
            members[_printable(key)] = Refused(f"the key {reason}", "bad-text")
        elif key in members:
            members[key] = Refused("is given twice in this object", "duplicate-key")
        else:
            members[key] = value
    return members


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`; hand it to `find_problems` before its values are used, for it may hold Refused.

    Raises MalformedBody, or InvalidInput when it is another kind of value.
    """
    try:
        text = body.decode("utf-8")
        if not text.strip():
            raise MalformedBody("the body is empty; expected a JSON object")
        if text.startswith("\ufeff"):
            raise MalformedBody("the body begins with a byte order mark; expected JSON in UTF-8 without one")
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_int=_read_integer,
            parse_float=_read_float,
            object_pairs_hook=_read_members,
        )
    except UnicodeDecodeError as error:
        raise MalformedBody("the body is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise MalformedBody(
            f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except RecursionError as error:
        raise MalformedBody(f"the body is nested deeper than {MAX_DEPTH} levels") from error
    if not isinstance(value, dict):
        raise InvalidInput(
            "the body is not an object", [FieldProblem("#", "expected a JSON object, {…}", "object-type")]
        )
    return value


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\u0000")


def pointer(path: Iterable[str | int]) -> str:
    """A JSON pointer as URI fragment (RFC 6901, 6), `#/payload/command`; of a very long key only the beginning."""
    return "".join(["#", *(f"/{_token(str(part))}" for part in path)])


def _token(text: str) -> str:
    shown = text if len(text) <= _MAX_TOKEN_LENGTH else f"{text[:_MAX_TOKEN_LENGTH]}…"
    return quote(shown.replace("~", "~0").replace("/", "~1"), safe=_FRAGMENT_SAFE, errors="backslashreplace")


def text_problem(text: str) -> str | None:
    """Why PostgreSQL could not store this text, or None."""
    if "\0" in text:
        return "holds a NUL character, which cannot be stored"
    if _SURROGATE.search(text):
        return "holds an unpaired surrogate, which is not a character"
    return None


def find_problems(value: Any, path: tuple[str | int, ...] = ()) -> list[FieldProblem]:
    """Every place in a document of `read_object` that could not be kept, by its JSON pointer."""
    if len(path) > MAX_DEPTH:
        return [FieldProblem(pointer(path), f"is nested deeper than {MAX_DEPTH} levels", "too-deep")]
    if isinstance(value, Refused):
        return [FieldProblem(pointer(path), value.reason, value.code)]
    if isinstance(value, str):
        reason = text_problem(value)
        return [FieldProblem(pointer(path), reason, "bad-text")] if reason else []
    members: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    return [problem for key, member in members for problem in find_problems(member, (*path, key))]
