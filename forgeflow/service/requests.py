"""What the body of a request may say; every bad field is named, none of the refused values is repeated."""

import difflib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

from pydantic import (
    BeforeValidator,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic_core import PydanticSerializationError, to_json

from forgeflow.domain.document import MAX_DEPTH, find_problems, pointer, read_object, text_problem
from forgeflow.domain.instant import read_instant
from forgeflow.domain.preview import DEFAULT_COUNT, MAX_COUNT
from forgeflow.domain.run import RunStatus
from forgeflow.domain.schedule import Schedule, check_zone
from forgeflow.domain.timetable import Once, Timetable, make_timetable
from forgeflow.errors import CronError, FieldProblem, InvalidInput
from forgeflow.service.payloads import PAYLOADS, Body, FunctionPayload, Label
from forgeflow.store.bulk import OwnPayload
from forgeflow.store.jobs import DEFINITION, JobDefinition

# pydantic's words for what users meet most, in ours.
_MESSAGES = {
    "extra_forbidden": "is not a field of this object",
    "missing": "is required",
    "string_type": "expected a string",
    "int_type": "expected an integer",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "dict_type": "expected an object",
    "model_type": "expected an object",
    "list_type": "expected a list",
    "invalid_json_value": "expected a value that JSON has",
}


def _read_time(value: Any) -> Any:
    """An RFC 3339 time with an offset, as UTC."""
    return None if value is None else read_instant(value)


Time = Annotated[datetime, BeforeValidator(_read_time)]

ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)


def _read_id(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise ValueError("expected an id as this API gives them")
    return UUID(value)


Id = Annotated[UUID, BeforeValidator(_read_id)]

_Request = TypeVar("_Request", bound=Body)


class JobRequest(Body):
    """A submission; only `read_job_request` makes one, for it checks more.  Source: README "API"."""

    name: Label = Field(min_length=1, max_length=200)
    executor: Literal["shell", "http", "python"]
    payload: Body
    cron_expr: str | None = None
    run_at: Time | None = None
    timezone: str = "UTC"
    start_at: Time | None = None
    end_at: Time | None = None
    jitter_seconds: float = Field(default=0.0, ge=0, le=86400)
    priority: int = Field(default=5, ge=1, le=9)
    max_attempts: int = Field(default=3, ge=1, le=1000)
    timeout_seconds: float = Field(default=300.0, gt=0, le=366 * 86400)
    catch_up: Literal["skip", "once", "all"] = "skip"
    catch_up_limit: int = Field(default=10, ge=1, le=1000)
    overlap: Literal["allow", "skip", "queue", "replace"] = "allow"
    on_lease_loss: Literal["kill", "continue"] = "kill"
    retry_mode: Literal["jitter", "exponential", "fixed"] = "jitter"
    retry_base_seconds: float | None = Field(default=None, gt=0, le=366 * 86400)
    retry_cap_seconds: float | None = Field(default=None, gt=0, le=366 * 86400)
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=200)
    tags: list[Annotated[Label, Field(min_length=1, max_length=50)]] = Field(default=[], max_length=20)
    description: str = Field(default="", max_length=2000)
    paused: bool = False

    def timetable(self) -> Timetable | Once | None:
        """What it is due by; None for now."""
        return make_timetable(self.cron_expr, self.run_at, self.timezone, start_at=self.start_at, end_at=self.end_at)

    def definition(self) -> JobDefinition:
        values = {name: getattr(self, name) for name in DEFINITION}
        return JobDefinition(**{**values, "payload": self.payload.model_dump(exclude_unset=True)})


class _OwnPayload(Body):
    """A payload alone, of one run."""

    payload: Body


def _with_payload(kind: type[_Request]) -> Mapping[str, type[_Request]]:
    """That request with the payload of each executor."""
    return {
        name: create_model(f"{kind.__name__}_{name}", __base__=kind, payload=(payload, ...))
        for name, payload in PAYLOADS.items()
    }


_REQUESTS = _with_payload(JobRequest)
# With an executor that is none nothing can be said about what is in the payload.
_UnknownRequest = create_model("JobRequest_unknown", __base__=JobRequest, payload=(dict[str, Any], ...))
_OWN_PAYLOADS = _with_payload(_OwnPayload)


