"""The SQL files, the store's functions and the server agree."""

import dataclasses
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from forgeflow.store import bulk, jobs, nodes, output, runs, schema, ticks
from forgeflow.store.connection import Connection
from forgeflow.store.statements import statement

SQL = Path(__file__).parents[3] / "sql"
MODULES: dict[str, ModuleType] = {
    "jobs": jobs,
    "runs": runs,
    "ticks": ticks,
    "nodes": nodes,
    "schema": schema,
    "bulk": bulk,
    "output": output,
}
# Several statements as one; everything else in these modules is one statement.
COMPOSED = {
    *("runs.take_turn", "runs.recover_worker", "runs.end_pending_runs"),
    *("schema.migrate", "schema.migrations", "schema.require_current"),
    *("bulk.new_ids", "bulk.run_rows"),  # no statements: what copy_runs and copy_jobs are given
}

FILES = sorted(
    path.relative_to(SQL).with_suffix("").as_posix()
    for path in SQL.glob("*/*.sql")
    if not re.match(r"\d{4}_", path.name)
)


def header(name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in (SQL / f"{name}.sql").read_text().splitlines():
        match = re.match(r"-- (in|out|locks|index|why): ?(.*)", line)
        if match:
            found[match[1]] = found.get(match[1], "") + " " + match[2]
    return found


def declared(name: str) -> dict[str, str]:
    """Parameter → type, as the header's `in:` says."""
    text = header(name)["in"].strip()
    return (
        {}
        if text == "(nothing)"
        else dict(re.findall(r"(\w+) (\w+(?:\[\])?)(?: or NULL)?(?: \([^)]*\))?(?:,|$)", text))
    )


# A parameter that holds several of the file's.
LISTS = {
    "ticks": ("job_ids", "tick_ats", "run_afters", "triggers"),
    "gaps": ("job_ids", "from_ats", "to_ats", "reasons"),
    "moves": ("job_ids", "olds", "news"),
    "rows": (),  # they follow a COPY
}


def spelled_out(function: Callable[..., object]) -> set[str]:
    """The parameters of a function, with those of a definition and of lists of rows in their places."""
    names = set(inspect.signature(function).parameters) - {"connection"}
    if "definition" in names:
        names = (names - {"definition"}) | {field.name for field in dataclasses.fields(jobs.JobDefinition)}
    for name, columns in LISTS.items():
        if name in names:
            names = (names - {name}) | set(columns)
    return names


@pytest.fixture
def database_url(module_database: str) -> str:
    return module_database


@pytest.mark.parametrize("name", FILES)
def test_every_file_has_its_function_with_the_same_parameters(name: str) -> None:
    folder, _, function_name = name.partition("/")
    function = getattr(MODULES[folder], function_name)
    parameters = spelled_out(function)
    used = set(re.findall(r"%\((\w+)\)s", statement(name)))
    assert used == set(declared(name)) == parameters


@pytest.mark.parametrize("folder", MODULES)
def test_every_function_has_its_file(folder: str) -> None:
    module = MODULES[folder]
    functions = {
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }
    composed = {name.partition(".")[2] for name in COMPOSED if name.startswith(f"{folder}.")}
    assert functions - composed == {name.partition("/")[2] for name in FILES if name.startswith(f"{folder}/")}


@pytest.mark.parametrize("name", FILES)
def test_every_file_prepares_on_a_real_server(name: str, connection: Connection) -> None:
    if name == "schema/create_ledger" or name.startswith("bulk/"):  # PREPARE does not know these; tests run them
        return
    types = declared(name)
    text = str(statement(name))
    for number, parameter in enumerate(types, 1):
        text = text.replace(f"%({parameter})s", f"${number}")
    connection.execute(
        f"PREPARE checked ({', '.join(types.values())}) AS {text}" if types else f"PREPARE checked AS {text}"
    )


@pytest.mark.parametrize("name", FILES)
def test_every_file_says_what_comes_in_and_out(name: str) -> None:
    first = (SQL / f"{name}.sql").read_text().splitlines()[0]
    assert re.match(r"-- [A-Z].*", first)
    assert {"in", "out"} <= set(header(name))
    assert "%" not in "".join(line for line in (SQL / f"{name}.sql").read_text().splitlines() if line.startswith("--"))
