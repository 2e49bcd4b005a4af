"""Notifications are a matter of speed: when they get lost, or are refused, everything still happens, a little later."""

import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from forgeflow.embedded import start_server, stop_server
from forgeflow.service.bulk import submit_runs
from forgeflow.service.lifecycle import cancel_job, trigger_job
from forgeflow.store import runs
from forgeflow.store.connection import Connection, connect
from forgeflow.store.schema import migrate
from tests.support.databases import FAST, config_for
from tests.support.processes import NodeProcess, nodes, nothing_left_behind
from tests.support.waiting import wait_for
from tests.support.work import submit, wait_for_status

StartNode = Callable[..., NodeProcess]


def seconds_to_start(connection: Connection) -> float:
    """Of a job that is due now, from its submission."""
    run = wait_for_status(connection, submit(connection, "true"), "succeeded")
    assert run.started_at
    return (run.started_at - run.scheduled_for).total_seconds()


def test_lost_notifications_cost_no_more_than_a_heartbeat(start_node: StartNode, connection: Connection) -> None:
    """They get lost where they are sent, and then the session that listens is ended, too."""
    # Found before PostgreSQL's own, by the search path.
    connection.execute("CREATE FUNCTION pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT NULL::void'")
    node = start_node()
    node.wait_for_log("leadership won")
    for _ in range(2):
        for _ in range(3):
            assert seconds_to_start(connection) < 0.6 + 1.0
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'forgeflow:courier%'"
        )


@pytest.fixture
def small_url() -> Iterator[str]:
    """A server whose queue of notifications is as small as it can be."""
    state = Path(tempfile.mkdtemp(prefix="forgeflow-notify-"))
    state.chmod(0o755)
    server = start_server(state, settings={**FAST, "max_notify_queue_pages": "64"})
    try:
        config = config_for(server.url)
        with connect(config, "test") as connection:
            migrate(connection, config)
        with nothing_left_behind(ignore={server.pid}):
            yield server.url
    finally:
        stop_server(server)
        shutil.rmtree(state, ignore_errors=True)


def fill_notification_queue(url: str) -> None:
    """To the last byte: with long words first, then with short ones."""
    with psycopg.connect(url, autocommit=True) as connection:
        for word in ("x" * 7000, ""):
            with pytest.raises(psycopg.errors.ProgramLimitExceeded):
                notify_for_ever(connection, word)


def notify_for_ever(connection: psycopg.Connection, word: str) -> None:
    for number in itertools.count():
        connection.execute("SELECT pg_notify('other', %s)", [f"{number}{word}"])


def test_full_queue_of_notifications_stops_nothing(small_url: str) -> None:
    """A listener of somebody else sits in a transaction; until it ends, PostgreSQL refuses every NOTIFY.

    With a heartbeat of 10 s only the polling can be what finds the runs.
    """
    settings = {"worker__lease_duration": "30s", "worker__heartbeat_interval": "10s", "worker__poll_interval": "300ms"}
    with nodes() as start, psycopg.connect(small_url) as stuck, connect(config_for(small_url), "test") as connection:
        node = start(small_url, **settings)
        node.wait_for_log("leadership won")
        stuck.execute("LISTEN other")
        stuck.commit()
        stuck.execute("SELECT 1")
        fill_notification_queue(small_url)
        os.kill(node.child("courier"), signal.SIGKILL)
        node.wait_for_log("child died")
        assert seconds_to_start(connection) < 0.3 + 1.0
        cron = submit(connection, "true", cron_expr="* * * * * *")
        wait_for(lambda: runs.list_runs(connection, job_id=cron, status="succeeded", before=None, max_rows=2)[1:])
        long = submit(connection, "sleep 60")
        wait_for_status(connection, long, "running")
        cancel_job(connection, long)
        wait_for_status(connection, long, "cancelled", timeout_seconds=5)
        assert node.stop() == 0
        assert node.log_text().count("child died") == 1


def test_full_queue_of_notifications_undoes_no_submission(small_url: str) -> None:
    with psycopg.connect(small_url) as stuck, connect(config_for(small_url), "test") as connection:
        stuck.execute("LISTEN other")
        stuck.commit()
        stuck.execute("SELECT 1")
        fill_notification_queue(small_url)
        for number in range(1, 4):
            job_id = submit(connection, "true")
            trigger_job(connection, job_id)
            submit_runs(connection, job_id, [None] * 3)
            assert connection.execute("SELECT count(*) FROM queue").fetchone() == (5 * number,)
