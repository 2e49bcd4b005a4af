"""The life of a job, over the scheduler's passes."""

import random
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from forgeflow.config import Config
from forgeflow.errors import ForgeError, IdempotencyConflict, InvalidInput
from forgeflow.scheduler.ticks import TickPasses
from forgeflow.service.explain import explain_tick
from forgeflow.service.jobs import get_job, submit_job
from forgeflow.service.lifecycle import (
    cancel_job,
    edit_job,
    pause_job,
    resume_job,
    skip_next,
    trigger_job,
)
from forgeflow.service.requests import read_job_request, read_pause_request
from forgeflow.store.connection import Connection, connect
from forgeflow.store.jobs import JobRow
from tests.support.scenario import claim, database_now, make_job, make_worker
from tests.support.sessions import ORDERS, Act, play
from tests.support.waiting import wait_for

SECOND = timedelta(seconds=1)
MINUTELY = {"name": "job", "executor": "shell", "payload": {"command": "true"}, "cron_expr": "* * * * *"}


def submit(connection: Connection, **fields: Any) -> UUID:
    return submit_job(connection, read_job_request({**MINUTELY, **fields}), source="api").job.id


def run_pass(connection: Connection, config: Config) -> bool:
    TickPasses(connection, config, 1).run_pass()
    return True


def ticks_of(connection: Connection, job_id: UUID) -> list[datetime]:
    rows = connection.execute("SELECT tick_at FROM runs WHERE job_id = %s ORDER BY tick_at", [job_id]).fetchall()
    return [tick for (tick,) in rows]


def clock(connection: Connection, job_id: UUID) -> datetime | None:
    row = connection.execute("SELECT next_run_at FROM jobs WHERE id = %s", [job_id]).fetchone()
    assert row
    return row[0]  # type: ignore[no-any-return]


def age(connection: Connection, job_id: UUID, **span: float) -> None:
    """Let all that the job knows of time lie further back, as if so long had passed."""
    by = timedelta(**span)
    connection.execute(
        "UPDATE jobs SET next_run_at = next_run_at - %(by)s, paused_until = paused_until - %(by)s,"
        " created_at = created_at - %(by)s WHERE id = %(id)s",
        {"by": by, "id": job_id},
    )
    connection.execute(
        "UPDATE tick_gaps SET from_at = from_at - %(by)s, to_at = to_at - %(by)s WHERE job_id = %(id)s",
        {"by": by, "id": job_id},
    )


def until(instant: datetime, reason: str | None = None) -> Any:
    return read_pause_request({"until": instant.isoformat(), "reason": reason})


def test_pause_with_an_end_resumes_at_that_end_and_owes_nothing_before_it(
    config: Config, connection: Connection
) -> None:
    job_id = submit(connection, cron_expr="* * * * * *", catch_up="all", catch_up_limit=1000)
    end = database_now(connection) + timedelta(seconds=2.5)
    paused = pause_job(connection, job_id, until(end, "moving house"))
    assert (paused.status, paused.paused_until, paused.pause_reason) == ("paused", end, "moving house")
    assert paused.next_run_at is None

    def is_resumed() -> JobRow | None:
        run_pass(connection, config)
        job = get_job(connection, job_id)
        return job if job.status == "active" else None

    resumed = wait_for(is_resumed, why="the leader ends the pause")
    assert resumed
    assert (resumed.paused_until, resumed.pause_reason) == (None, None)
    assert database_now(connection) >= end
    wait_for(lambda: run_pass(connection, config) and ticks_of(connection, job_id), why="a tick")
    assert end <= ticks_of(connection, job_id)[0] < end + SECOND


def test_ticks_after_the_end_of_a_pause_go_by_catch_up(config: Config, connection: Connection) -> None:
    """Nobody led when the pause ended; what was missed since then is missed like anything else."""
    job_id = submit(connection, cron_expr="0 * * * *", catch_up="all", catch_up_limit=2)
    pause_job(connection, job_id, until(database_now(connection) + timedelta(hours=1)))
    age(connection, job_id, hours=10)
    run_pass(connection, config)
    caught_up = ticks_of(connection, job_id)
    now = database_now(connection)
    assert 2 <= len(caught_up) <= 3, "one more may be just on time"
    assert caught_up[0] > now - timedelta(hours=4)
    following = clock(connection, job_id)
    assert following
    assert following > now


def test_end_of_a_pause_that_is_a_tick_runs(config: Config, connection: Connection) -> None:
    job_id = submit(connection, cron_expr="0 0 * * *", catch_up="all")
    midnight = database_now(connection).replace(hour=0, minute=0, second=0, microsecond=0)
    pause_job(connection, job_id, until(midnight + timedelta(days=2)))
    age(connection, job_id, days=2)
    run_pass(connection, config)
    assert ticks_of(connection, job_id) == [midnight]


