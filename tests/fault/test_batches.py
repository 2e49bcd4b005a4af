"""Workers that hold more than one run: who is charged, what goes back, and when results are out."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb

from forgeflow.config import Config
from forgeflow.service.jobs import submit_job
from forgeflow.service.requests import read_job_request
from forgeflow.store import runs
from forgeflow.store.connection import Connection, connect
from forgeflow.store.runs import RunRow
from tests.support.processes import NodeProcess
from tests.support.waiting import wait_for
from tests.support.wire import Mode, Wire
from tests.support.work import refuse, submit, wait_for_status

StartNode = Callable[..., NodeProcess]
Payload = dict[str, Any] | tuple[UUID, dict[str, Any]]

FUNCTIONS = """
import os, signal, time
import forgeflow

@forgeflow.job(name="note")
def note(*, file, text, seconds=0.0):
    time.sleep(seconds)
    with open(file, "a") as opened:
        opened.write(text + "\\n")

@forgeflow.job(name="rest")
def rest(*, until):
    while not os.path.exists(until):
        time.sleep(0.01)

@forgeflow.job(name="spin")
def spin(*, until):
    while not os.path.exists(until):
        sum(range(100))

@forgeflow.job(name="deafen")
def deafen():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})

@forgeflow.job(name="exit")
def exit_(*, code):
    os._exit(code)

@forgeflow.job(name="die")
def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""


# So rare that nothing is found by a beat that should have been told of, or looked for, before.
RARE_BEATS = {"worker__lease_duration": "60s", "worker__heartbeat_interval": "20s"}
SOON = 10.0
_WARM_ROUNDS, _WARM_RUNS = 4, 20


class Scene:
    """One node, and batches for its workers: runs that are due one after the other, committed at once."""

    def __init__(self, start: StartNode, connection: Connection, folder: Path) -> None:
        folder.chmod(0o777)
        (folder / "work.py").write_text(FUNCTIONS)
        self._start = start
        self.connection = connection
        self.notes, self.signal = folder / "notes", folder / "go on"
        self._folder = folder

    def start(self, **settings: Any) -> NodeProcess:
        """Its workers know that runs can be short."""
        settings = {"worker__concurrency": "1", "worker__claim_batch": "100", **settings}
        node = self._start(python__modules="work", environment={"PYTHONPATH": str(self._folder)}, **settings)
        node.wait_for_log("node ready")
        for _ in range(_WARM_ROUNDS):
            self.wait_for(self.run(*[self.note("warm")] * _WARM_RUNS), "succeeded")
        self.notes.unlink()
        return node

    def job(self, **fields: Any) -> UUID:
        body = {"name": "job", "executor": "python", "payload": {"function": "note", "args": {}}, "paused": True}
        return submit_job(self.connection, read_job_request({**body, **fields}), source="api").job.id

    def note(self, text: str, seconds: float = 0.0) -> dict[str, Any]:
        return {"function": "note", "args": {"file": str(self.notes), "text": text, "seconds": seconds}}

    def long(self, function: str = "rest") -> dict[str, Any]:
        return {"function": function, "args": {"until": str(self.signal)}}

    def run(
        self,
        *payloads: dict[str, Any] | tuple[UUID, dict[str, Any]],
        due: str = "0",
        is_told: bool = True,
        **fields: Any,
    ) -> list[UUID]:
        """A run for each payload, of one job or of the one that is named with it."""
        job_id = self.job(**fields)
        pairs = [each if isinstance(each, tuple) else (job_id, each) for each in payloads]
        rows = self.connection.execute(
            "INSERT INTO queue"
            " (job_id, job_version, priority, scheduled_for, run_after, trigger, max_attempts, payload)"
            " SELECT j.id, 1, 5, now(), now() + %s::interval + n * interval '1 us', 'manual', j.max_attempts, r.payload"
            "   FROM unnest(%s::uuid[], %s::jsonb[]) WITH ORDINALITY AS r(job_id, payload, n)"
            "   JOIN jobs AS j ON j.id = r.job_id"
            "  ORDER BY n RETURNING id",
            [due, [job for job, _ in pairs], [Jsonb(payload) for _, payload in pairs]],
        ).fetchall()
        if is_told:
            runs.announce_due(self.connection)
        return [row[0] for row in rows]

    def claims(self) -> int:
        """How often the workers' sessions have begun a statement: seen by when they did last."""
        row = self.connection.execute(
            "SELECT coalesce(sum(extract(epoch FROM query_start)), 0) FROM pg_stat_activity"
            " WHERE application_name LIKE 'forgeflow:worker%'"
        ).fetchone()
        assert row
        return int(row[0] * 1000)

    def look(self, run_id: UUID) -> RunRow:
        run = runs.get_run(self.connection, run_id=run_id)
        assert run
        return run

    def wait_for(self, run_ids: list[UUID], status: str, *, timeout_seconds: float = 20.0) -> None:
        wait_for(
            lambda: {self.look(each).status for each in run_ids} == {status},
            timeout_seconds=timeout_seconds,
            why=f"runs {status}",
        )

    def noted(self) -> list[str]:
        return self.notes.read_text().split() if self.notes.exists() else []


