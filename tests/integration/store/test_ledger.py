"""Every expected tick has one outcome that can be asked for."""

import contextlib
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from forgeflow.config import Config
from forgeflow.errors import ForgeError, InvalidInput
from forgeflow.scheduler.leader import campaign, open_session, resign
from forgeflow.scheduler.ticks import TickPasses
from forgeflow.service.explain import Explanation, explain_tick
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
from forgeflow.store.connection import Connection
from tests.integration.store.test_ticks import node
from tests.support.scenario import claim, database_now, finish, make_worker, success

HOURLY = {"name": "job", "executor": "shell", "payload": {"command": "true"}, "cron_expr": "0 * * * *"}
HOUR = timedelta(hours=1)


def submit(connection: Connection, **fields: Any) -> UUID:
    return submit_job(connection, read_job_request({**HOURLY, **fields}), source="api").job.id


def let_pass(connection: Connection, job_id: UUID, span: timedelta) -> None:
    """As if so long had passed: all that the job and its ledger know of time lies further back."""
    parameters = {"span": span, "id": job_id}
    # By way of a time where none is: moved one after the other, two would have the same time for a moment.
    connection.execute(
        "UPDATE tick_gaps SET from_at = from_at - interval '400 years' WHERE job_id = %(id)s", parameters
    )
    connection.execute(
        "UPDATE tick_gaps SET from_at = from_at + interval '400 years' - %(span)s WHERE job_id = %(id)s", parameters
    )
    for table, columns in {
        "jobs": ("next_run_at", "paused_until", "created_at", "start_at", "end_at", "run_at"),
        "tick_gaps": ("to_at",),
        "job_versions": ("until_at",),
    }.items():
        moved = ", ".join(f"{column} = {column} - %(span)s" for column in columns)
        owner = "id" if table == "jobs" else "job_id"
        connection.execute(f"UPDATE {table} SET {moved} WHERE {owner} = %(id)s", parameters)


def run_pass(connection: Connection, config: Config) -> None:
    TickPasses(connection, config, 1).run_pass()


def explain(connection: Connection, job_id: UUID, at: datetime) -> Explanation:
    return explain_tick(connection, job_id, at.isoformat())


def last_hour(connection: Connection) -> datetime:
    return database_now(connection).replace(minute=0, second=0, microsecond=0)


def clock(connection: Connection, job_id: UUID) -> datetime:
    row = connection.execute("SELECT next_run_at FROM jobs WHERE id = %s", [job_id]).fetchone()
    assert row
    assert row[0]
    return datetime.fromisoformat(row[0].isoformat())


def make_due(connection: Connection, job_id: UUID) -> datetime:
    """The job's next tick is due at this moment; its schedule is read so that this is a tick."""
    now = database_now(connection).replace(microsecond=0)
    expr = f"{now.second} {now.minute} {now.hour} * * *"
    connection.execute(
        "UPDATE jobs SET cron_expr = %s, next_run_at = %s, created_at = created_at - interval '1 hour' WHERE id = %s",
        [expr, now, job_id],
    )
    return now


def test_tick_that_ran_names_its_run(config: Config, connection: Connection) -> None:
    job_id = submit(connection)
    tick = make_due(connection, job_id)
    run_pass(connection, config)
    seen = explain(connection, job_id, tick)
    assert seen.outcome == "ran"
    assert seen.run
    assert (seen.run.status, seen.run.scheduled_for) == ("pending", tick)
    assert seen.reason == "its run waits for a worker"
    (run,) = claim(connection, make_worker(connection))
    assert seen.run.id == run.id


def test_tick_that_ran_late_says_how_late(config: Config, connection: Connection) -> None:
    job_id = submit(connection)
    tick = make_due(connection, job_id) - timedelta(seconds=30)
    expr = f"{tick.second} {tick.minute} {tick.hour} * * *"
    connection.execute("UPDATE jobs SET cron_expr = %s, next_run_at = %s WHERE id = %s", [expr, tick, job_id])
    run_pass(connection, config)
    seen = explain(connection, job_id, tick)
    assert seen.outcome == "late"
    assert seen.reason.startswith("it got its run 3")


def test_missed_and_caught_up_ticks_say_so(config: Config, connection: Connection) -> None:
    job_id = submit(connection, catch_up="all", catch_up_limit=2)
    let_pass(connection, job_id, 6 * HOUR)
    run_pass(connection, config)
    hour = last_hour(connection)
    assert explain(connection, job_id, hour - HOUR).outcome == "caught_up"
    missed = explain(connection, job_id, hour - 4 * HOUR)
    assert missed.outcome == "missed"
    assert missed.gap
    assert missed.gap.from_at <= hour - 4 * HOUR <= (missed.gap.to_at or hour)


def test_coalesced_tick_says_so(config: Config, connection: Connection) -> None:
    job_id = submit(connection, cron_expr="* * * * * *")
    let_pass(connection, job_id, timedelta(seconds=40))
    began = clock(connection, job_id)
    run_pass(connection, config)
    assert explain(connection, job_id, began).outcome == "coalesced"