def test_change_after_the_end_of_a_pause_finds_the_job_active(config: Config, connection: Connection) -> None:
    """Nobody led when it ended: what is asked now is not of a paused job, and an edit fires nothing of before."""
    edited, resumed = (submit(connection, cron_expr="0 * * * *", catch_up="all") for _ in range(2))
    for job_id in (edited, resumed):
        pause_job(connection, job_id, until(database_now(connection) + timedelta(hours=1)))
        age(connection, job_id, hours=5)
    now = database_now(connection)
    after = edit_job(connection, edited, {"cron_expr": "*/30 * * * *"})
    assert after.status == "active"
    assert after.next_run_at
    assert after.next_run_at > now
    run_pass(connection, config)
    assert ticks_of(connection, edited) == []
    assert resume_job(connection, resumed).status == "active"
    run_pass(connection, config)
    assert len(ticks_of(connection, resumed)) >= 3, "what was missed since the end goes by catch_up"


def test_second_pause_replaces_end_and_reason(connection: Connection) -> None:
    job_id = submit(connection)
    now = database_now(connection)
    pause_job(connection, job_id, until(now + timedelta(hours=1), "one"))
    again = pause_job(connection, job_id, until(now + timedelta(hours=2), "two"))
    assert (again.paused_until, again.pause_reason) == (now + timedelta(hours=2), "two")
    assert clock(connection, job_id) == now + timedelta(hours=2)
    plain = pause_job(connection, job_id)
    assert (plain.status, plain.paused_until, plain.pause_reason) == ("paused", None, None)
    assert clock(connection, job_id) is None
    assert pause_job(connection, job_id).version == plain.version
    gaps = connection.execute("SELECT count(*) FROM tick_gaps WHERE job_id = %s", [job_id]).fetchone()
    assert gaps == (1,)


def test_resume_before_the_end_is_at_once(connection: Connection) -> None:
    job_id = submit(connection)
    now = database_now(connection)
    pause_job(connection, job_id, until(now + timedelta(days=1)))
    resumed = resume_job(connection, job_id)
    assert (resumed.status, resumed.paused_until) == ("active", None)
    assert resumed.next_run_at
    assert now < resumed.next_run_at <= now + timedelta(seconds=61)


def test_edit_of_the_schedule_recomputes_and_fires_nothing(config: Config, connection: Connection) -> None:
    job_id = submit(connection, catch_up="all")
    age(connection, job_id, minutes=5)
    edited = edit_job(connection, job_id, {"cron_expr": "0 0 * * *", "timezone": "Asia/Tokyo"})
    assert edited.next_run_at
    assert edited.next_run_at.hour == 15
    assert edited.next_run_at > database_now(connection)
    run_pass(connection, config)
    assert ticks_of(connection, job_id) == []


def test_edit_of_anything_else_leaves_the_clock_alone(config: Config, connection: Connection) -> None:
    job_id = submit(connection, catch_up="all", catch_up_limit=3)
    age(connection, job_id, minutes=50)
    owed = clock(connection, job_id)
    edited = edit_job(connection, job_id, {"priority": 1, "description": "new", "payload": {"command": "false"}})
    assert (edited.priority, edited.next_run_at, edited.version) == (1, owed, 2)
    run_pass(connection, config)
    assert len(ticks_of(connection, job_id)) >= 3, "what was owed is owed"


def test_edit_of_a_paused_job_keeps_it_paused(config: Config, connection: Connection) -> None:
    job_id, other = submit(connection), submit(connection)
    end = database_now(connection) + timedelta(hours=1)
    pause_job(connection, job_id, until(end))
    pause_job(connection, other)
    for one in (job_id, other):
        edited = edit_job(connection, one, {"cron_expr": "* * * * * *"})
        assert (edited.status, edited.next_run_at) == ("paused", None)
    assert (clock(connection, job_id), clock(connection, other)) == (end, None)
    run_pass(connection, config)
    assert ticks_of(connection, job_id) == []


def test_edited_payload_is_that_of_the_next_claim(connection: Connection) -> None:
    job_id = make_job(connection)
    trigger_job(connection, job_id)
    edit_job(connection, job_id, {"payload": {"command": "echo new"}, "timeout_seconds": 7})
    (run,) = claim(connection, make_worker(connection))
    assert (run.payload, run.timeout_seconds) == ({"command": "echo new"}, 7.0)


def test_payload_of_a_trigger_is_that_run_s_own(connection: Connection) -> None:
    job_id = make_job(connection)
    own = trigger_job(connection, job_id, {"command": "echo own"})
    trigger_job(connection, job_id)
    claimed = claim(connection, make_worker(connection), 2)
    assert [run.payload for run in claimed] == [{"command": "echo own"}, {"command": "true"}]
    assert own.payload == {"command": "echo own"}
    with pytest.raises(InvalidInput, match="1 field of the trigger"):
        trigger_job(connection, job_id, {"command": 1})


