"""What runs show of their output while they go on: written under the fence, bounded, read from any place, deleted."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from forgeflow.domain.run import Output
from forgeflow.errors import NotFound
from forgeflow.scheduler.sweep import sweep_output
from forgeflow.service.output import OutputPart, read_output, whole_output
from forgeflow.store.connection import Connection, connect
from forgeflow.store.output import append_piece
from forgeflow.store.runs import ClaimedRun, Owner
from tests.support.databases import config_for
from tests.support.scenario import claim, fail, failure, finish, make_job, make_runs, make_worker, success


class Running:
    """A claimed run, and its worker."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.owner: Owner = make_worker(connection)
        (self.id,) = make_runs(connection, make_job(connection, max_attempts=2))
        self.run: ClaimedRun = self.claim()

    def claim(self) -> ClaimedRun:
        (run,) = claim(self.connection, self.owner)
        return run

    def show(self, first: int, text: str, *, attempt: int | None = None, limit: int = 100_000, **choices: Any) -> bool:
        values = {"has_progress": False, "progress": None, "progress_note": None, "child": self.owner.child, **choices}
        return append_piece(
            self.connection,
            run_id=self.id,
            attempt=attempt or self.run.attempt,
            boot_id=self.owner.boot_id,
            first=first,
            piece=text,
            limit=limit,
            **values,
        )

    def rows(self) -> list[tuple[int, int, str]]:
        found = self.connection.execute("SELECT attempt, first, text FROM output_chunks ORDER BY attempt, first")
        return [tuple(row) for row in found.fetchall()]

    def progress(self) -> tuple[int | None, str | None]:
        row = self.connection.execute("SELECT progress, progress_note FROM queue WHERE id = %s", [self.id]).fetchone()
        assert row
        return row[0], row[1]

    def age(self, interval: str) -> None:
        self.connection.execute("UPDATE output_chunks SET added_at = added_at - %s::interval", [interval])

    def read(self, attempt: int | None = None, offset: int = 0) -> OutputPart:
        return read_output(self.connection, self.id, attempt=attempt, offset=offset)


@pytest.fixture
def database_url(module_database: str) -> str:
    return module_database


@pytest.fixture
def running(connection: Connection) -> Running:
    connection.execute("DELETE FROM output_chunks; DELETE FROM queue; DELETE FROM workers")
    return Running(connection)


# Writing


def test_piece_of_somebody_elses_run_is_not_written(running: Running) -> None:
    assert not running.show(0, "late", attempt=running.run.attempt + 1)
    assert not running.show(0, "late", child=9, has_progress=True, progress=5, progress_note="")
    assert (running.rows(), running.progress()) == ([], (None, None))


def test_small_pieces_are_joined_for_a_minute_and_across_no_gap(running: Running) -> None:
    running.show(0, "a")
    running.show(1, "b")
    running.show(5, "c")
    assert running.rows() == [(1, 0, "ab"), (1, 5, "c")]
    running.age("61 seconds")
    running.show(6, "d" * 5000)
    running.show(5006, "e")
    assert running.rows()[2:] == [(1, 6, "d" * 5000), (1, 5006, "e")]


def test_older_pieces_than_the_limit_are_deleted(running: Running) -> None:
    for number in range(10):
        running.show(5000 * number, "x" * 5000, limit=15_000)
    assert [first for _, first, _ in running.rows()] == [35_000, 40_000, 45_000]


def test_piece_that_was_written_already_is_left_alone(running: Running) -> None:
    running.show(0, "x" * 5000)
    assert running.show(0, "y" * 5000)
    assert running.rows() == [(1, 0, "x" * 5000)]


def test_progress_is_written_with_and_without_a_piece(running: Running) -> None:
    running.show(0, "", has_progress=True, progress=10, progress_note="begun")
    assert (running.progress(), running.rows()) == ((10, "begun"), [])
    running.show(0, "text")
    assert running.progress() == (10, "begun")
    running.show(4, "more", has_progress=True, progress=None, progress_note="half")
    assert running.progress() == (None, "half")


def test_writing_waits_for_nobody(running: Running, database_url: str) -> None:
    with connect(config_for(database_url), "test") as other, other.transaction():
        other.execute("SELECT FROM queue WHERE id = %s FOR UPDATE", [running.id])
        running.connection.execute("SET lock_timeout = 1")
        assert running.show(0, "text", has_progress=True, progress=10, progress_note="")
    assert running.rows() == [(1, 0, "text")]


