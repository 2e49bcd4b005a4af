"""Every error that ForgeFlow raises on purpose.

An error is one sentence for a person; what a program may need stands beside it as typed attributes. `web` maps
classes to HTTP statuses and `cli` to exit codes, each in one table. Users raise three of them themselves: `Retry`,
`Cancel` and, for whatever else they have to say, `ForgeError`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from forgeflow.duration import read_duration


class ForgeError(Exception):
    """The root: catch it to catch whatever ForgeFlow itself reports."""


class ConfigError(ForgeError):
    """The configuration cannot be used; the process must not start (exit 78).

    `problems` has a sentence for each key that is wrong, none of them with its value.
    """

    def __init__(self, detail: str, problems: Sequence[str] = ()) -> None:
        super().__init__(detail)
        self.problems = tuple(problems) or (detail,)


class AddressTaken(ForgeError):
    """The address to listen on is in use; another one, or later, would do (exit 75)."""


class StateTaken(ForgeError):
    """The state folder is in use by another `forgeflow up`; another one, or later, would do (exit 75)."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One thing wrong with one field of a request.

    `pointer` is an RFC 9457 URI-fragment JSON pointer (`#/payload/command`, `#` for the whole body) or the bare
    name of a query parameter. `detail` never repeats the refused value, which may be a secret.
    """

    pointer: str
    detail: str
    code: str


class InvalidInput(ForgeError, ValueError):
    """Something that a user gave is wrong; nothing was stored. `problems` names every bad field."""

    def __init__(self, detail: str, problems: Sequence[FieldProblem] = ()) -> None:
        super().__init__(detail)
        self.problems = tuple(problems)


class MalformedBody(InvalidInput):
    """The body is not the JSON that we accept, so that no field of it can be named."""


class BodyTooLarge(InvalidInput):
    """The body is longer than `server.max_body`."""


class CronError(InvalidInput):
    """A cron expression, or its time zone, that is refused."""


class NotFound(ForgeError):
    """No such job or run."""


class Conflict(ForgeError):
    """The request is well formed but the present state does not allow it."""


class StatusConflict(Conflict):
    """The object's status does not answer this event."""


class RunFinished(Conflict):
    """The run has come to its end, which nothing changes."""


class RunNotFinished(Conflict):
    """The run has not come to its end."""


class SelectionChanged(Conflict):
    """There is more to be changed at once than the caller expects."""


class VersionMismatch(Conflict):
    """The object was changed since the version that the caller knows."""


class IdempotencyConflict(Conflict):
    """The idempotency key was used before with a different body."""


class StoreError(ForgeError):
    """The database did not do what it was asked."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, or did not answer within the deadline; it may be tried again."""


class StoreBusy(StoreUnavailable):
    """Two transactions were in each other's way; this one was undone, and may be tried again over its connection."""


class SchemaMismatch(StoreError):
    """The schema in the database does not fit this version of ForgeFlow."""


class ExecutionError(ForgeError):
    """A run could not be executed."""


class MissingEnvError(ForgeError, KeyError):
    """A variable that a function needs, `key`, is not in its environment."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the environment variable {key} is not set, and the function needs it")
        self.key = key

    __str__ = ForgeError.__str__  # KeyError's own puts the sentence into quotes


class PermissionDenied(ForgeError):
    """Whoever it is for lacks the role `role`."""

    def __init__(self, role: str) -> None:
        super().__init__(f"this needs the role {role}")
        self.role = role


class Retry(ForgeError):
    """Raised by a function: this try has come to nothing, make another one.

    `after`, a timedelta, a text such as `"5m"` or seconds, takes the place of the job's own backoff; None leaves it
    that; `after_seconds` is what was read.  Raises InvalidInput for an `after` that is none of them.
    """

    def __init__(self, reason: str = "", *, after: timedelta | str | float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        try:
            self.after_seconds = None if after is None else read_duration(after)
        except ValueError as error:
            problem = FieldProblem("#/after", str(error), "bad-duration")
            raise InvalidInput(f"Retry: after: {error}", [problem]) from error


class Cancel(ForgeError):
    """Raised by a function: give this run up for good, no further try will do better."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