def test_jitter_delays_the_run_and_not_its_scheduled_time(config: Config, connection: Connection) -> None:
    now = database_now(connection)
    due = now.replace(microsecond=0)
    made = [make_job(connection, run_at=due, next_run_at=due, jitter_seconds=3600.0) for _ in range(20)]
    run_pass(connection, config)
    rows = connection.execute("SELECT job_id, scheduled_for, run_after FROM queue").fetchall()
    assert {job_id for job_id, _, _ in rows} == set(made)
    assert {scheduled_for for _, scheduled_for, _ in rows} == {due}
    delays = sorted(run_after - due for _, _, run_after in rows)
    assert timedelta() <= delays[0] < delays[-1] <= timedelta(hours=1)
    assert len(set(delays)) == 20


def test_job_ends_after_its_last_tick_in_the_window(config: Config, connection: Connection) -> None:
    now = database_now(connection)
    end = now.replace(microsecond=0) + timedelta(seconds=3)
    job_id = submit(connection, cron_expr="* * * * * *", catch_up="all", catch_up_limit=1000, end_at=end.isoformat())
    wait_for(
        lambda: run_pass(connection, config) and clock(connection, job_id) is None,
        why="the last tick of the window",
    )
    fired = ticks_of(connection, job_id)
    assert fired[-1] == end
    assert fired == [fired[0] + i * SECOND for i in range(len(fired))]
    for run in claim(connection, make_worker(connection), 100):
        connection.execute("DELETE FROM queue WHERE id = %s", [run.id])
    assert get_job(connection, job_id).status == "completed"


def test_skipped_tick_stays_skipped_through_pause_and_edit(config: Config, connection: Connection) -> None:
    job_id = submit(connection, cron_expr="0 0 * * *")
    before = get_job(connection, job_id).next_run_at
    assert before
    skipped = skip_next(connection, job_id)
    assert skipped.next_run_at == before + timedelta(days=1)
    pause_job(connection, job_id)
    assert resume_job(connection, job_id).next_run_at == before + timedelta(days=1)
    assert edit_job(connection, job_id, {"cron_expr": "0 */12 * * *"}).next_run_at != before
    assert edit_job(connection, job_id, {"cron_expr": "0 0 * * *"}).next_run_at == before + timedelta(days=1)
    assert ticks_of(connection, job_id) == []


def due_now(connection: Connection) -> UUID:
    """Its tick of a year is due at this moment."""
    return make_job(connection, cron_expr="0 0 1 1 *", next_run_at=database_now(connection))


def test_pause_and_tick_in_every_order(config: Config, connection: Connection) -> None:
    """P8: paused, with no pending run; the tick has its run, cancelled, or the pause has the tick."""
    for order in ORDERS:
        job_id = due_now(connection)
        tick = clock(connection, job_id)
        assert tick
        acts: list[Act] = [lambda own: run_pass(own, config), partial(pause_job, job_id=job_id)]
        list(play(config, connection, order, *acts))
        run_pass(connection, config)
        assert get_job(connection, job_id).status == "paused", order
        assert connection.execute("SELECT count(*) FROM queue").fetchone() == (0,), order
        fired = ticks_of(connection, job_id)
        gap = connection.execute("SELECT from_at FROM tick_gaps WHERE job_id = %s", [job_id]).fetchone()
        assert gap
        assert (fired == [tick]) is not (gap[0] <= tick), order


def test_edit_and_tick_in_every_order(config: Config, connection: Connection) -> None:
    """P9: the old schedule fires before the edit or never; the edit fires nothing."""
    for order in ORDERS:
        job_id = due_now(connection)
        tick = clock(connection, job_id)
        acts: list[Act] = [
            lambda own: run_pass(own, config),
            partial(edit_job, job_id=job_id, body={"cron_expr": "0 0 1 7 *"}),
        ]
        list(play(config, connection, order, *acts))
        run_pass(connection, config)
        following = clock(connection, job_id)
        assert following, order
        assert following.month == 7, order
        gaps = connection.execute(
            "SELECT count(*) FROM tick_gaps WHERE job_id = %s AND reason = 'edited'", [job_id]
        ).fetchone()
        assert gaps
        assert len(ticks_of(connection, job_id)) + gaps[0] == 1, order
        assert ticks_of(connection, job_id) in ([], [tick]), order


