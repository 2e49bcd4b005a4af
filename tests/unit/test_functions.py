"""The decorators and the registry: what functions are called, and what cannot be one."""

import importlib
import inspect
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import forgeflow
from forgeflow.errors import ConfigError, InvalidInput
from forgeflow.functions import registry
from forgeflow.functions.registry import load_functions
from forgeflow.functions.spec import FunctionSpec, spec_of
from forgeflow.service.requests import read_job_request

Write = Callable[[str, str], Path]


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a module of that dotted name, which can be imported then, below a folder of the test's own."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write_module(name: str, text: str) -> Path:
        path = tmp_path / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        importlib.invalidate_caches()
        return path

    yield write_module
    for name in set(sys.modules) - before:
        del sys.modules[name]


def refusal(module: str) -> str:
    """The one line that a worker gives instead of starting."""
    with pytest.raises(ConfigError) as caught:
        load_functions([module])
    told = str(caught.value)
    assert "\n" not in told
    return told


def problems(module: str) -> list[str]:
    """What a worker says of the functions that it leaves out."""
    return list(load_functions([module]).problems)


def names() -> set[str]:
    return set(load_functions([]).registry)


def test_decorated_function_stays_what_it_is() -> None:
    def send(amount: int) -> int:
        return amount + 1

    assert forgeflow.job(send) is send
    assert forgeflow.job(name="billing.send")(send) is send
    assert forgeflow.cron("0 9 * * *")(noon) is noon
    found = load_functions([]).registry
    assert {name: spec.function for name, spec in found.items()} == {
        f"{__name__}.{send.__qualname__}": send,
        "billing.send": send,
        "noon": noon,
    }
    assert spec_of(send) is found["billing.send"]


def noon() -> None:
    """A function of a schedule."""


def spec_by(decorate: Callable[[Callable[[], None]], Any]) -> FunctionSpec:
    """What that decorator makes of a new function."""
    return spec_of(decorate(lambda: None))


def test_what_a_decorator_says_can_be_read() -> None:
    @forgeflow.cron(
        " 30 0 9 * * 1-5",
        name="billing.report",
        timezone="Europe/London",
        timeout="1h30m",
        catch_up=True,
        catch_up_limit=4,
        max_attempts=2,
        priority=9,
        overlap="queue",
        tags=["billing", "night"],
        enabled=False,
    )
    async def report(ctx: forgeflow.CronContext) -> None: ...

    line = inspect.getsourcelines(report)[1]
    assert spec_of(report) == FunctionSpec(
        name="billing.report",
        function=report,
        schedule=" 30 0 9 * * 1-5",
        timezone="Europe/London",
        timeout_seconds=5400.0,
        catch_up="all",
        catch_up_limit=4,
        max_attempts=2,
        priority=9,
        overlap="queue",
        tags=("billing", "night"),
        is_enabled=False,
        takes_context=True,
        is_async=True,
        file=__file__,
        line=line,
    )


def test_what_a_cron_does_not_say_is_as_the_readme_has_it() -> None:
    spec = spec_by(forgeflow.cron("@daily"))
    assert (spec.timezone, spec.timeout_seconds, spec.catch_up, spec.catch_up_limit) == ("UTC", 3600.0, "skip", 10)
    assert (spec.max_attempts, spec.priority, spec.overlap, spec.tags, spec.is_enabled) == (3, 5, "allow", (), True)


def test_what_a_job_does_not_say_is_left_to_its_submission() -> None:
    spec = spec_by(forgeflow.job)
    assert (spec.schedule, spec.timeout_seconds, spec.max_attempts, spec.priority) == (None, None, None, None)
    spec = spec_by(forgeflow.job(timeout=timedelta(minutes=2), max_attempts=1, priority=1, tags=("a",)))
    assert (spec.timeout_seconds, spec.max_attempts, spec.priority, spec.tags) == (120.0, 1, 1, ("a",))


