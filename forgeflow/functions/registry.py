"""Functions by the names that runs know them by."""

import importlib
import traceback
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from types import FunctionType
from typing import NamedTuple, cast

from forgeflow.errors import ConfigError, InvalidInput
from forgeflow.functions.spec import FunctionSpec, definition, place

Registry = Mapping[str, FunctionSpec]

_registered: dict[str, FunctionSpec] = {}

# What is wrong with functions that are left out, while modules are loaded; None: the first one ends the import.
_problems: ContextVar[list[str] | None] = ContextVar("problems", default=None)


class Loaded(NamedTuple):
    """The functions, and a sentence for each one that was left out."""

    registry: Registry
    problems: tuple[str, ...]


def register(spec: FunctionSpec) -> None:
    """Make it known to the workers.  Raises InvalidInput for a name that another function has.

    The same function may come again, as when its module is imported anew; but not decorated twice, for the one would
    be lost in silence.
    """
    function = cast("FunctionType", spec.function)
    other = _registered.get(spec.name, spec)
    if other.function is spec.function and other != spec:
        raise InvalidInput(f"{place(function)}: name: is decorated twice as {spec.name}; expected a name for each")
    if not _is_same(function, cast("FunctionType", other.function)):
        theirs = place(cast("FunctionType", other.function))
        raise InvalidInput(f"{place(function)}: name: two functions are called {spec.name}, this one and {theirs}")
    _registered[spec.name] = spec


def refuse(error: InvalidInput) -> None:
    """Raise it, or leave that function out while modules are loaded."""
    problems = _problems.get()
    if problems is None:
        raise error
    problems.append(str(error))


def _is_same(one: FunctionType, other: FunctionType) -> bool:
    """Whether one is the other, imported anew or as `__main__`, or defined anew in another cell of a notebook."""
    first, second = definition(one).__code__, definition(other).__code__
    if first.co_filename == second.co_filename:
        return first.co_firstlineno == second.co_firstlineno
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


def load_functions(modules: Iterable[str]) -> Loaded:
    """All functions that importing these modules registers.  Runs their code, so it may take, and do, anything.

    A function that is decorated wrongly is left out, the others of its module go on. Raises ConfigError, one sentence,
    for the first module that cannot be imported: with file and line of its own package where there is one.
    """
    problems: list[str] = []
    before = _problems.set(problems)
    try:
        for module in modules:
            _import(module)
    finally:
        _problems.reset(before)
    return Loaded(_registered, tuple(problems))


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except BaseException as error:  # user code: one that exits must not end us without a word
        why = f"{type(error).__name__}: {_first_line(error)}{_where(error, module)}"
        if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
            why += "; expected it beside ForgeFlow's own packages, or in a folder of PYTHONPATH"
        raise ConfigError(f"python.modules: cannot import {module}: {why}") from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "")


def _where(error: BaseException, module: str) -> str:
    """The innermost line of the module's own package that was being executed, or that Python cannot read."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" (in {error.filename}, line {error.lineno})"
    package = module.partition(".")[0]
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
            found = f" (in {frame.f_code.co_filename}, line {line})"
    return found
