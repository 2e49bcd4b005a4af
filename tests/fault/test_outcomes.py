"""How a run ended, in one word and with its code: for each outcome a real run that ends so."""

import signal
from collections.abc import Callable
from typing import Any
from uuid import UUID

from forgeflow.service.runs import cancel_run, get_run
from forgeflow.store.connection import Connection
from tests.support.processes import NodeProcess
from tests.support.waiting import wait_for
from tests.support.work import only_run, submit, wait_for_status

# What is submitted; then outcome, status, exit code, signal, and whether it used up a try.
ENDS: dict[str, tuple[dict[str, Any], tuple[str, str, int | None, int | None, bool]]] = {
    "true": ({}, ("succeeded", "succeeded", 0, None, False)),
    "exit 3": ({}, ("failed", "dead", 3, None, True)),
    "exec sleep 60": ({"timeout_seconds": 0.3}, ("timed_out", "dead", None, signal.SIGTERM, True)),
    "kill -9 $$": ({}, ("crashed", "dead", None, signal.SIGKILL, True)),
    "kill -9 $PPID; sleep 60": ({}, ("crashed", "dead", None, None, True)),
    "no-such-command-here": ({}, ("could_not_start", "dead", 127, None, True)),
}


def is_running(connection: Connection, job_id: UUID) -> bool:
    return only_run(connection, job_id).status == "running"


def test_every_end_of_a_run_has_its_outcome_and_its_code(
    connection: Connection, start_node: Callable[..., NodeProcess]
) -> None:
    node = start_node()
    made = {command: submit(connection, command, max_attempts=1, **fields) for command, (fields, _) in ENDS.items()}
    for command, (_, expected) in ENDS.items():
        run = wait_for_status(connection, made[command], expected[1])
        ended = (run.outcome, run.status, run.exit_code, run.signal, bool(run.failures))
        assert ended == expected, command

    unwanted = submit(connection, "exec sleep 60", max_attempts=1)
    wait_for(lambda: is_running(connection, unwanted), why="it has begun")
    assert cancel_run(connection, only_run(connection, unwanted).id).is_asked
    run = wait_for_status(connection, unwanted, "cancelled")
    assert (run.outcome, run.signal, run.failures) == ("cancelled", signal.SIGTERM, 0)
    assert run.error == "stopped: somebody asked for it"

    stopped = submit(connection, "sleep 60", max_attempts=1)
    wait_for(lambda: is_running(connection, stopped), why="it has begun")
    assert only_run(connection, stopped).outcome is None
    node.signal(signal.SIGQUIT)
    node.wait()
    run = only_run(connection, stopped)
    (attempt,) = get_run(connection, run.id).attempts
    assert (attempt.outcome, attempt.charged, attempt.signal) == ("interrupted", False, signal.SIGTERM)
    assert (run.status, run.outcome, run.failures) == ("pending", None, 0)

    lost = start_node()
    wait_for(lambda: is_running(connection, stopped), why="it has begun again")
    lost.signal(signal.SIGKILL)
    run = wait_for_status(connection, stopped, "dead")
    assert (run.outcome, run.failures, run.error) == ("lost", 1, "its node's master died")
