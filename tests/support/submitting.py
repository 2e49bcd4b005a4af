"""Submissions of a function, and who is told of them."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from forgeflow.service.jobs import submit_job
from forgeflow.service.requests import JobRequest, read_job_request
from forgeflow.store.connection import Connection
from forgeflow.store.listener import listen

DUE = {"name": "job", "executor": "python", "payload": {"function": "shop.send", "args": {"amount": 1}}}
PAYLOAD = {"function": "shop.send", "args": {"amount": 2}}


def request(**fields: Any) -> JobRequest:
    return read_job_request({**DUE, **fields})


def submit(connection: Connection, **fields: Any) -> UUID:
    return submit_job(connection, request(**fields), source="api").job.id


def stored(connection: Connection) -> list[int]:
    """How many jobs and runs there are."""
    row = connection.execute("SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM queue)").fetchone()
    assert row
    return list(row)


def told(listener: Connection, connection: Connection, act: Callable[[], object]) -> list[str]:
    """What an act tells the nodes."""
    listen(listener, "forgeflow_due")
    act()
    connection.execute("NOTIFY forgeflow_due, 'end'")
    words: list[str] = []
    for note in listener.notifies(timeout=20):
        if note.payload == "end":
            break
        words.append(note.payload)
    return words


def count_told(listener: Connection, connection: Connection, act: Callable[[], object]) -> int:
    """How many notifications an act sends, all of them of due runs."""
    words = told(listener, connection, act)
    assert set(words) <= {""}
    return len(words)