class PauseRequest(Body):
    """How long a job is to be paused, and why; only `read_pause_request` makes one."""

    until: Time | None = None
    reason: Label | None = Field(default=None, min_length=1, max_length=500)


class TriggerRequest(Body):
    """What a run that is made by hand has of its own; only `read_trigger_request` makes one."""

    payload: dict[str, Any] | None = None


class RunFilter(Body):
    """What the runs have in common that are to be changed; the times are of what they were scheduled for."""

    job_id: Id | None = None
    status: Literal["pending", "running", "succeeded", "dead", "cancelled"] | None = None
    since: Time | None = None
    until: Time | None = None


class BulkRequest(Body):
    """What shall be done to many runs; only `read_bulk_request` makes one."""

    action: Literal["retry", "cancel"]
    ids: list[Id] | None = Field(default=None, min_length=1, max_length=10_000)
    filter: RunFilter | None = None
    expected_count: int | None = Field(default=None, ge=0)
    dry_run: bool = False


class SkipRequest(Body):
    """Which tick is meant; only `read_skip_request` makes one."""

    tick_at: Time | None = None


class PreviewRequest(Body):
    """A question what a schedule would do; only `read_preview_request` makes one."""

    cron_expr: str
    timezone: str = "UTC"
    after: Time | None = None
    count: int = Field(default=DEFAULT_COUNT, ge=1, le=MAX_COUNT)

    def schedule(self) -> Schedule:
        return Schedule.parse(self.cron_expr, self.timezone)


# What people call fields that have another name here.
_OTHER_NAMES = {
    "cron": "cron_expr",
    "schedule": "cron_expr",
    "expression": "cron_expr",
    "at": "run_at",
    "tz": "timezone",
    "zone": "timezone",
    "start": "start_at",
    "end": "end_at",
    "jitter": "jitter_seconds",
    "timeout": "timeout_seconds",
    "attempts": "max_attempts",
    "retries": "max_attempts",
}


# No answer tells of more problems, and looking for what was meant takes 0.1 ms each.
_SUGGESTIONS = 100


def _problems(error: ValidationError, known: Collection[str], *, start: int | None = None) -> list[FieldProblem]:
    """`start`: where what was read begins in a list; deep inside of it pydantic puts names of its own into places."""
    return [
        FieldProblem(
            pointer(place),
            _MESSAGES.get(problem["type"], problem["msg"].removeprefix("Value error, "))
            + (_suggest(place, known) if problem["type"] == "extra_forbidden" and number < _SUGGESTIONS else ""),
            problem["type"].replace("_", "-"),
        )
        for number, problem in enumerate(error.errors(include_url=False, include_input=False))
        for named in [_of_key(problem["loc"])]
        for place in [named if start is None else _place_in_list(named, start)]
    ]