def test_tick_skipped_for_overlap_names_the_run_in_its_way(config: Config, connection: Connection) -> None:
    job_id = submit(connection, overlap="skip")
    run = trigger_job(connection, job_id)
    seen = explain(connection, job_id, make_due(connection, job_id))
    assert seen.outcome == "due"
    run_pass(connection, config)
    seen = explain(connection, job_id, seen.at)
    assert (seen.outcome, seen.blocked_by, seen.run) == ("overlap", run.id, None)


def test_tick_of_a_pause_says_so_with_its_reason(config: Config, connection: Connection) -> None:
    job_id = submit(connection)
    asked = read_pause_request({"reason": "year's end"})
    pause_job(connection, job_id, asked)
    hour = last_hour(connection)
    during = explain(connection, job_id, hour + 2 * HOUR)
    assert (during.outcome, during.reason) == ("paused", "the job was paused: year's end")
    let_pass(connection, job_id, 5 * HOUR)
    resume_job(connection, job_id)
    for at in (hour - 2 * HOUR, hour):
        seen = explain(connection, job_id, at)
        assert (seen.outcome, seen.reason) == ("paused", "the job was paused: year's end")
    assert explain(connection, job_id, hour + HOUR).outcome == "planned"
    assert explain(connection, job_id, hour - 7 * HOUR).outcome == "not_submitted"


def test_tick_after_the_end_of_a_pause_is_planned(connection: Connection) -> None:
    job_id = submit(connection)
    hour = last_hour(connection)
    pause_job(connection, job_id, read_pause_request({"until": (hour + 3 * HOUR).isoformat()}))
    assert explain(connection, job_id, hour + 2 * HOUR).outcome == "paused"
    assert explain(connection, job_id, hour + 3 * HOUR).outcome == "planned"
    let_pass(connection, job_id, 5 * HOUR)
    assert explain(connection, job_id, hour - 2 * HOUR).outcome == "due", "the leader has not been there yet"


def test_tick_after_a_cancel_says_so(connection: Connection) -> None:
    job_id, paused = submit(connection), submit(connection)
    pause_job(connection, paused)
    hour = last_hour(connection)
    for one in (job_id, paused):
        cancel_job(connection, one)
        assert explain(connection, one, hour + HOUR).outcome == "cancelled"


def test_tick_that_was_skipped_by_hand_says_so(connection: Connection) -> None:
    job_id = submit(connection)
    tick = clock(connection, job_id)
    skip_next(connection, job_id)
    assert explain(connection, job_id, tick).outcome == "skip_next"
    assert explain(connection, job_id, tick + HOUR).outcome == "planned"


def test_tick_owed_at_an_edit_says_so(config: Config, connection: Connection) -> None:
    job_id = submit(connection, catch_up="all")
    let_pass(connection, job_id, 5 * HOUR)
    edit_job(connection, job_id, {"cron_expr": "30 3 * * *"})
    run_pass(connection, config)
    hour = last_hour(connection)
    assert explain(connection, job_id, hour - HOUR).outcome == "edited"


def test_instants_outside_of_the_window_say_so(connection: Connection) -> None:
    hour = last_hour(connection)
    window = {"start_at": (hour + 3 * HOUR).isoformat(), "end_at": (hour + 5 * HOUR).isoformat()}
    job_id = submit(connection, **window)
    expected = {2: "not_started", 3: "planned", 5: "planned", 6: "ended"}
    assert {n: str(explain(connection, job_id, hour + n * HOUR).outcome) for n in expected} == expected


def test_instant_that_is_no_tick_names_its_neighbours(connection: Connection) -> None:
    job_id = submit(connection)
    hour = last_hour(connection)
    seen = explain(connection, job_id, hour + timedelta(hours=2, minutes=30))
    assert (seen.outcome, seen.previous, seen.following) == ("no_tick", hour + 2 * HOUR, hour + 3 * HOUR)
    manual = submit(connection, cron_expr=None)
    assert explain(connection, manual, hour + HOUR).reason.startswith("the job had no schedule then")


def test_instant_is_judged_by_the_schedule_of_its_time(connection: Connection) -> None:
    job_id = submit(connection)
    pause_job(connection, job_id)
    let_pass(connection, job_id, 5 * HOUR)
    edit_job(connection, job_id, {"cron_expr": "30 * * * *"})
    hour = last_hour(connection)
    assert explain(connection, job_id, hour - HOUR).outcome == "paused", "a tick then"
    assert explain(connection, job_id, hour - HOUR / 2).outcome == "no_tick"
    assert explain(connection, job_id, hour + HOUR).outcome == "no_tick"
    assert explain(connection, job_id, hour + 1.5 * HOUR).outcome == "paused", "a tick now"


def test_tick_that_is_due_says_who_leads(config: Config, connection: Connection) -> None:
    job_id = submit(connection)
    tick = make_due(connection, job_id)
    assert explain(connection, job_id, tick).reason.endswith("no scheduler leads at the moment")
    own = node("chief")
    leadership = campaign(open_session(config, own), config, own)
    assert leadership
    assert explain(connection, job_id, tick).reason.endswith("node chief leads")
    resign(leadership)


