"""The python executor in a real worker: endings told apart, tracebacks, what a function leaves behind."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forgeflow.service.jobs import submit_job
from forgeflow.service.requests import read_job_request
from forgeflow.store.connection import Connection, connect
from forgeflow.store.runs import RunRow
from tests.support.databases import config_for, drop_database, make_database
from tests.support.processes import NodeProcess, nodes, nothing_left_behind, processes_marked
from tests.support.waiting import wait_for
from tests.support.work import only_run, submit, wait_for_status

SHOP = """
import os, signal, subprocess, sys, threading
import forgeflow

@forgeflow.job(name="note")
def note(*, file, text="done"):
    with open(file, "a") as opened:
        opened.write(f"{text} {os.getpid()}\\n")

@forgeflow.job(name="raise")
def raise_(*, what):
    secret = "canary-7f3a"
    raise eval(what)

@forgeflow.job(name="deep")
def deep(n=3, other=None):
    other(n, deep) if other else deep(n, lambda n, d: d(n, lambda n, d: d(n, lambda n, d: 1 / 0)))

@forgeflow.job(name="endless")
def endless(n=0):
    return again(n)

def again(n):
    return endless(n)

@forgeflow.job(name="mute")
def mute():
    class Mute(Exception):
        def __str__(self):
            sys.exit("no words")
    raise Mute

@forgeflow.job(name="leave")
def leave(*, marker):
    subprocess.Popen(["sh", "-c", f"setsid sleep 60.{marker} & sleep 60.{marker}"])

@forgeflow.job(name="escape")
def escape(*, file):
    if os.fork() == 0:
        with open(file, "w") as opened:
            opened.write(str(os.getpid()))
        return
    os.wait()

@forgeflow.job
def overrun():
    threading.Event().wait()

@forgeflow.cron("0 25 * * *")
def refused():
    pass

@forgeflow.job(name="later")
async def later(*, file):
    note(file=file, text="later")
"""
LATE = """
import forgeflow

@forgeflow.job
def send(*, file):
    open(file, "w").close()
