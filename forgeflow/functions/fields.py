"""What decorators may be given; the ranges are those of a submission, which a test holds against these."""

from collections.abc import Callable, Mapping
from typing import Any

from forgeflow.domain.document import text_problem
from forgeflow.domain.schedule import Schedule, check_zone
from forgeflow.duration import read_duration
from forgeflow.errors import FieldProblem

MAX_NAME_LENGTH = 200
_MAX_TAGS = 20
_MAX_TAG_LENGTH = 50
_OVERLAPS = ("allow", "skip", "queue", "replace")
_CATCH_UPS = ("skip", "once", "all")


def read_fields(fields: Mapping[str, object]) -> tuple[dict[str, Any], list[FieldProblem]]:
    """What they mean, by the same names, and what is wrong with the others."""
    values: dict[str, Any] = {}
    problems = []
    for field, value in fields.items():
        try:
            values[field] = _READERS[field](value)
        except ValueError as error:
            problems.append(FieldProblem(f"#/{field}", str(error), _CODES.get(field, "value-error")))
    return values, problems


def _is_text(value: object, longest: int) -> bool:
    return isinstance(value, str) and bool(value.strip()) and len(value) <= longest and not text_problem(value)


def _read_name(value: object) -> object:
    if not _is_text(value, MAX_NAME_LENGTH):
        raise ValueError(f"expected a name of 1 to {MAX_NAME_LENGTH} readable characters")
    return value


def _read_schedule(value: Any) -> str:
    return Schedule.parse(value).expr


def _read_zone(value: Any) -> str:
    return check_zone(value).key


def _read_timeout(value: object) -> float:
    seconds = read_duration(value)
    if not seconds:
        raise ValueError("expected a duration of more than 0")
    return seconds


def _whole(lowest: int, highest: int) -> Callable[[object], object]:
    def read(value: object) -> object:
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise ValueError(f"expected a whole number from {lowest} to {highest}")
        return value

    return read


def _read_catch_up(value: object) -> object:
    if isinstance(value, bool):
        return "all" if value else "skip"
    if value not in _CATCH_UPS:
        raise ValueError(f"expected True, False or one of {', '.join(_CATCH_UPS)}")
    return value


def _read_overlap(value: object) -> object:
    if value not in _OVERLAPS:
        raise ValueError(f"expected one of {', '.join(_OVERLAPS)}")
    return value


def _read_tags(value: object) -> tuple[str, ...]:
    tags = tuple(value) if isinstance(value, list | tuple) else None  # a set has another order in each worker
    if tags is None or len(tags) > _MAX_TAGS or not all(_is_text(tag, _MAX_TAG_LENGTH) for tag in tags):
        raise ValueError(f"expected a list of at most {_MAX_TAGS} tags, each of 1 to {_MAX_TAG_LENGTH} characters")
    return tags


def _read_enabled(value: object) -> object:
    if not isinstance(value, bool):
        raise ValueError("expected True or False")
    return value


_READERS: Mapping[str, Callable[[object], object]] = {
    "name": _read_name,
    "schedule": _read_schedule,
    "timezone": _read_zone,
    "timeout": _read_timeout,
    "catch_up": _read_catch_up,
    "catch_up_limit": _whole(1, 1000),
    "max_attempts": _whole(1, 1000),
    "priority": _whole(1, 9),
    "overlap": _read_overlap,
    "tags": _read_tags,
    "enabled": _read_enabled,
}

# As the API names them.
_CODES = {"schedule": "bad-schedule", "timezone": "unknown-timezone"}
