"""Functions by the names that runs know them by."""

import importlib
import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import TypeVar, overload

from forgeflow.domain.document import text_problem
from forgeflow.errors import ConfigError, InvalidInput

Function = Callable[..., object]
Registry = Mapping[str, Function]

_F = TypeVar("_F", bound=Function)

MAX_NAME_LENGTH = 200

_registered: dict[str, FunctionType] = {}


@overload
def job(function: _F, /) -> _F: ...


@overload
def job(*, name: str | None = None) -> Callable[[_F], _F]: ...


def job(function: _F | None = None, /, *, name: str | None = None) -> _F | Callable[[_F], _F]:
    """Make a function known to the workers, as `@forgeflow.job` or `@forgeflow.job(name="…")`; it stays as it is.

    Its name, which jobs of the executor `python` call it by, is `module.qualified_name` unless given. A run calls it
    with keyword arguments, in the worker itself.  Raises InvalidInput for what cannot be called so, and for a name
    that another function has; the same one may come again, as when its module is imported anew.
    """

    def register(decorated: _F) -> _F:
        _register(decorated, name)
        return decorated

    return register if function is None else register(function)


def _register(function: Function, name: str | None) -> None:
    if not isinstance(function, FunctionType):
        raise InvalidInput(f'expected @forgeflow.job or @forgeflow.job(name="…") above a function, not {function!r}')
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput(f"{_place(function)} is asynchronous; expected a function that has done its work on return")
    if inspect.isgeneratorfunction(function):
        raise InvalidInput(f"{_place(function)} is a generator; expected a function that has done its work on return")
    name = f"{function.__module__}.{function.__qualname__}" if name is None else name
    if not name.strip() or len(name) > MAX_NAME_LENGTH or text_problem(name):
        raise InvalidInput(f"{_place(function)}: expected a name of 1 to {MAX_NAME_LENGTH} readable characters")
    other = _registered.setdefault(name, function)
    if not _is_same(function, other):
        raise InvalidInput(f"two functions are called {name}: {_place(other)} and {_place(function)}")
    _registered[name] = function


def _is_same(one: FunctionType, other: FunctionType) -> bool:
    """Whether one is the other, imported anew or as `__main__`, or defined anew in another cell of a notebook."""
    first, second = one.__code__, other.__code__
    if first.co_filename == second.co_filename:
        return first.co_firstlineno == second.co_firstlineno
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


def _place(function: FunctionType) -> str:
    code = function.__code__
    return f"{function.__module__}.{function.__qualname__} ({code.co_filename}, line {code.co_firstlineno})"


def load_functions(modules: Iterable[str]) -> Registry:
    """All functions that importing these modules registers.  Runs their code, so it may take, and do, anything.

    Raises ConfigError, one sentence, for the first one that cannot be imported: with file and line of its own package
    where there is one.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except BaseException as error:  # user code: one that exits must not end us without a word
            why = f"{type(error).__name__}: {_first_line(error)}{_where(error, module)}"
            if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
                why += "; expected it beside ForgeFlow's own packages, or in a folder of PYTHONPATH"
            raise ConfigError(f"python.modules: cannot import {module}: {why}") from error
    return _registered


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