# Reading


def test_unknown_run_is_not_found(running: Running) -> None:
    with pytest.raises(NotFound):
        read_output(running.connection, uuid4())


def test_running_run_is_read_from_any_place(running: Running) -> None:
    running.show(0, "x" * 5000)
    running.show(5000, "y")
    for offset in (0, 1, 4999, 5000):
        assert running.read(offset=offset).data == ("x" * 5000 + "y")[offset:]
    assert running.read(offset=5001) == OutputPart(1, "", 5001, 0, is_finished=False)


def test_gap_is_told_before_what_comes_after_it(running: Running) -> None:
    running.show(10, "ab")
    running.show(20, "cd")
    assert running.read(offset=3) == OutputPart(1, "ab", 12, 7, is_finished=False)
    assert running.read(offset=12) == OutputPart(1, "cd", 22, 8, is_finished=False)
    assert "".join(whole_output(running.connection, running.id)) == (
        "\n[… 10 bytes not kept …]\nab\n[… 8 bytes not kept …]\ncd"
    )


def test_many_pieces_come_in_several_parts(running: Running) -> None:
    for number in range(40):
        running.show(5000 * number, "x" * 5000, limit=10**9)
    finish(running.connection, running.owner, success(running.run))
    part, size = running.read(), 0
    while not part.is_finished:
        size += len(part.data)
        part = running.read(part.attempt, part.next_offset)
    assert size + len(part.data) == 200_000


def test_ended_run_without_pieces_has_what_is_stored(running: Running) -> None:
    finish(running.connection, running.owner, success(running.run, "hello\n"))
    assert running.read() == OutputPart(1, "hello\n", 6, 0, is_finished=True)
    assert running.read(offset=2) == OutputPart(1, "llo\n", 6, 0, is_finished=True)


def test_stored_output_says_how_much_of_it_is_missing(running: Running) -> None:
    ending = success(running.run)
    object.__setattr__(ending, "output", Output("head", "tail", 1000))
    finish(running.connection, running.owner, ending)
    assert running.read().data == "head\n[… 992 bytes not kept …]\ntail"


def test_follower_sees_the_end_of_the_pieces_when_the_run_has_ended(running: Running) -> None:
    running.show(0, "abc")
    finish(running.connection, running.owner, success(running.run, "abc"))
    assert running.read(offset=1) == OutputPart(1, "bc", 3, 0, is_finished=True)
    assert running.read(offset=3) == OutputPart(1, "", 3, 0, is_finished=True)
    assert running.read() == OutputPart(1, "abc", 3, 0, is_finished=True)


def test_follower_goes_on_with_the_next_attempt(running: Running) -> None:
    running.show(0, "one")
    fail(running.connection, running.owner, failure(running.run))
    assert running.read(1, 3) == OutputPart(1, "", 3, 0, is_finished=False)
    running.connection.execute("UPDATE queue SET run_after = now()")
    running.run = running.claim()
    assert running.read(1, 3) == OutputPart(2, "", 0, 0, is_finished=False)
    running.show(0, "two")
    assert running.read(1, 1) == OutputPart(1, "ne", 3, 0, is_finished=False)
    assert running.read(1, 3) == OutputPart(2, "two", 3, 0, is_finished=False)
    finish(running.connection, running.owner, success(running.run, "two"))
    assert running.read(1, 3) == OutputPart(2, "two", 3, 0, is_finished=True)


# Deleting


def test_pieces_of_ended_attempts_are_deleted_after_ten_minutes(running: Running) -> None:
    running.show(0, "one")
    running.age("11 minutes")
    assert not sweep_output(running.connection)
    assert len(running.rows()) == 1  # it still goes on
    finish(running.connection, running.owner, success(running.run, "one"))
    running.connection.execute(
        "INSERT INTO output_chunks (run_id, attempt, first, text) VALUES (%s, 1, 3, 'new')", [running.id]
    )
    assert not sweep_output(running.connection)
    assert running.rows() == [(1, 3, "new")]


def test_old_pieces_are_deleted_in_parts(running: Running) -> None:
    running.connection.execute(
        "INSERT INTO output_chunks (run_id, attempt, first, text, added_at)"
        " SELECT %s, 1, n, 'x', now() - interval '1 hour' FROM generate_series(1, 2001) AS n",
        [UUID(int=7)],
    )
    assert sweep_output(running.connection)
    assert not sweep_output(running.connection)
    assert running.rows() == []