@pytest.fixture
def scene(start_node: StartNode, connection: Connection, tmp_path: Path) -> Scene:
    return Scene(start_node, connection, tmp_path)


@contextmanager
def kept_in_hand(config: Config, job_id: UUID) -> Iterator[None]:
    """No run of this job can be handed back meanwhile, and no turn that tries to can report anything."""
    with connect(config, "test lock") as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT FROM jobs WHERE id = %s FOR NO KEY UPDATE", [job_id])
        yield


def test_killed_worker_is_charged_for_the_run_that_was_going_on_alone(scene: Scene) -> None:
    scene.start()
    before = [scene.note(text) for text in ("a", "b")]
    after = [scene.note(text) for text in ("c", "d")]
    *others, last = scene.run(*before, {"function": "die", "args": {}}, *after, max_attempts=1)
    killer = others.pop(2)
    scene.wait_for([*others, last], "succeeded")
    scene.wait_for([killer], "dead")
    assert (scene.look(killer).failures, scene.look(killer).error_type) == (1, "crashed")
    assert {scene.look(each).failures for each in (*others, last)} == {0}
    assert set(scene.noted()) == {"a", "b", "c", "d"}


@pytest.mark.parametrize("kind", ["rest", "spin", "command"])
def test_long_run_keeps_neither_results_nor_runs(scene: Scene, kind: str) -> None:
    """What ended before it is out while it goes on; what was to come after it is executed by others, uncharged."""
    scene.start(worker__concurrency="2", **RARE_BEATS)
    command = submit(scene.connection, "true", paused=True)
    shell_payload = {"command": f"while ! test -e '{scene.signal}'; do sleep 0.02; done"}
    long_one = (command, shell_payload) if kind == "command" else scene.long(kind)
    made = scene.run(scene.note("0"), long_one, *[scene.note(str(number)) for number in range(1, 4)])
    long_run = made.pop(1)
    scene.wait_for(made, "succeeded", timeout_seconds=SOON)
    assert scene.look(long_run).status == "running"
    assert sorted(scene.noted()) == ["0", "1", "2", "3"]
    assert {scene.look(each).failures for each in made} == {0}
    scene.signal.touch()
    scene.wait_for([long_run], "succeeded")


def test_log_has_a_line_for_ten_runs_a_second_and_for_every_long_one(scene: Scene) -> None:
    node = scene.start()

    def lines() -> list[dict[str, Any]]:
        return [json.loads(each) for each in node.log_text().splitlines() if each.startswith("{")]

    def told(*events: str) -> set[str]:
        return {line["run_id"] for line in lines() if line["event"] in events}

    *short, long_run = scene.run(*[scene.note(str(number)) for number in range(60)], scene.long())
    # It may be among the first ten of a second, and be told at once.
    wait_for(lambda: str(long_run) in told("run goes on", "run started"))
    scene.signal.touch()
    scene.wait_for([long_run], "succeeded")
    total = _WARM_ROUNDS * _WARM_RUNS + len(short) + 1

    def counted() -> int:
        return sum(line["runs"] for line in lines() if line["event"] == "short runs succeeded")

    wait_for(lambda: len(told("run ended")) + counted() == total, why="a line or a number for each")
    assert str(long_run) in told("run ended")
    assert counted() > 0
    assert {line["role"] for line in lines() if line["event"] == "run goes on"} <= {"worker"}


def test_worker_looks_at_the_whole_queue_before_it_goes_to_sleep(scene: Scene) -> None:
    """What lies before its watermark was not announced: somebody's late commit, or a run of a dead worker."""
    scene.start(worker__claim_batch="1", **RARE_BEATS)
    (long_run,) = scene.run(scene.long())
    scene.wait_for([long_run], "running")
    early = scene.run(scene.note("early"), due="-1 hour", is_told=False)
    scene.signal.touch()
    scene.wait_for(early, "succeeded", timeout_seconds=SOON)


