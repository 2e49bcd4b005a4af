"""The decorators, which make a function known to the workers and leave it as it is."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import FunctionType
from typing import TypeVar, cast, overload

from forgeflow.domain.catch_up import CatchUp
from forgeflow.domain.overlap import Overlap
from forgeflow.errors import InvalidInput
from forgeflow.functions.context import CronContext
from forgeflow.functions.fields import read_fields
from forgeflow.functions.registry import refuse, register
from forgeflow.functions.spec import Function, FunctionSpec, definition, is_context, place, store_spec, takes_context

Duration = timedelta | str | float

_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

_F = TypeVar("_F", bound=Function)
_CronFunction = TypeVar("_CronFunction", bound=Callable[[], object] | Callable[[CronContext], object])


def cron(
    schedule: str,
    /,
    *,
    name: str | None = None,
    timezone: str = "UTC",
    timeout: Duration = "1h",
    catch_up: bool | CatchUp = False,
    catch_up_limit: int = 10,
    max_attempts: int = 3,
    priority: int = 5,
    overlap: Overlap = "allow",
    tags: Sequence[str] = (),
    enabled: bool = True,
) -> Callable[[_CronFunction], _CronFunction]:
    """Run a function, `def` or `async def`, on a schedule: 5 fields, or 6 with seconds first.

    It is called with the context, or with nothing when it has no parameter. `name` is the function's own unless
    given, `timeout` a timedelta, a text such as `"1h30m"` or seconds. `catch_up` says what to run of the ticks that
    were missed: True or `"all"` the latest `catch_up_limit`, `"once"` the latest, False or `"skip"` none.

    Raises InvalidInput that names the function, its file and line, and each field that is wrong.
    """
    if isinstance(given := cast("object", schedule), FunctionType):
        refuse(InvalidInput(f'{place(given)}: expected @forgeflow.cron("0 9 * * *") above it, with a schedule'))
        return given
    fields = {
        "schedule": schedule,
        "timezone": timezone,
        "timeout": timeout,
        "catch_up": catch_up,
        "catch_up_limit": catch_up_limit,
        "max_attempts": max_attempts,
        "priority": priority,
        "overlap": overlap,
        "tags": tags,
        "enabled": enabled,
    }

    def decorate(function: _CronFunction) -> _CronFunction:
        _declare(function, name, fields)
        return function

    return decorate


@overload
def job(function: _F, /) -> _F: ...


@overload
def job(
    *,
    name: str | None = None,
    timeout: Duration | None = None,
    max_attempts: int | None = None,
    priority: int | None = None,
    tags: Sequence[str] = (),
) -> Callable[[_F], _F]: ...


def job(
    function: _F | None = None,
    /,
    *,
    name: str | None = None,
    timeout: Duration | None = None,
    max_attempts: int | None = None,
    priority: int | None = None,
    tags: Sequence[str] = (),
) -> _F | Callable[[_F], _F]:
    """Let a function, `def` or `async def`, be submitted by its name: `@forgeflow.job` or `@forgeflow.job(name="…")`.

    The name is `module.qualified_name` unless given. A run calls it with the context, when that is its first parameter,
    and with keyword arguments. What is not given here is for the submission to say.

    Raises InvalidInput that names the function, its file and line, and each field that is wrong.
    """
    limits = {"timeout": timeout, "max_attempts": max_attempts, "priority": priority}
    fields = {"tags": tags, **{field: value for field, value in limits.items() if value is not None}}

    def decorate(decorated: _F) -> _F:
        _declare(decorated, name, fields)
        return decorated

    return decorate if function is None else decorate(function)


def _declare(function: Function, name: str | None, fields: Mapping[str, object]) -> None:
    """Check it, store its spec and register it; or refuse it."""
    if not callable(function):  # what the decorator stands above would fail next, and say less
        raise InvalidInput(f"{_EXPECTED}, not {type(function).__name__}")
    try:
        spec = _make_spec(function, name, fields)
        register(spec)
    except InvalidInput as error:
        refuse(error)
    else:
        store_spec(function, spec)


_EXPECTED = 'expected @forgeflow.job, @forgeflow.job(name="…") or @forgeflow.cron("0 9 * * *") above a function'


def _make_spec(function: Function, name: str | None, fields: Mapping[str, object]) -> FunctionSpec:
    """Raises InvalidInput with every problem that there is."""
    if not isinstance(function, FunctionType):
        raise InvalidInput(f"{_EXPECTED}, not {function!r}")
    is_cron = "schedule" in fields
    own_name = function.__name__ if is_cron else f"{function.__module__}.{function.__qualname__}"
    values, problems = read_fields({"name": own_name if name is None else name, **fields})
    unfit = _unfit(function, is_cron=is_cron)
    if problems or unfit:
        told = [unfit] if unfit else []
        told += [f"{problem.pointer.removeprefix('#/')}: {problem.detail}" for problem in problems]
        raise InvalidInput(f"{place(function)}: {'; '.join(told)}", problems)
    code = definition(function).__code__
    return FunctionSpec(
        function=function,
        timeout_seconds=values.pop("timeout", None),
        is_enabled=values.pop("enabled", True),
        takes_context=takes_context(function),
        is_async=inspect.iscoroutinefunction(function),
        file=code.co_filename,
        line=code.co_firstlineno,
        **values,
    )


def _unfit(function: FunctionType, *, is_cron: bool) -> str | None:
    """Why it cannot be called as a run calls it, or None."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "is a generator; expected a function that has done its work when it ends"
    parameters = list(inspect.signature(function).parameters.values())
    others = parameters[1:] if takes_context(function) else parameters
    if late := [parameter.name for parameter in others if is_context(parameter, function)]:
        return f"has the context as {late[0]}; expected it as the first parameter, not by keyword"
    needed = [each.name for each in others if each.default is each.empty and each.kind not in _COLLECTING]
    if is_cron and needed:
        return f"needs {needed[0]}; a schedule calls it with the context, or with nothing"
    return None
