"""The database's clock is set while nodes work.

The server of the tests cannot have its clock set for it alone; but ForgeFlow's statements find `clock_timestamp` and
`now` by the search path, where its own schema comes first, so a test can put others there.
"""

from collections.abc import Callable

from forgeflow.store.connection import Connection
from tests.support.processes import NodeProcess, kill_tree
from tests.support.waiting import wait_for
from tests.support.work import only_run, submit, wait_for_status

StartNode = Callable[..., NodeProcess]


def set_clock(connection: Connection, step: str) -> None:
    """The clock of all statements but column defaults, off by that much from the true one."""
    for name in ("clock_timestamp", "now"):
        connection.execute(
            f"CREATE OR REPLACE FUNCTION {name}() RETURNS timestamptz LANGUAGE sql VOLATILE AS"
            f" $$ SELECT pg_catalog.{name}() + interval '{step}' $$"
        )


def test_clock_set_ahead_takes_no_run_from_a_living_node(start_node: StartNode, connection: Connection) -> None:
    """Every lease has passed at once; but a run changes hands only when its node does not renew it."""
    set_clock(connection, "0")
    busy, other = start_node(), start_node()
    for node in (busy, other):
        node.wait_for_log("node ready")
    job_id = submit(connection, "sleep 4; echo unharmed")
    wait_for_status(connection, job_id, "running")
    for step in ("60 s", "120 s"):
        said = other.log_text().count("clock was set")
        set_clock(connection, step)
        other.wait_for_log("clock was set", count=said + 1)
    run = wait_for_status(connection, job_id, "succeeded")
    assert (run.attempt, run.output_head) == (1, "unharmed\n")


def test_node_that_dies_while_the_clock_is_set_back_loses_its_runs_in_time(
    start_node: StartNode, connection: Connection
) -> None:
    """Its lease has an hour to go by the database's clock; those who watch it know better."""
    set_clock(connection, "0")
    doomed = start_node()
    doomed.wait_for_log("node ready")
    job_id = submit(connection, "[ $FORGEFLOW_ATTEMPT = 1 ] && sleep 100; echo done")
    wait_for_status(connection, job_id, "running")
    living = start_node()
    living.wait_for_log("node ready")
    wait_for(lambda: connection.execute("SELECT count(*) FROM workers").fetchone() == (4,))
    kill_tree(doomed.pid)
    doomed.wait()
    set_clock(connection, "-1 h")
    living.wait_for_log("lease is ended", timeout_seconds=10)
    wait_for(lambda: only_run(connection, job_id).attempt > 1)
    wait_for_status(connection, job_id, "succeeded")
    assert living.log_text().count("lease is ended") == 1