def test_tick_and_tick_in_every_order(config: Config, connection: Connection) -> None:
    """P10: two leaders at once."""
    for order in ORDERS:
        job_id = due_now(connection)
        tick = clock(connection, job_id)
        acts: list[Act] = [lambda own: run_pass(own, config), lambda own: run_pass(own, config)]
        list(play(config, connection, order, *acts))
        assert ticks_of(connection, job_id) == [tick], order


def test_trigger_and_cancel_in_every_order(config: Config, connection: Connection) -> None:
    """P7: no pending run of a cancelled job."""
    for order in ORDERS:
        job_id = make_job(connection)

        def trigger(own: Connection, job_id: UUID = job_id) -> str:
            try:
                return str(trigger_job(own, job_id).id)
            except ForgeError:
                return "refused"

        cancel = partial(cancel_job, job_id=job_id)
        list(play(config, connection, order, trigger, cancel))
        assert connection.execute("SELECT count(*) FROM queue").fetchone() == (0,), order
        assert get_job(connection, job_id).status == "cancelled", order


@pytest.mark.parametrize("is_same", [True, False])
def test_submissions_with_one_key_in_every_order(config: Config, connection: Connection, is_same: bool) -> None:
    """P5 and P11: one job; the other answer is that job, or a refusal for another body."""

    def submission(key: str, name: str) -> Act:
        request = read_job_request({**MINUTELY, "name": name, "idempotency_key": key})

        def act(own: Connection) -> str:
            try:
                return str(submit_job(own, request, source="api").job.id)
            except IdempotencyConflict:
                return "refused"

        return act

    for order in ORDERS:
        first, second = submission(order, "one"), submission(order, "one" if is_same else "two")
        answers = set(play(config, connection, order, first, second))
        assert len(answers) == (1 if is_same else 2), order
        assert ("refused" in answers) is not is_same, order
        rows = connection.execute("SELECT count(*) FROM jobs WHERE idempotency_key = %s", [order]).fetchone()
        assert rows == (1,), order


def test_fifty_threads_of_commands_against_the_tick(config: Config, connection: Connection) -> None:
    """F30: after all of it each tick of each job has one outcome, and no job has what its status forbids."""
    fields = [{"overlap": overlap, "catch_up": "all"} for overlap in ("allow", "skip", "queue", "replace")]
    made = [submit(connection, cron_expr="* * * * * *", **each) for each in fields]
    began = database_now(connection)
    stop = threading.Event()
    broken: list[BaseException] = []

    def lead() -> None:
        with connect(config, "leader") as own:
            passes = TickPasses(own, config, 1)
            while not stop.is_set():
                passes.run_pass()

    def command(seed: int) -> None:
        own_lots = random.Random(seed)
        with connect(config, "user") as own:
            own.deadline_seconds = 30.0  # fifty of them wait for each other
            own.execute("SET lock_timeout = '20s'; SET statement_timeout = '25s'")
            for _ in range(6):
                job_id = own_lots.choice(made)
                act = own_lots.choice(commands)
                try:
                    act(own, job_id)
                except ForgeError:
                    pass
                except BaseException as error:
                    broken.append(error)
                    raise

    def edit(own: Connection, job_id: UUID) -> None:
        edit_job(own, job_id, {"cron_expr": random.Random(id(own)).choice(["* * * * * *", "*/2 * * * * *"])})

    def pause_for(own: Connection, job_id: UUID) -> None:
        pause_job(own, job_id, until(database_now(own) + timedelta(seconds=1)))

    commands: list[Callable[[Connection, UUID], object]] = [
        *(pause_job, resume_job, trigger_job, skip_next, edit, pause_for)
    ]
    leader = threading.Thread(target=lead)
    users = [threading.Thread(target=command, args=(seed,)) for seed in range(50)]
    for thread in (leader, *users):
        thread.start()
    for thread in users:
        thread.join()
    for job_id in made:
        cancel_job(connection, job_id)
    ended = database_now(connection)
    stop.set()
    leader.join()
    assert broken == []
    assert connection.execute("SELECT count(*) FROM queue WHERE boot_id IS NULL").fetchone() == (0,)
    for job_id in made:
        assert_each_tick_has_one_outcome(connection, job_id, began, ended)


def assert_each_tick_has_one_outcome(connection: Connection, job_id: UUID, began: datetime, ended: datetime) -> None:
    instant = began.replace(microsecond=0)
    outcomes: dict[str, int] = {}
    while instant <= ended:
        seen = explain_tick(connection, job_id, instant.isoformat())
        assert seen.outcome != "unrecorded", (instant, seen)
        outcomes[seen.outcome] = outcomes.get(seen.outcome, 0) + 1
        instant += SECOND
    fired = ticks_of(connection, job_id)
    assert len(fired) - fired.count(None) == len({tick for tick in fired if tick}), "one tick, one run"  # type: ignore[arg-type]