def test_function_without_decorator_has_no_spec() -> None:
    with pytest.raises(InvalidInput, match=r"neither @forgeflow.cron nor @forgeflow.job above it"):
        spec_of(lambda: None)


@pytest.mark.parametrize(
    ("given", "stored"), [(False, "skip"), (True, "all"), ("skip", "skip"), ("once", "once"), ("all", "all")]
)
def test_catch_up_is_a_flag_or_a_word(given: Any, stored: str) -> None:
    assert spec_by(forgeflow.cron("@daily", catch_up=given)).catch_up == stored


@pytest.mark.parametrize("given", ["90s", "1m30s", 90, 90.0, timedelta(seconds=90)])
def test_timeout_is_a_text_a_timedelta_or_seconds(given: Any) -> None:
    assert spec_by(forgeflow.cron("@daily", timeout=given)).timeout_seconds == 90.0


CONTEXTS = """
from __future__ import annotations
import typing
import forgeflow
from forgeflow import CronContext as C, job
if typing.TYPE_CHECKING:
    from forgeflow import CronContext

class Ours: pass

def by_name(ctx): pass
def by_annotation(context: forgeflow.CronContext): pass
def by_other_name(context: C): pass
def by_name_for_type_checkers(context: CronContext): pass
def in_quotes(context: "CronContext"): pass
def before_arguments(ctx, amount=1): pass
def of_others(context: Ours, amount=1): pass
def plain(amount=1, *ctxs, **more): pass
def without(): pass
for each in (by_name, by_annotation, by_other_name, by_name_for_type_checkers, in_quotes, before_arguments, of_others,
             plain, without):
    job(name=each.__name__)(each)
"""


def test_context_is_given_to_who_asks_for_it(write: Write) -> None:
    write("shop", CONTEXTS)
    found, told = load_functions(["shop"])
    assert not told
    without = {name for name, spec in found.items() if not spec.takes_context}
    assert without == {"of_others", "plain", "without"}
    assert len(found) == 9


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ("'0 25 * * *'", "schedule", "expected 0 to 23"),
        ("'0 0 30 2 *'", "schedule", "never ticks; expected a day that its months have"),
        ("None", "schedule", "a cron expression must be text"),
        ("'@daily', timezone='Europe/Lundon'", "timezone", "Europe/London"),
        ("'@daily', timezone=None", "timezone", "must be an IANA name such as Europe/Berlin"),
        ("'@daily', timeout='soon'", "timeout", "expected a duration such as 30s, 5m or 1h30m"),
        ("'@daily', timeout=0", "timeout", "expected a duration of more than 0"),
        ("'@daily', timeout=float('nan')", "timeout", "expected a duration of 0 to 366 days"),
        ("'@daily', timeout='367d'", "timeout", "expected a duration of 0 to 366 days"),
        ("'@daily', timeout=None", "timeout", "expected a timedelta, a text such as 30s, 5m or 1h30m, or a number"),
        ("'@daily', timeout=True", "timeout", "expected a timedelta"),
        ("'@daily', catch_up='yes'", "catch_up", "expected True, False or one of skip, once, all"),
        ("'@daily', catch_up_limit=0", "catch_up_limit", "expected a whole number from 1 to 1000"),
        ("'@daily', max_attempts=1001", "max_attempts", "expected a whole number from 1 to 1000"),
        ("'@daily', priority=True", "priority", "expected a whole number from 1 to 9"),
        ("'@daily', overlap='wait'", "overlap", "expected one of allow, skip, queue, replace"),
        ("'@daily', tags='night'", "tags", "expected a list of at most 20 tags, each of 1 to 50 characters"),
        ("'@daily', tags={'night', 'day'}", "tags", "expected a list of at most 20 tags, each of 1 to 50 characters"),
        ("'@daily', tags=['']", "tags", "expected a list of at most 20 tags, each of 1 to 50 characters"),
        ("'@daily', enabled='no'", "enabled", "expected True or False"),
        ("'@daily', name=' '", "name", "expected a name of 1 to 200 readable characters"),
    ],
)
def test_wrong_field_is_named_with_file_and_line(write: Write, given: str, field: str, expected: str) -> None:
    path = write("shop", f"import forgeflow\n\n@forgeflow.cron({given})\ndef send(): pass\n")
    with pytest.raises(InvalidInput) as caught:
        importlib.import_module("shop")
    told = str(caught.value)
    assert told.startswith(f"shop.send ({path}, line 3): {field}: ")
    assert expected in told
    assert [problem.pointer for problem in caught.value.problems] == [f"#/{field}"]
    assert problems("shop") == [told]