def test_slow_runs_of_a_batch_go_to_whoever_is_idle(scene: Scene) -> None:
    """Each is too short for the watch; together, claimed as the no-ops before them were, they would keep a worker."""
    node = scene.start(worker__concurrency="2")
    made = scene.run(*[scene.note(str(number), 0.005 * (number >= 100)) for number in range(200)])
    scene.wait_for(made, "succeeded")
    assert sorted(scene.noted(), key=int) == [str(number) for number in range(200)]
    assert "runs handed back before they began" in node.log_text()
    assert len({scene.look(each).worker_id for each in made}) == 1
    assert scene.connection.execute("SELECT count(DISTINCT child) FROM finished_runs").fetchone() == (2,)


def test_fenced_worker_begins_nothing_more_of_its_batch(wire: Wire, scene: Scene, config: Config) -> None:
    node = scene.start(database__url=wire.url)
    held = scene.job()
    victim = submit(scene.connection, "true", paused=True)
    with kept_in_hand(config, held):
        first, fenced, last = scene.run(
            scene.note("first"), (victim, {"command": "sleep 43.21"}), (held, scene.note("last"))
        )
        wait_for(lambda: scene.look(fenced).status == "running" and scene.noted() == ["first"])
        node.wait_for_log("batch could not be reported meanwhile")
        wire.set_mode(Mode.HOLE)
        node.wait_for_log('"error_type": "fenced"')
        node.wait_for_log("worker lost its connection")
        assert scene.noted() == ["first"]
    wire.cut()
    wire.set_mode(Mode.PASS)
    scene.wait_for([first, last], "succeeded")
    assert scene.noted() in (["first", "last"], ["first", "first", "last"])
    assert scene.look(fenced).failures == scene.look(last).failures == 0
    runs.request_cancel(scene.connection, job_id=victim, reason="the test is over")
    runs.announce_cancel(scene.connection)
    scene.wait_for([fenced], "cancelled")


def test_drained_worker_hands_back_what_it_has_not_begun(scene: Scene, config: Config) -> None:
    node = scene.start()
    held = scene.job()
    with kept_in_hand(config, held):
        long_run, *others = scene.run(scene.long(), *[(held, scene.note(str(number))) for number in range(5)])
        node.wait_for_log("batch could not be reported meanwhile")
        assert {scene.look(each).status for each in others} == {"running"}
        node.signal(signal.SIGTERM)
        node.wait_for_log("phase entered")
    scene.signal.touch()
    assert node.wait() == 0
    assert scene.look(long_run).status == "succeeded"
    assert {(scene.look(each).status, scene.look(each).failures) for each in others} == {("pending", 0)}
    assert scene.noted() == []


def test_cancelled_run_behind_a_long_one_is_never_begun(scene: Scene, config: Config) -> None:
    node = scene.start()
    held = scene.job()
    with kept_in_hand(config, held):
        long_run, cancelled = scene.run(scene.long(), (held, scene.note("cancelled")))
        node.wait_for_log("batch could not be reported meanwhile")
        runs.request_cancel(scene.connection, job_id=held, reason="not today")
    runs.announce_cancel(scene.connection)
    scene.signal.touch()
    scene.wait_for([long_run], "succeeded")
    scene.wait_for([cancelled], "cancelled")
    assert scene.noted() == []


def test_result_that_is_refused_costs_its_own_run_alone(scene: Scene) -> None:
    node = scene.start()
    refused_job = scene.job(max_attempts=2)
    refuse(scene.connection, f"NEW.job_id = '{refused_job}' AND NEW.status = 'succeeded'")
    *others, last = scene.run(scene.note("a"), (refused_job, scene.note("refused")), scene.note("b"), max_attempts=1)
    refused = others.pop(1)
    scene.wait_for([*others, last], "succeeded")
    scene.wait_for([refused], "dead")
    assert (scene.look(refused).failures, scene.look(refused).error_type) == (2, "refused")
    assert {scene.look(each).failures for each in (*others, last)} == {0}
    node.wait_for_log("turn refused")


def test_lost_connection_in_a_batch_loses_no_result_and_repeats_nothing(scene: Scene, config: Config) -> None:
    node = scene.start()
    held = scene.job()
    with kept_in_hand(config, held):
        first, long_run, last = scene.run(scene.note("first"), scene.long(), (held, scene.note("last")))
        node.wait_for_log("batch could not be reported meanwhile")
        scene.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'forgeflow:worker%'"
        )
    scene.signal.touch()
    scene.wait_for([first, long_run, last], "succeeded")
    assert scene.noted() == ["first", "last"]
    assert [scene.look(each).attempt for each in (first, long_run)] == [1, 1]
    assert {scene.look(each).failures for each in (first, long_run, last)} == {0}


