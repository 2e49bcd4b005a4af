"""What a decorator made of a function."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType

from forgeflow.domain.catch_up import CatchUp
from forgeflow.domain.overlap import Overlap
from forgeflow.errors import InvalidInput
from forgeflow.functions.context import CronContext

Function = Callable[..., object]

_ATTRIBUTE = "__forgeflow_spec__"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSpec:
    """A function by the name that runs know it by, and how it wants to be run.

    None is what the decorator did not say: a function without a schedule is submitted, and limits that it does not
    have are those of the submission. `file` and `line` are where it is defined.
    """

    name: str
    function: Function
    schedule: str | None = None
    timezone: str = "UTC"
    timeout_seconds: float | None = None
    catch_up: CatchUp = "skip"
    catch_up_limit: int = 10
    max_attempts: int | None = None
    priority: int | None = None
    overlap: Overlap = "allow"
    tags: tuple[str, ...] = ()
    is_enabled: bool = True
    takes_context: bool = False
    is_async: bool = False
    file: str
    line: int


def spec_of(function: Function) -> FunctionSpec:
    """What the decorator stored; of several the outermost.  Raises InvalidInput for a function that has none."""
    found = getattr(function, _ATTRIBUTE, None)
    if not isinstance(found, FunctionSpec):
        raise InvalidInput(f"{function!r} has neither @forgeflow.cron nor @forgeflow.job above it")
    return found


def store_spec(function: Function, spec: FunctionSpec) -> None:
    setattr(function, _ATTRIBUTE, spec)


def definition(function: FunctionType) -> FunctionType:
    """Itself, or the function that it wraps: a wrapper has file and line of the decorator that made it."""
    inner = inspect.unwrap(function)
    return inner if isinstance(inner, FunctionType) else function


def place(function: FunctionType) -> str:
    """Its name, with file and line, for a person."""
    code = definition(function).__code__
    return f"{function.__module__}.{function.__qualname__} ({code.co_filename}, line {code.co_firstlineno})"


def takes_context(function: Function) -> bool:
    """Whether its first parameter is the context."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.kind in _POSITIONAL and is_context(first, function)


def is_context(parameter: inspect.Parameter, function: Function) -> bool:
    """Whether it is called `ctx`, or is a CronContext by its annotation."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        annotation = _look_up(annotation.strip("\"' "), function)
    return parameter.name == "ctx" or (isinstance(annotation, type) and issubclass(annotation, CronContext))


def _look_up(text: str, function: Function) -> object:
    """What an annotation that is text means where the function is defined.

    What was imported for type checkers alone is not there; of that the name must do.
    """
    first, *others = text.split(".")
    found = getattr(inspect.unwrap(function), "__globals__", {}).get(first)
    for name in others:
        found = getattr(found, name, None)
    return CronContext if found is None and text.endswith(CronContext.__name__) else found
