"""The python executor in a real worker: endings told apart, tracebacks, what a function leaves behind."""

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from forgeflow.service.jobs import submit_job
from forgeflow.service.requests import read_job_request
from forgeflow.service.runs import cancel_run
from forgeflow.store.connection import Connection, connect
from forgeflow.store.runs import RunRow
from tests.support.databases import config_for, drop_database, make_database
from tests.support.hostile import hostile_server
from tests.support.processes import NodeProcess, nodes, nothing_left_behind, processes_marked
from tests.support.waiting import wait_for
from tests.support.work import only_run, submit, wait_for_status

SHOP = """
import json, os, signal, subprocess, sys, threading, time
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

@forgeflow.job(name="told")
def told(ctx, *, file):
    ctx.log.info("Begun", rows=3)
    ctx.log.warn("Odd", {"what": {1, 2}, "run": ctx.run_id})
    ctx.progress(0.5, "half")
    with open(file, "w") as opened:
        json.dump([str(ctx.run_id), ctx.cron_name, ctx.scheduled_time.isoformat(), ctx.timezone, ctx.is_catch_up,
                   ctx.attempt, ctx.max_attempts, ctx.delay().total_seconds() >= 0, ctx.auth.is_authenticated,
                   ctx.env("PATH") == os.environ["PATH"], ctx.env("NOPE")], opened)

@forgeflow.job(name="stored")
async def stored(ctx, *, number):
    with ctx.db().connection() as connection:
        connection.execute("INSERT INTO public.numbers VALUES (%s, current_setting('search_path'))", [number])

@forgeflow.job(name="asked")
def asked(ctx, *, url):
    ctx.log.info(ctx.http().get(url).text)

@forgeflow.job(name="again_later")
def again_later(ctx, *, after=None):
    if ctx.attempt == 1 and not os.path.exists("/nonexistent") and not seen:
        seen.append(1)
        raise forgeflow.Retry("the shop is closed", after=after)

seen = []

@forgeflow.job(name="give_up")
def give_up():
    raise forgeflow.Cancel("nobody wants it any more")

@forgeflow.job(name="listen")
def listen(ctx, *, file):
    open(file, "w").close()
    while not ctx.should_stop():
        time.sleep(0.01)

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
    assert call("note", file=os.devnull).status == "succeeded"


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


# What a function is told, and what it asks for


def test_function_is_told_of_its_run_and_says_what_it_does(
    shop: tuple[NodeProcess, str], call: Call, tmp_path: Path
) -> None:
    run = call("told", {"timezone": "Asia/Tokyo", "max_attempts": 4}, file=str(tmp_path / "told"))
    assert run.status == "succeeded"
    due = run.scheduled_for.astimezone(UTC).isoformat()
    told = [str(run.id), "told", due, "Asia/Tokyo", False, 1, 4, True, False, True, None]
    assert json.loads((tmp_path / "told").read_text()) == told
    first, second = run.output_head.splitlines()
    assert first == 'info Begun {"rows": 3}'
    assert second == f'warn Odd {{"what": "{{1, 2}}", "run": "{run.id}"}}'
    entries = [json.loads(line) for line in shop[0].log_text().splitlines() if str(run.id) in line and "Begun" in line]
    (entry,) = entries
    assert (entry["level"], entry["cron_name"], entry["data"]) == ("info", "told", {"rows": 3})


def test_function_has_a_pool_on_the_tables_of_its_user(shop: tuple[NodeProcess, str], call: Call) -> None:
    with connect(config_for(shop[1]), "test") as connection:
        connection.execute("CREATE TABLE public.numbers (number int, path text)")
        for number in (1, 2):
            assert call("stored", number=number).status == "succeeded"
        found = connection.execute("SELECT * FROM public.numbers ORDER BY number").fetchall()
        assert found == [(1, '"$user", public'), (2, '"$user", public')]
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'forgeflow:function'"
        assert connection.execute(sessions).fetchone() == (1,)


def test_function_has_a_client_that_keeps_its_connection(call: Call) -> None:
    with hostile_server() as server:
        for _ in range(2):
            assert call("asked", url=server.url("/ok")).output_head == "info fine\n"
        assert server.connections == 1


def test_function_that_asks_for_it_is_called_again_and_not_charged(call: Call) -> None:
    run = call("again_later", after=0.01)
    assert (run.status, run.attempt, run.failures) == ("succeeded", 2, 0)


def test_function_gives_its_run_up_for_good(call: Call) -> None:
    run = call("give_up", {"max_attempts": 5})
    assert (run.status, run.outcome, run.attempt, run.failures) == ("cancelled", "cancelled", 1, 0)
    assert run.error == "Cancel: nobody wants it any more"


def test_function_hears_that_it_is_cancelled(shop: tuple[NodeProcess, str], tmp_path: Path) -> None:
    with connect(config_for(shop[1]), "test") as connection:
        payload = {"function": "listen", "args": {"file": str(tmp_path / "begun")}}
        job_id = submit(connection, "", executor="python", payload=payload)
        wait_for((tmp_path / "begun").exists)
        assert cancel_run(connection, only_run(connection, job_id).id).is_asked
        run = wait_for_status(connection, job_id, "cancelled")
        assert (run.error, run.failures) == ("stopped: somebody asked for it", 0)


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
