"""The JSON that comes in from outside: what we accept is what PostgreSQL can keep and give back unchanged.

jsonb refuses NUL, unpaired surrogates, NaN and huge numbers, keeps the last of duplicate keys and turns long numbers
into others; all of that is refused at the door, by name, instead of failing later.
"""

import json
from typing import Any, NoReturn

from forgeflow.errors import FieldProblem, MalformedBody

MAX_DEPTH = 32
_MAX_INTEGER = 2**63 - 1


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedBody(f"the body holds {name}, which is not JSON; expected a finite number")


def _read_integer(text: str) -> int:
    # int() of a very long text is quadratic, and refused by Python with a message of its own.
    if len(text) > 20 or abs(int(text)) > _MAX_INTEGER:
        raise MalformedBody("the body holds an integer beyond 64 bits; send it as a string")
    return int(text)


def _read_float(text: str) -> float:
    value = float(text)
    if len(text) > 64 or value in (float("inf"), float("-inf")):
        raise MalformedBody("the body holds a number beyond double precision; send it as a string")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise MalformedBody("the body holds an object with the same key twice; expected each key once")
    return members


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`.  Raises MalformedBody, or InvalidInput when it is another kind of value."""
    try:
        value = json.loads(
            body.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_int=_read_integer,
            parse_float=_read_float,
            object_pairs_hook=_unique_keys,
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
        raise MalformedBody("the body is not a JSON object; expected {…}")
    return value


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1").encode("ascii", "backslashreplace").decode()


def text_problem(text: str) -> str | None:
    """Why PostgreSQL could not store this text, or None."""
    if "\0" in text:
        return "holds a NUL character, which cannot be stored"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "holds an unpaired surrogate, which is not a character"
    return None


def find_problems(value: Any, pointer: str = "#", depth: int = 0) -> list[FieldProblem]:
    """Every place in a document that the database could not keep, by its JSON pointer."""
    if depth > MAX_DEPTH:
        return [FieldProblem(pointer, f"is nested deeper than {MAX_DEPTH} levels", "too-deep")]
    if isinstance(value, str):
        reason = text_problem(value)
        return [FieldProblem(pointer, reason, "bad-text")] if reason else []
    if isinstance(value, dict):
        found = []
        for key, member in value.items():
            where = f"{pointer}/{_escape(key)}"
            reason = text_problem(key)
            if reason:
                found.append(FieldProblem(where, f"the key {reason}", "bad-text"))
            found += find_problems(member, where, depth + 1)
        return found
    if isinstance(value, list):
        return [
            problem
            for index, item in enumerate(value)
            for problem in find_problems(item, f"{pointer}/{index}", depth + 1)
        ]
    return []
