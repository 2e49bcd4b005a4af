"""Submitting jobs to a node under test, and looking at what became of them."""

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from forgeflow.service.jobs import submit_job
from forgeflow.service.requests import read_job_request
from forgeflow.store import runs
from forgeflow.store.connection import Connection
from forgeflow.store.nodes import beat_node
from forgeflow.store.runs import RunRow
from tests.support.waiting import wait_for


def submit(connection: Connection, command: str, **fields: Any) -> UUID:
    """A shell job; keywords are the fields of the API."""
    body = {"name": "job", "executor": "shell", "payload": {"command": command}, **fields}
    return submit_job(connection, read_job_request(body), source="api").job.id


def only_run(connection: Connection, job_id: UUID) -> RunRow:
    (run,) = runs.list_runs(connection, job_id=job_id, status=None, before=None, max_rows=10)
    whole = runs.get_run(connection, run_id=run.id)
    assert whole
    return whole


def wait_for_status(connection: Connection, job_id: UUID, status: str, *, timeout_seconds: float = 20.0) -> RunRow:
    def has_status() -> bool:
        found = runs.list_runs(connection, job_id=job_id, status=None, before=None, max_rows=10)
        return [run.status for run in found] == [status]

    wait_for(has_status, timeout_seconds=timeout_seconds, why=f"the run of job {job_id} {status}")
    return only_run(connection, job_id)


def beat(connection: Connection, worker_id: str, *, hostname: str = "elsewhere", lease_seconds: float = 60.0) -> None:
    """Be a node without workers, with a lease of that length from now on."""
    beat_node(
        connection,
        boot_id=uuid4(),
        worker_id=worker_id,
        hostname=hostname,
        machine="m",
        pid=7,
        roles=["worker"],
        concurrency=2,
        version="0",
        children=[],
        lease_seconds=lease_seconds,
    )


def refuse(connection: Connection, condition: str, table: str = "finished_runs") -> None:
    """From now on the database refuses such new rows, whatever its reason may be."""
    connection.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'this one not' USING ERRCODE = '22000'; END $$"
    )
    connection.execute(
        f"CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION refuse()"
    )


class Beacon:
    """A command that writes the time into a file for as long as it lives, on its first try only.

    `escapes`: what writes is deep below the command, in a session of its own, each level below in another one, and
    the uppermost an orphan. All of them ignore TERM, and none holds the output.
    """

    def __init__(self, folder: Path, *, escapes: bool = False) -> None:
        folder.chmod(0o777)
        self._file = folder / "beacon"
        shine = f"while :; do date +%s.%N >> {self._file}; sleep 0.02; done"
        deeper = folder / "deeper"
        deeper.write_text(f"[ $1 = 0 ] || {{ setsid sh $0 $(($1 - 1)) & wait; exit; }}; {shine}\n")
        self.command = f"test -e {self._file} && {{ echo again; exit 0; }}; trap '' TERM; " + (
            f"(setsid sh {deeper} 3 > /dev/null 2>&1 &); sleep 60" if escapes else shine
        )

    def is_lit(self) -> bool:
        return self._file.exists() and len(self._file.read_text().split()) > 2

    def last_seen(self) -> float:
        """Wall clock, seconds since the epoch."""
        return float(self._file.read_text().split()[-1])