def test_every_wrong_field_is_named(write: Write) -> None:
    path = write("shop", "import forgeflow\n@forgeflow.cron('@daily', priority=0, tags=3)\ndef send(amount): yield\n")
    (told,) = problems("shop")
    assert told == (
        f"shop.send ({path}, line 2): is a generator; expected a function that has done its work when it ends; "
        "priority: expected a whole number from 1 to 9; "
        "tags: expected a list of at most 20 tags, each of 1 to 50 characters"
    )


SUBMITTED = {"name": "send", "executor": "python", "payload": {"function": "send"}, "cron_expr": "@daily"}


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("catch_up_limit", [0, 1, 1000, 1001]),
        ("max_attempts", [0, 1, 1000, 1001]),
        ("priority", [0, 1, 9, 10]),
        ("overlap", ["allow", "skip", "queue", "replace", "other"]),
        ("name", ["", " ", "x", 200 * "x", 201 * "x"]),
        ("tags", [[], [""], [" "], [50 * "x"], [51 * "x"], 20 * ["x"], 21 * ["x"]]),
        ("timeout", [0, 366 * 86400, 366 * 86400 + 1]),
        ("catch_up", ["skip", "once", "all", "none"]),
        ("timezone", ["Asia/Tokyo", "CET/nowhere"]),
    ],
)
def test_a_decorator_takes_what_a_submission_takes(field: str, values: list[Any]) -> None:
    for value in values:
        decorator, submission = {field: value}, {"timeout_seconds" if field == "timeout" else field: value}
        is_taken = accepts(lambda: spec_by(forgeflow.cron("@daily", **{"name": "x", **decorator})))  # noqa: B023
        assert is_taken == accepts(lambda: read_job_request({**SUBMITTED, **submission})), value  # noqa: B023


def accepts(action: Callable[[], object]) -> bool:
    try:
        action()
    except InvalidInput:
        return False
    return True


def test_importing_forgeflow_alone_loads_nothing_else() -> None:
    look = "import sys, forgeflow; before = {m for m in sys.modules if m.startswith('forgeflow')}; print(*before)"
    told = subprocess.run([sys.executable, "-c", f"{look}; forgeflow.job"], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["forgeflow"]
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = forgeflow.nope


def test_public_names_are_those_that_there_are() -> None:
    assert {name for name in forgeflow.__all__ if hasattr(forgeflow, name)} == set(forgeflow.__all__)


def test_a_decorated_function_loads_no_more_than_it_needs() -> None:
    heavy = ("httpx2", "psycopg", "pydantic", "structlog", "asyncio", "cron_descriptor")
    look = (
        "import sys; from forgeflow import *; cron('@daily')(lambda ctx: None); job(lambda: None);"
        f"print(*[name for name in {heavy} if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", look], text=True).strip() == ""


SEND = "import forgeflow\n\n@forgeflow.job(name='send')\ndef send(): return {}\n"


def test_two_functions_of_one_name_are_both_named_and_the_first_one_stays(write: Write) -> None:
    one, two = write("shop_one", SEND), write("shop_two", SEND)
    load_functions(["shop_two"])
    assert problems("shop_one") == [
        f"shop_one.send ({one}, line 3): name: two functions are called send, this one and "
        f"shop_two.send ({two}, line 3)"
    ]
    assert load_functions([]).registry["send"].function is sys.modules["shop_two"].send


