"""The decorator and the registry: what functions are called, and what cannot be one."""

import importlib
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import forgeflow
from forgeflow.errors import ConfigError, InvalidInput
from forgeflow.functions import registry
from forgeflow.functions.registry import load_functions

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


def test_decorated_function_stays_what_it_is() -> None:
    def send(amount: int) -> int:
        return amount + 1

    assert forgeflow.job(send) is send
    assert forgeflow.job(name="billing.send")(send) is send
    assert load_functions([]) == {f"{__name__}.{send.__qualname__}": send, "billing.send": send}


def test_importing_forgeflow_alone_loads_nothing_else() -> None:
    look = "import sys, forgeflow; before = {m for m in sys.modules if m.startswith('forgeflow')}; print(*before)"
    told = subprocess.run([sys.executable, "-c", f"{look}; forgeflow.job"], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["forgeflow"]
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = forgeflow.nope


SEND = "import forgeflow\n\n@forgeflow.job(name='send')\ndef send(): return {}\n"


def test_two_functions_of_one_name_are_both_named(write: Write) -> None:
    one, two = write("shop_one", SEND), write("shop_two", SEND)
    load_functions(["shop_two"])
    assert refusal("shop_one") == (
        "python.modules: cannot import shop_one: InvalidInput: two functions are called send: "
        f"shop_two.send ({two}, line 3) and shop_one.send ({one}, line 3) (in {one}, line 3)"
    )


def test_two_functions_of_one_name_in_one_module_are_refused(write: Write) -> None:
    path = write("shop", "import forgeflow\n" + 2 * "@forgeflow.job\ndef send(): pass\n")
    assert f"two functions are called shop.send: shop.send ({path}, line 2) and shop.send ({path}, line 4)" in refusal(
        "shop"
    )


def test_same_function_may_come_again(write: Write) -> None:
    path = write("shop", SEND)
    load_functions(["shop"])
    importlib.reload(sys.modules["shop"])
    del sys.modules["shop"]
    runpy.run_path(str(path), run_name="__main__")
    assert load_functions(["shop"])["send"] is sys.modules["shop"].send


def test_function_of_a_notebook_may_be_defined_anew() -> None:
    for cell in ("cell 1", "cell 2"):
        exec(compile(SEND.format(repr(cell)), cell, "exec"), {"__name__": "__main__"})
    assert load_functions([])["send"]() == "cell 2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("async def send(): pass", "shop.send ({path}, line 2) is asynchronous; expected a function that has done"),
        ("async def send(): yield", "shop.send ({path}, line 2) is asynchronous; expected a function that has done"),
        ("def send(): yield", "shop.send ({path}, line 2) is a generator; expected a function that has done its work"),
        ("class Send: pass", 'expected @forgeflow.job or @forgeflow.job(name="…") above a function, not <class'),
    ],
)
def test_what_does_nothing_when_it_is_called_is_refused(write: Write, text: str, expected: str) -> None:
    path = write("shop", f"import forgeflow\n@forgeflow.job\n{text}\n")
    assert expected.format(path=path) in refusal("shop")


@pytest.mark.parametrize("name", ["", " ", "x" * 201, "a\0b", "\ud800"])
def test_name_that_no_run_could_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="expected a name of 1 to 200 readable characters"):
        forgeflow.job(name=name)(lambda: None)


def test_forgotten_keyword_is_told() -> None:
    decorate: Any = forgeflow.job
    with pytest.raises(InvalidInput, match=r"expected @forgeflow.job or @forgeflow.job\(name=\"…\"\) above a function"):
        decorate("billing.send")


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
