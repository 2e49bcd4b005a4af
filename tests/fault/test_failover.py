"""The primary is lost and its standby promoted while nodes work: they follow, by the hosts in `database.url`."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from forgeflow.errors import StoreError
from forgeflow.service.lifecycle import trigger_job
from forgeflow.store import runs
from forgeflow.store.connection import Connection, connect
from tests.fault.test_leadership import assert_each_second_once, fired_seconds
from tests.support.databases import config_for
from tests.support.pair import Pair
from tests.support.processes import NodeProcess, nodes, nothing_left_behind
from tests.support.waiting import wait_for
from tests.support.web import HELLO, WebServer, web_server
from tests.support.work import only_run, submit, wait_for_status

# What is promised from the promotion on.
BACK_SECONDS = 10.0


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair() as opened:
        yield opened


@pytest.fixture
def start_on(pair: Pair) -> Iterator[Callable[..., NodeProcess]]:
    with nothing_left_behind(ignore={pair.primary.pid, pair.standby.pid}), nodes() as start:
        yield lambda **settings: start(pair.url, **settings)


class Submitter:
    """Triggers one job over and over, as a client with the same URL does; keeps what was acknowledged.

    No faster than the node executes, so that what is waited for in the end is no backlog.
    """

    def __init__(self, url: str, job_id: UUID) -> None:
        self._config = config_for(url)
        self._job_id = job_id
        self.acknowledged: list[UUID] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> list[UUID]:
        self._thread.start()
        return self.acknowledged

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._is_over.is_set():
            try:
                with connect(self._config, "test") as connection:
                    while not self._is_over.wait(0.02):
                        self.acknowledged.append(trigger_job(connection, self._job_id).id)
            except StoreError:
                self._is_over.wait(0.02)


def test_promoted_standby_is_followed_and_nothing_acknowledged_is_lost(
    pair: Pair, start_on: Callable[..., NodeProcess]
) -> None:
    """The primary's machine is gone under load. A job that runs meanwhile, under a lease that lasts, runs on."""
    node = start_on(worker__lease_duration="8s")
    node.wait_for_log("leadership won")
    with connect(config_for(pair.url), "test") as before:
        load = submit(before, "true", name="load", paused=True)
        submit(before, "true", name="cron", cron_expr="* * * * * *")
        long = submit(before, "sleep 5; echo unharmed", name="long")
        wait_for_status(before, long, "running")
        wait_for(lambda: fired_seconds(before))
    with Submitter(pair.url, load) as acknowledged:
        wait_for(lambda: len(acknowledged) > 10)
        pair.kill_primary()
        pair.promote()
        promoted_at = time.monotonic()
        known = len(acknowledged)
        node.wait_for_log("courier has the database again", timeout_seconds=BACK_SECONDS)
        node.wait_for_log("leadership won", count=2, timeout_seconds=BACK_SECONDS)
        wait_for(lambda: len(acknowledged) > known)
    with connect(config_for(pair.url), "test") as connection:
        last = acknowledged[-1]
        wait_for(lambda: has_succeeded(connection, last), timeout_seconds=BACK_SECONDS)
        assert time.monotonic() - promoted_at < BACK_SECONDS
        wait_for(lambda: all(has_succeeded(connection, run_id) for run_id in acknowledged), why="no run is lost")
        run = wait_for_status(connection, long, "succeeded")
        assert (run.attempt, run.output_head) == (1, "unharmed\n")
        fired = len(fired_seconds(connection))
        wait_for(lambda: len(fired_seconds(connection)) > fired)
        assert_each_second_once(connection)


def has_succeeded(connection: Connection, run_id: UUID) -> bool:
    run = runs.get_run(connection, run_id=run_id)
    assert run, f"run {run_id} was acknowledged, and is lost"
    return run.status == "succeeded"


def test_primary_that_hangs_is_left_for_the_promoted_standby(pair: Pair, start_on: Callable[..., NodeProcess]) -> None:
    """It takes connections and never answers, as a machine that hangs, and is the first host of the URL.

    So does what idle workers hold, and what the web process has in its pool.
    """
    node = start_on(database__connect_timeout="4s")
    node.wait_for_log("leadership won")
    with web_server(pair.url, DATABASE_CONNECT_TIMEOUT="4s") as web:
        assert web.get("/readyz").status == 200
        for pid in pair.processes(pair.primary):
            os.kill(pid, signal.SIGSTOP)
        try:
            pair.promote()
            promoted_at = time.monotonic()
            node.wait_for_log(
                "worker lost its connection", count=2, timeout_seconds=BACK_SECONDS
            )  # before there is work
            job_id = UUID(wait_for(lambda: accepted(web), timeout_seconds=BACK_SECONDS))
            with connect(config_for(pair.standby.url), "test") as connection:
                wait_for(lambda: only_run(connection, job_id).status == "succeeded", timeout_seconds=BACK_SECONDS)
            assert time.monotonic() - promoted_at < BACK_SECONDS
        finally:
            pair.kill_primary()


def accepted(web: WebServer) -> str:
    """The id of a new job; empty when we are asked to come again."""
    answer = web.post("/api/jobs", HELLO)
    assert answer.status in (201, 503), answer.text
    return str(answer.json()["id"]) if answer.status == 201 else ""