def test_two_functions_of_one_name_in_one_module_are_refused(write: Write) -> None:
    path = write("shop", "import forgeflow\n" + 2 * "@forgeflow.job\ndef send(): pass\n")
    assert problems("shop") == [
        f"shop.send ({path}, line 4): name: two functions are called shop.send, this one and shop.send ({path}, line 2)"
    ]


WRAPPED = """
import forgeflow
from wrapping import timed

@forgeflow.cron("@daily")
@timed
def send(): return {}
"""
WRAPPING = """
import functools

def timed(function):
    @functools.wraps(function)
    def call(*args, **more):
        return function(*args, **more)
    return call
"""


def test_wrapped_functions_of_one_name_are_told_apart(write: Write) -> None:
    write("wrapping", WRAPPING)
    one, two = write("shop_one", WRAPPED), write("shop_two", WRAPPED)
    load_functions(["shop_one"])
    assert problems("shop_two") == [
        f"shop_two.send ({two}, line 5): name: two functions are called send, this one and "
        f"shop_one.send ({one}, line 5)"
    ]
    spec = load_functions([]).registry["send"]
    assert (spec.file, spec.line, spec.takes_context) == (str(one), 5, False)


def test_second_schedule_of_a_function_needs_a_name_of_its_own(write: Write) -> None:
    twice = "import forgeflow\n@forgeflow.cron('0 9 * * *'{})\n@forgeflow.cron('0 18 * * *')\ndef send(): pass\n"
    path = write("shop", twice.format(""))
    assert problems("shop") == [
        f"shop.send ({path}, line 2): name: is decorated twice as send; expected a name for each"
    ]
    write("store", twice.format(", name='send in the morning'"))
    registry._registered.clear()
    assert not problems("store")
    assert {spec.name: spec.schedule for spec in load_functions([]).registry.values()} == {
        "send": "0 18 * * *",
        "send in the morning": "0 9 * * *",
    }


def test_same_function_may_come_again(write: Write) -> None:
    path = write("shop", SEND)
    load_functions(["shop"])
    importlib.reload(sys.modules["shop"])
    del sys.modules["shop"]
    runpy.run_path(str(path), run_name="__main__")
    assert load_functions(["shop"]).registry["send"].function is sys.modules["shop"].send


def test_function_of_a_notebook_may_be_defined_anew() -> None:
    for cell in ("cell 1", "cell 2"):
        exec(compile(SEND.format(repr(cell)), cell, "exec"), {"__name__": "__main__"})
    assert load_functions([]).registry["send"].function() == "cell 2"


BAD = """
import forgeflow

@forgeflow.cron("0 9 * * *")
def before(): pass

@forgeflow.cron("0 25 * * *")
def bad(): return "still here"

@forgeflow.job
class Worse: pass

@forgeflow.cron
def worst(): return "still here"

@forgeflow.job
def after(): return bad(), worst()
"""


def test_functions_that_are_wrong_are_left_out_and_the_others_go_on(write: Write) -> None:
    path = write("shop", BAD)
    bad, worse, worst = problems("shop")
    assert bad.startswith(f"shop.bad ({path}, line 7): schedule: ")
    assert worse.startswith("expected @forgeflow.job")
    assert worse.endswith("above a function, not <class 'shop.Worse'>")
    assert worst == f'shop.worst ({path}, line 13): expected @forgeflow.cron("0 9 * * *") above it, with a schedule'
    assert names() == {"before", "shop.after"}
    assert load_functions([]).registry["shop.after"].function() == ("still here", "still here")
    with pytest.raises(InvalidInput):
        spec_of(sys.modules["shop"].bad)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("async def send(): yield", "is a generator; expected a function that has done its work when it ends"),
        ("def send(): yield", "is a generator; expected a function that has done its work when it ends"),
        ("def send(amount, ctx): pass", "has the context as ctx; expected it as the first parameter, not by keyword"),
        ("def send(*, ctx): pass", "has the context as ctx; expected it as the first parameter, not by keyword"),
    ],
)
@pytest.mark.parametrize("decorator", ["forgeflow.job", "forgeflow.cron('@daily')"])
def test_what_no_run_could_call_is_refused(write: Write, decorator: str, text: str, expected: str) -> None:
    path = write("shop", f"import forgeflow\n@{decorator}\n{text}\n")
    (told,) = problems("shop")
    assert told.startswith(f"shop.send ({path}, line 2): ")
    assert expected in told