def test_frozen_worker_costs_the_run_that_it_had_begun_alone(scene: Scene, config: Config) -> None:
    """Its master renews its lease, and kills it for its budget."""
    node = scene.start()
    held = scene.job(max_attempts=1, timeout_seconds=0.2)
    with kept_in_hand(config, held):
        first, long_run, last = scene.run(
            scene.note("first"), scene.long(), (held, scene.note("last")), timeout_seconds=0.2, max_attempts=1
        )
        wait_for(lambda: scene.noted() == ["first"])
        node.wait_for_log("batch could not be reported meanwhile")
        (worker,) = node.workers()
        os.kill(worker, signal.SIGSTOP)
        node.wait_for_log("child overran its budget")
    scene.wait_for([long_run], "dead")
    scene.wait_for([first, last], "succeeded")
    assert scene.look(long_run).error_type == "wedged"
    assert {scene.look(each).failures for each in (first, last)} == {0}
    assert scene.noted() == ["first", "last"]


@pytest.mark.parametrize("is_cut", [False, True], ids=["a lock", "a lost connection"])
def test_what_could_not_be_handed_back_at_once_is_a_little_later(scene: Scene, config: Config, is_cut: bool) -> None:
    """While the long run goes on: it may do so for hours."""
    node = scene.start(worker__concurrency="2")
    held = scene.job()
    with kept_in_hand(config, held):
        first, long_run, last, *_others = scene.run(
            scene.note("first"), scene.long(), (held, scene.note("last")), *[scene.note("other")] * 2
        )
        node.wait_for_log("batch could not be reported meanwhile")
        # What has ended waits for no lock of another job.
        scene.wait_for([first], "succeeded")
        if is_cut:
            scene.connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'forgeflow:worker%'"
            )
    scene.wait_for([last], "succeeded")
    assert scene.look(long_run).status == "running"
    scene.signal.touch()
    scene.wait_for([long_run], "succeeded")
    assert sorted(scene.noted()) == ["first", "last", "other", "other"]


def test_timeout_of_a_run_is_its_own_in_a_batch(scene: Scene) -> None:
    scene.start()
    patient = scene.job(timeout_seconds=3600)
    hung, last = scene.run(scene.long(), (patient, scene.note("last")), timeout_seconds=0.2, max_attempts=1)
    scene.wait_for([hung], "dead")
    scene.wait_for([last], "succeeded")
    assert scene.look(hung).error_type == "wedged"


def test_function_that_exits_as_a_refused_child_does_costs_a_try_and_no_node(scene: Scene) -> None:
    """78 stops a node for good, and systemd does not start it again."""
    node = scene.start()
    (exiting,) = scene.run({"function": "exit", "args": {"code": 78}}, max_attempts=1)
    scene.wait_for([exiting], "dead")
    scene.wait_for(scene.run(scene.note("after")), "succeeded")
    assert node.process.poll() is None


def test_signals_that_a_function_ignores_or_blocks_reach_the_commands_after_it(scene: Scene) -> None:
    scene.start()
    scene.wait_for(scene.run({"function": "deafen", "args": {}}), "succeeded")
    connection = scene.connection
    assert wait_for_status(connection, submit(connection, "echo ran"), "succeeded").output_head == "ran\n"
    command = "trap 'echo heard; exit 3' TERM; sleep 60 & wait"
    run = wait_for_status(connection, submit(connection, command, timeout_seconds=0.3, max_attempts=1), "dead")
    assert (run.error_type, run.output_head) == ("timed_out", "heard\n")


def test_run_that_was_locked_for_a_moment_does_not_wait_for_a_beat(scene: Scene, config: Config) -> None:
    """The word came while somebody held the row, and nobody tells that it is free."""
    node = scene.start(**RARE_BEATS)
    (run_id,) = scene.run(scene.note("late"), is_told=False)
    with connect(config, "test lock") as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT FROM queue WHERE id = %s FOR NO KEY UPDATE", [run_id])
        claims = scene.claims()
        runs.announce_due(scene.connection)
        wait_for(lambda: scene.claims() > claims, why="a claim that found nothing")
        holder.execute("ROLLBACK")
    scene.wait_for([run_id], "succeeded", timeout_seconds=SOON)
    assert node.process.poll() is None


def test_thousands_of_cancels_are_more_than_a_message_holds(scene: Scene) -> None:
    node = scene.start()
    job_id = scene.job()
    scene.connection.execute(
        "INSERT INTO queue (job_id, job_version, priority, scheduled_for, run_after, trigger, max_attempts, attempt,"
        " boot_id, child, started_at, cancel_requested_at)"
        " SELECT %s, 1, 5, now(), now(), 'manual', 3, 1, boot_id, 1, now(), now() FROM nodes, generate_series(1, 1500)",
        [job_id],
    )
    runs.announce_cancel(scene.connection)
    scene.wait_for(scene.run(scene.note("after")), "succeeded")
    assert node.process.poll() is None
    assert "child died" not in node.log_text()