def _of_key(place: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The place that a key names, for one that is bad itself: pydantic says so in a place below it."""
    return place[:-1] if len(place) > 2 and place[-1] == "[key]" else place


def _place_in_list(place: tuple[int | str, ...], start: int) -> tuple[int | str, ...]:
    return int(place[0]) + start, *place[1:3]


def _suggest(place: tuple[int | str, ...], known: Collection[str]) -> str:
    """The name that was meant, of a field at the top."""
    name = str(place[0]).lower()
    other = [_OTHER_NAMES[name]] if name in _OTHER_NAMES else difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f"; did you mean {other[0]}?" if len(place) == 1 and other and other[0] in known else ""


def _schedule_problems(body: dict[str, Any]) -> list[FieldProblem]:
    """What is wrong with zone and expression, each looked at alone."""
    zone, expr = body.get("timezone", "UTC"), body.get("cron_expr")
    found = []
    if isinstance(zone, str) and not text_problem(zone):
        try:
            check_zone(zone)
        except CronError as error:
            found.append(FieldProblem("#/timezone", str(error), "unknown-timezone"))
    if isinstance(expr, str) and not text_problem(expr):
        try:
            Schedule.parse(expr, "UTC" if found or not isinstance(zone, str) else zone)
        except CronError as error:
            found.append(FieldProblem("#/cron_expr", str(error), "bad-schedule"))
    return found


def _two_schedules(body: dict[str, Any]) -> list[FieldProblem]:
    if body.get("cron_expr") is None or body.get("run_at") is None:
        return []
    detail = "cron_expr and run_at exclude each other; expected one of them, the other left out or null"
    return [FieldProblem(where, detail, "two-schedules") for where in ("#/cron_expr", "#/run_at")]


def _window_problems(body: dict[str, Any]) -> list[FieldProblem]:
    """What is wrong with start and end, beside what each has alone."""
    given = [name for name in ("start_at", "end_at") if body.get(name) is not None]
    if given and body.get("cron_expr") is None:
        detail = "is for jobs with cron_expr; a time to run once is run_at"
        return [FieldProblem(f"#/{name}", detail, "window-without-schedule") for name in given]
    try:
        start, end = (read_instant(body.get(name)) for name in ("start_at", "end_at"))
    except ValueError:
        return []
    return [FieldProblem("#/end_at", "is before start_at", "window-backward")] if end < start else []


def _retry_problems(body: dict[str, Any]) -> list[FieldProblem]:
    base, cap = body.get("retry_base_seconds"), body.get("retry_cap_seconds")
    if not (isinstance(base, int | float) and isinstance(cap, int | float)) or base <= cap:
        return []
    return [FieldProblem("#/retry_base_seconds", "is more than retry_cap_seconds", "base-over-cap")]


def _read(kind: type[_Request], body: dict[str, Any], what: str, found: Sequence[FieldProblem] = ()) -> _Request:
    """The request in a JSON object; `found` are the problems that its fields have together."""
    problems = find_problems(body)
    request = None
    try:
        request = kind.model_validate(body)
    except ValidationError as error:
        named = {problem.pointer for problem in problems}
        problems += [problem for problem in _problems(error, kind.model_fields) if problem.pointer not in named]
    problems += found
    if problems or request is None:
        raise refusal(problems, what)
    return request


def refusal(problems: Sequence[FieldProblem], what: str) -> InvalidInput:
    count = len(problems)
    return InvalidInput(f"{count} field{'s' if count > 1 else ''} of the {what} cannot be accepted", problems)


def read_job_request(body: dict[str, Any]) -> JobRequest:
    """The submission in a JSON object, as `read_object` gives it.  Raises InvalidInput, which names every bad field."""
    return _read(_request_kind(body), body, "job", _job_problems(body))


def _request_kind(body: dict[str, Any]) -> type[JobRequest]:
    executor = body.get("executor")
    return _REQUESTS.get(executor, _UnknownRequest) if isinstance(executor, str) else _UnknownRequest


def _job_problems(body: dict[str, Any]) -> list[FieldProblem]:
    return _two_schedules(body) + _schedule_problems(body) + _window_problems(body) + _retry_problems(body)


# What only a submission can say: the key names it, and a job has commands for being paused.
_NOT_EDITABLE = {"idempotency_key", "paused"}


def read_job_edit(current: JobDefinition, body: dict[str, Any]) -> JobRequest:
    """What a job shall be: as it is, but for the fields of a JSON object.  Raises InvalidInput, as for a submission."""
    detail = "is not a field that can be changed; a job is paused and resumed by commands of their own"
    refused = [FieldProblem(pointer([key]), detail, "not-editable") for key in body if key in _NOT_EDITABLE]
    changes = {key: value for key, value in body.items() if key not in _NOT_EDITABLE}
    values = {name: _as_given(getattr(current, name)) for name in DEFINITION}
    edited = {**values, **changes}
    return _read(_request_kind(edited), edited, "job", refused + _job_problems(edited))


def _as_given(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def read_pause_request(body: dict[str, Any]) -> PauseRequest:
    """Raises InvalidInput, which names every bad field."""
    return _read(PauseRequest, body, "pause")


def read_trigger_request(body: dict[str, Any]) -> TriggerRequest:
    """Raises InvalidInput, which names every bad field but those of the payload: they depend on the job."""
    return _read(TriggerRequest, body, "trigger")


# Which runs each action can change.
_CHANGEABLE = {"retry": ("dead", "succeeded", "cancelled"), "cancel": ("pending", "running")}


def read_bulk_request(body: dict[str, Any]) -> BulkRequest:
    """Raises InvalidInput, which names every bad field."""
    return _read(BulkRequest, body, "request", _selection_problems(body))


def _selection_problems(body: dict[str, Any]) -> list[FieldProblem]:
    """What is wrong with the selection as a whole: a script whose variable is empty must not change every run."""
    asked = body.get("filter")
    if (body.get("ids") is None) == (asked is None):
        detail = "expected one of ids and filter"
        return [FieldProblem(f"#/{name}", detail, "no-selection") for name in ("ids", "filter")]
    if not isinstance(asked, dict):
        return []
    if all(value is None for value in asked.values()):
        return [FieldProblem("#/filter", "is empty; expected job_id, status, since or until", "empty-filter")]
    found = []
    known, status = _CHANGEABLE.get(str(body.get("action"))), asked.get("status")
    if known and isinstance(status, str) and status in list(RunStatus) and status not in known:
        detail = f"expected one of {', '.join(known)} for this action"
        found.append(FieldProblem("#/filter/status", detail, "unfit-status"))
    try:
        since, until = (_read_time(asked.get(name)) for name in ("since", "until"))
    except ValueError:
        return found  # pydantic names it
    if since and until and until < since:
        found.append(FieldProblem("#/filter/until", "is before since", "window-backward"))
    return found


def read_skip_request(body: dict[str, Any]) -> SkipRequest:
    """Raises InvalidInput, which names every bad field."""
    return _read(SkipRequest, body, "request")


def read_payload(executor: str, payload: dict[str, Any]) -> dict[str, Any]:
    """A payload of a run's own.  Raises InvalidInput, which names every bad field."""
    own = _read(_OWN_PAYLOADS[executor], {"payload": payload}, "trigger")
    return own.payload.model_dump(exclude_unset=True)


class _ListedCall(FunctionPayload):
    # Those that come in a list may come from a program, with values of any kind.
    args: dict[str, JsonValue] = Field(default={})


_PAYLOAD_LISTS: Mapping[str, TypeAdapter[list[Any]]] = {
    name: TypeAdapter(list[payload | None])  # type: ignore[valid-type] # a class that is known when this is read
    for name, payload in {**PAYLOADS, "python": _ListedCall}.items()
}


_PAYLOADS_A_TIME = 1000


def read_payloads(executor: str, payloads: Sequence[Mapping[str, Any] | None]) -> Iterator[OwnPayload | None]:
    """The payloads of many runs as JSON, with the functions that they call; None stays None.

    Some at a time: all at once would be a heap to collect.

    Raises InvalidInput in the end, which names every bad field by the place of its payload, as `#/3/command`.
    """
    problems: list[FieldProblem] = []
    for start in range(0, len(payloads), _PAYLOADS_A_TIME):
        found, texts = _read_some(_PAYLOAD_LISTS[executor], payloads[start : start + _PAYLOADS_A_TIME], start)
        problems += found
        yield from texts
    if problems:
        raise refusal(problems, "payloads")


def _read_some(
    kind: TypeAdapter[list[Any]], payloads: Sequence[Mapping[str, Any] | None], start: int
) -> tuple[list[FieldProblem], list[OwnPayload | None]]:
    try:
        values = kind.dump_python(kind.validate_python(payloads), exclude_unset=True)
    except ValidationError as error:
        return _problems(error, (), start=start), []
    read = [None if value is None else OwnPayload(_payload_json(value), value.get("function")) for value in values]
    found = [
        each
        for at, payload in enumerate(read, start)
        if payload and payload.json is not None
        for each in _text_problems(payload.json, at)
    ]
    return found, [] if found else read


def _payload_json(value: dict[str, Any]) -> bytes:
    try:
        return to_json(value, inf_nan_mode="constants")
    except PydanticSerializationError:  # half a surrogate, for which UTF-8 has no bytes
        return json.dumps(value).encode()


def _text_problems(text: bytes, place: int) -> Sequence[FieldProblem]:
    """What of the JSON could not be kept; that most have no such thing is seen without reading it."""
    if (
        b"\\u" not in text
        and b"NaN" not in text
        and b"Infinity" not in text
        and text.count(b"{") + text.count(b"[") <= MAX_DEPTH
    ):
        return ()
    return find_problems(read_object(text), (place,))


def read_preview_request(body: dict[str, Any]) -> PreviewRequest:
    """The question in a JSON object, as `read_object` gives it.  Raises InvalidInput, which names every bad field."""
    return _read(PreviewRequest, body, "preview", _schedule_problems(body))