@pytest.mark.parametrize(
    ("parameters", "missing"), [("amount", "amount"), ("ctx, amount", "amount"), ("*, amount", "amount")]
)
def test_schedule_cannot_call_a_function_that_needs_arguments(write: Write, parameters: str, missing: str) -> None:
    path = write("shop", f"import forgeflow\n@forgeflow.cron('@daily')\ndef send({parameters}): pass\n")
    assert problems("shop") == [
        f"shop.send ({path}, line 2): needs {missing}; a schedule calls it with the context, or with nothing"
    ]


def test_schedule_calls_a_function_that_can_do_without_arguments(write: Write) -> None:
    for parameters in ("day=None, *rest, **more", "ctx, day=None, *rest, **more", "ctx, *, day=None", "ctx=None"):
        write("shop", f"import forgeflow\n@forgeflow.cron('@daily')\ndef send({parameters}): pass\n")
        assert problems("shop") == []
        assert load_functions([]).registry["send"].takes_context == parameters.startswith("ctx")
        del sys.modules["shop"]


def test_type_checker_refuses_what_no_schedule_could_call() -> None:
    def charge(amount: int) -> None: ...

    with pytest.raises(InvalidInput, match="needs amount; a schedule calls it with the context, or with nothing"):
        forgeflow.cron("@daily")(charge)  # type: ignore[type-var]


@pytest.mark.parametrize("name", ["", " ", "x" * 201, "a\0b", "\ud800"])
def test_name_that_no_run_could_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="expected a name of 1 to 200 readable characters"):
        forgeflow.job(name=name)(lambda: None)


def test_forgotten_keyword_is_told(write: Write) -> None:
    path = write("shop", "import forgeflow\n@forgeflow.job('billing.send')\ndef send(): pass\n")
    assert refusal("shop") == (
        'python.modules: cannot import shop: InvalidInput: expected @forgeflow.job, @forgeflow.job(name="…") or '
        f'@forgeflow.cron("0 9 * * *") above a function, not str (in {path}, line 2)'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module' (in {path}, line 1)"),
        ("\nimport os\nos.environ['NOPE']", "KeyError: 'NOPE' (in {path}, line 3)"),
        ("def send(:", "SyntaxError: invalid syntax ({name}, line 1) (in {path}, line 1)"),
        ("raise SystemExit(3)", "SystemExit: 3 (in {path}, line 1)"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt:  (in {path}, line 1)"),
        ("raise ValueError('one\\ntwo')", "ValueError: one (in {path}, line 1)"),
    ],
)
def test_module_that_cannot_be_imported_is_told_with_file_and_line(write: Write, text: str, expected: str) -> None:
    path = write("shop.jobs", text)
    assert refusal("shop.jobs") == f"python.modules: cannot import shop.jobs: {expected}".format(
        path=path, name=path.name
    )


def test_module_that_is_not_there_is_told() -> None:
    assert refusal("no_such_shop.jobs") == (
        "python.modules: cannot import no_such_shop.jobs: ModuleNotFoundError: No module named 'no_such_shop'; "
        "expected it beside ForgeFlow's own packages, or in a folder of PYTHONPATH"
    )
