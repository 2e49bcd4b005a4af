"""Query parameters: only known ones, each checked, every bad one named."""

import re
from uuid import UUID

from flask import request

from forgeflow.domain.preview import DEFAULT_COUNT, MAX_COUNT
from forgeflow.domain.run import RunStatus
from forgeflow.errors import FieldProblem, InvalidInput
from forgeflow.service.requests import ID

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
MAX_OFFSET = 2**53 - 1  # what every reader of JSON can count to
MAX_ATTEMPT = 2**31 - 1


class Query:
    """The parameters of the request at hand; ask for each known one, then `check`."""

    def __init__(self) -> None:
        self._problems: list[FieldProblem] = []
        self._known: set[str] = set()

    def _text(self, name: str) -> str | None:
        self._known.add(name)
        values = request.args.getlist(name)
        if len(values) > 1:
            self._refuse(name, "is given more than once")
            return None
        if values == [""]:
            # A script whose variable is empty must not get everything instead.
            self._refuse(name, "is empty; expected a value, or leave it out")
            return None
        return values[0] if values else None

    def _refuse(self, name: str, detail: str) -> None:
        self._problems.append(FieldProblem(name, detail, "bad-parameter"))

    def _number(self, name: str, *, default: int, most: int, least: int = 1) -> int:
        text = self._text(name)
        if text is None:
            return default
        # int() takes 1_000, signs and the digits of other scripts too.
        if not re.fullmatch(r"[0-9]{1,16}", text, re.ASCII) or not least <= int(text) <= most:
            self._refuse(name, f"expected a whole number from {least} to {most}")
            return default
        return int(text)

    def limit(self) -> int:
        return self._number("limit", default=DEFAULT_LIMIT, most=MAX_LIMIT)

    def count(self) -> int:
        return self._number("count", default=DEFAULT_COUNT, most=MAX_COUNT)

    def offset(self) -> int:
        return self._number("offset", default=0, least=0, most=MAX_OFFSET)

    def attempt(self) -> int | None:
        """0 is that of a run which has not begun."""
        number = self._number("attempt", default=-1, least=0, most=MAX_ATTEMPT)
        return None if number < 0 else number

    def wait(self, most: int) -> int:
        return self._number("wait", default=0, least=0, most=most)

    def moment(self, name: str) -> str:
        """A time that must be given, to be read by the service; a plus that came unescaped, as a blank, is one."""
        text = self._text(name)
        if text is None and not self._problems:
            self._refuse(name, "is required: a time such as 2026-07-01T09:00:00Z")
        return re.sub(r" (\d\d:\d\d)$", r"+\1", text or "") if "T" in (text or "") else text or ""

    def uuid(self, name: str) -> UUID | None:
        text = self._text(name)
        if text is None:
            return None
        if not ID.fullmatch(text):
            self._refuse(name, "expected an id as this API gives them")
            return None
        return UUID(text)

    def run_status(self) -> str | None:
        text = self._text("status")
        if text is not None and text not in list(RunStatus):
            self._refuse("status", f"expected one of {', '.join(RunStatus)}")
            return None
        return text

    def check(self) -> None:
        """Raises InvalidInput, which names every bad and every unknown parameter."""
        for name in sorted(set(request.args) - self._known):
            self._refuse(_shown(name), f"is not a parameter here; known are {', '.join(sorted(self._known)) or 'none'}")
        if self._problems:
            raise InvalidInput("the query cannot be accepted", self._problems)


def _shown(name: str) -> str:
    """A name from outside, short and in ASCII; never like a pointer, for these are the names of parameters."""
    return name[:60].encode("ascii", "backslashreplace").decode().replace("#", "\\x23")


def no_parameters() -> None:
    """Raises InvalidInput when the request has any."""
    Query().check()