def test_run_at_is_explained_like_a_tick(config: Config, connection: Connection) -> None:
    at = database_now(connection) + HOUR
    job_id = submit(connection, cron_expr=None, run_at=at.isoformat())
    assert explain(connection, job_id, at).outcome == "planned"
    assert explain(connection, job_id, at + HOUR).outcome == "no_tick"
    past = submit(connection, cron_expr=None, run_at=(at - 2 * HOUR).isoformat())
    run_pass(connection, config)
    assert explain(connection, past, at - 2 * HOUR).outcome == "late"


def test_time_that_cannot_be_read_is_refused(connection: Connection) -> None:
    job_id = submit(connection)
    for text in ("", "soon", "2026-13-01T00:00:00Z", "0000-01-01T00:00:00Z", "2026-07-01"):
        with pytest.raises(InvalidInput):
            explain_tick(connection, job_id, text)


@pytest.mark.parametrize("seed", range(4))
def test_random_lives_leave_no_tick_without_an_outcome(config: Config, connection: Connection, seed: int) -> None:
    """Each half hour of some days, after whatever was done in them, has exactly one outcome.

    The schedules are the same in each hour, so that a life can be moved back by hours and keeps its ticks.
    """
    lots = random.Random(seed)
    exprs = ["0 * * * *", "30 * * * *", "*/30 * * * *"]
    job_id = submit(
        connection,
        cron_expr=lots.choice(exprs),
        catch_up=lots.choice(["skip", "once", "all"]),
        catch_up_limit=3,
        overlap=lots.choice(["allow", "skip", "queue", "replace"]),
    )
    owner = make_worker(connection)

    def end_runs() -> None:
        for run in claim(connection, owner, 10):
            finish(connection, owner, success(run))

    acts: list[Callable[[], object]] = [
        lambda: pause_job(connection, job_id),
        lambda: pause_job(
            connection,
            job_id,
            read_pause_request({"until": (database_now(connection) + lots.randint(1, 5) * HOUR).isoformat()}),
        ),
        lambda: resume_job(connection, job_id),
        lambda: skip_next(connection, job_id),
        lambda: edit_job(connection, job_id, {"cron_expr": lots.choice(exprs)}),
        lambda: trigger_job(connection, job_id),
        lambda: run_pass(connection, config),
        lambda: run_pass(connection, config),
        end_runs,
    ]
    for _ in range(4):
        with contextlib.suppress(ForgeError):
            lots.choice(acts)()
        age_all(connection, job_id, timedelta(minutes=lots.randint(1, 240)))
        run_pass(connection, config)
    began = get_job(connection, job_id).created_at
    at = began.replace(minute=0, second=0, microsecond=0) - 2 * HOUR
    counted: dict[str, int] = {}
    while at < database_now(connection) + 3 * HOUR:
        seen = explain(connection, job_id, at)
        counted[seen.outcome] = counted.get(seen.outcome, 0) + 1
        assert seen.outcome != "unrecorded", (at, seen)
        at += HOUR / 2
    assert counted.pop("not_submitted") in (4, 5, 6)
    assert len(counted) > 3, counted
    rows = connection.execute("SELECT count(*), count(DISTINCT tick_at) FROM runs WHERE tick_at IS NOT NULL").fetchone()
    assert rows
    assert rows[0] == rows[1]


def age_all(connection: Connection, job_id: UUID, span: timedelta) -> None:
    """`let_pass`, in whole hours, so that ticks stay ticks; with the ledger and the runs as well."""
    hours = timedelta(hours=round(span / HOUR))
    let_pass(connection, job_id, hours)
    # A run refers to its tick by the tick's time: both at once, before the constraint is looked at.
    connection.execute("BEGIN")
    connection.execute("ALTER TABLE queue ALTER CONSTRAINT queue_tick DEFERRABLE INITIALLY DEFERRED")
    for statement in (
        "UPDATE ticks SET tick_at = tick_at - interval '400 years' WHERE job_id = %(id)s",
        "UPDATE ticks SET tick_at = tick_at + interval '400 years' - %(span)s, fired_at = fired_at - %(span)s"
        " WHERE job_id = %(id)s",
        "UPDATE queue SET tick_at = tick_at - %(span)s, scheduled_for = scheduled_for - %(span)s WHERE job_id = %(id)s",
    ):
        connection.execute(statement, {"span": hours, "id": job_id})
    connection.execute("ALTER TABLE finished_runs DISABLE TRIGGER finished_runs_are_final")
    connection.execute(
        "UPDATE finished_runs SET tick_at = tick_at - %(span)s WHERE job_id = %(id)s", {"span": hours, "id": job_id}
    )
    connection.execute("ALTER TABLE finished_runs ENABLE TRIGGER finished_runs_are_final")
    connection.execute("COMMIT")