"""
Call = Callable[..., RunRow]


def start_shop(
    start: Callable[..., NodeProcess], url: str, folder: Path, text: str = SHOP, **settings: str
) -> NodeProcess:
    (folder / "shop.py").write_text(text)
    return start(url, python__modules="shop", environment={"PYTHONPATH": str(folder)}, **settings)


@pytest.fixture(scope="module")
def shop(server_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, str]]:
    """A node of this module with one worker, and its database."""
    url = make_database(server_url, template=template)
    with nothing_left_behind(), nodes() as start:
        node = start_shop(start, url, tmp_path_factory.mktemp("shop"), worker__concurrency="1")
        node.wait_for_log("node ready")
        yield node, url
    drop_database(server_url, url)


@pytest.fixture(scope="module")
def call(shop: tuple[NodeProcess, str]) -> Iterator[Call]:
    """Calls a function there by a job with one try, and gives the ended run."""
    with connect(config_for(shop[1]), "test") as connection:
        yield lambda function, fields={}, **args: _call(connection, function, args, fields)


def _call(connection: Connection, function: str, args: dict[str, Any], fields: dict[str, Any]) -> RunRow:
    body = {"name": "job", "executor": "python", "payload": {"function": function, "args": args}, "max_attempts": 1}
    job_id = submit_job(connection, read_job_request({**body, **fields}), source="api").job.id
    wait_for(lambda: only_run(connection, job_id).finished_at, why=f"the end of {function}")
    return only_run(connection, job_id)


def test_function_is_called_in_the_worker_with_its_arguments(call: Call, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    first, second = call("note", file=str(notes)), call("note", file=str(notes), text="caf\xe9 \U0001f600")
    assert (first.status, first.exit_code, first.error, first.output_bytes) == ("succeeded", None, None, 0)
    assert second.status == "succeeded"
    (one, pid), (*two, other_pid) = (line.split() for line in notes.read_text().splitlines())
    assert (one, two) == ("done", ["caf\xe9", "\U0001f600"])
    assert pid == other_pid


def test_function_that_is_decorated_wrongly_is_left_out_and_told(shop: tuple[NodeProcess, str], call: Call) -> None:
    line, *_ = (line for line in shop[0].log_text().splitlines() if "function left out" in line)
    assert "shop.refused (" in line
    number = SHOP.splitlines().index('@forgeflow.cron("0 25 * * *")') + 1
    assert f"line {number}): schedule: " in line
    assert call("refused").error_type == "not_found"


def test_asynchronous_function_is_run_to_its_end(call: Call, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    assert call("later", file=str(notes)).status == "succeeded"
    assert notes.read_text().startswith("later ")


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("ValueError('no such amount')", "ValueError: no such amount"),
        ("ValueError", "ValueError"),
        ("SystemExit(0)", "SystemExit: 0"),
        ("SystemExit('bye')", "SystemExit: bye"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("GeneratorExit", "GeneratorExit"),
        ("MemoryError", "MemoryError"),
        ("ExceptionGroup('both', [OSError(5, 'x'), TypeError()])", "ExceptionGroup: both (2 sub-exceptions)"),
        ("ValueError('a\\0b\\ud800')", "ValueError: a\ufffdb\\ud800"),
        ("ValueError('x' * 10**6)", f"ValueError: {'x' * 1000}"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("'text'", "TypeError: exceptions must derive from BaseException"),
    ],
)
def test_whatever_is_raised_is_an_ordinary_failure(call: Call, what: str, error: str) -> None:
    run = call("raise", what=what)
    assert (run.status, run.error_type, run.error, run.failures) == ("dead", "failed", error, 1)
    assert run.output_head.startswith("Traceback (most recent call last):\n") or "ExceptionGroup" in error
    assert "canary" not in run.output_head.replace('secret = "canary-7f3a"', "")
    assert "forgeflow/executors" not in run.output_head
    assert len(run.output_head) + len(run.output_tail) <= 128 * 1024


def test_traceback_leads_to_the_line(call: Call) -> None:
    run = call("deep")
    assert (run.error, run.output_head.count("shop.py")) == ("ZeroDivisionError: division by zero", 7)


def test_long_traceback_keeps_both_ends(call: Call) -> None:
    run = call("endless")
    assert run.error == "RecursionError: maximum recursion depth exceeded"
    assert len(run.output_head) + len(run.output_tail) <= 128 * 1024
    assert (run.output_head + run.output_tail).endswith("RecursionError: maximum recursion depth exceeded\n")


def test_exception_that_cannot_be_shown_is_still_a_failure(call: Call) -> None:
    assert call("mute").error == "mute.<locals>.Mute: (it cannot be shown as text)"


def test_wrong_arguments_are_a_failure(call: Call) -> None:
    assert call("note", nope=1).error == "TypeError: note() got an unexpected keyword argument 'nope'"
    assert call("note").error == "TypeError: note() missing 1 required keyword-only argument: 'file'"


def test_function_that_no_worker_has_waits_for_a_node_that_has_it(
    server_url: str, template: str, tmp_path: Path
) -> None:
    url = make_database(server_url, template=template)
    with nothing_left_behind(), nodes() as start, connect(config_for(url), "test") as connection:
        start_shop(start, url, tmp_path).wait_for_log("node ready")
        payload = {"function": "late.send", "args": {"file": str(tmp_path / "late")}}
        job_id = submit(connection, "", executor="python", payload=payload)
        wait_for_status(connection, submit(connection, "true"), "succeeded")
        run = only_run(connection, job_id)
        assert (run.status, run.attempt, run.missing_function) == ("pending", 0, "late.send")
        (tmp_path / "late.py").write_text(LATE)
        late = start(url, python__modules="late", environment={"PYTHONPATH": str(tmp_path)}, worker__id="late")
        run = wait_for_status(connection, job_id, "succeeded")
        assert (run.attempt, run.worker_id, run.missing_function) == (1, "late", None)
        late.stop()
    drop_database(server_url, url)


def test_what_a_function_leaves_behind_is_killed_before_its_end_is_told(call: Call) -> None:
    marker = f"{os.getpid()}7"
    assert call("leave", marker=marker).status == "succeeded"
    assert not processes_marked(f"60.{marker}")


def test_child_that_returns_from_a_function_is_no_second_worker(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "child"
    run = call("escape", file=str(file))
    assert (run.status, run.attempt) == ("succeeded", 1)
    assert not Path("/proc", file.read_text()).exists()


def test_function_that_overruns_is_killed_with_its_worker_and_charged(call: Call, tmp_path: Path) -> None:
    run = call("shop.overrun", {"timeout_seconds": 0.1})
    assert (run.status, run.error_type, run.failures) == ("dead", "wedged", 1)
    assert call("note", file=str(tmp_path / "notes")).status == "succeeded"


def test_node_whose_modules_cannot_be_imported_is_refused(database_url: str, tmp_path: Path) -> None:
    with nothing_left_behind(), nodes() as start:
        node = start_shop(start, database_url, tmp_path, "import no_such_module")
        assert node.wait() == 3
        assert (
            "python.modules: cannot import shop: ModuleNotFoundError: No module named 'no_such_module' "
            f"(in {tmp_path}/shop.py, line 1)" in node.log_text()
        )
