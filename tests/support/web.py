"""A real web process, and a client that sends exactly what a test says."""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from tests.support.commands import BARE
from tests.support.waiting import wait_for

HELLO: dict[str, Any] = {"name": "hello", "executor": "shell", "payload": {"command": "echo hello from forgeflow"}}
TABLES = (
    "output_chunks",
    "queue",
    "finished_runs",
    "attempts",
    "ticks",
    "tick_gaps",
    "job_versions",
    "workers",
    "nodes",
    "leader",
    "jobs",
)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass(frozen=True, slots=True)
class WebServer:
    """`forgeflow-web` with one worker, on a port of its own."""

    port: int
    pid: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_seconds: float = 20.0,
    ) -> Answer:
        """One request on a connection of its own; of headers only Host and Content-Length are added, if not given."""
        data = body.encode() if isinstance(body, str) else body
        sent = {"Host": f"127.0.0.1:{self.port}", **(headers or {})}
        if data is not None and "Transfer-Encoding" not in sent:
            sent.setdefault("Content-Length", str(len(data)))
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_seconds)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                connection.putheader(name, value)
            connection.endheaders(data)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, document: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """A POST of JSON, or of nothing."""
        if document is None:
            return self.request("POST", path, b"", headers)
        return self.request("POST", path, json.dumps(document), {"Content-Type": "application/json", **(headers or {})})

    def submit(self, **fields: Any) -> dict[str, Any]:
        """A new job: HELLO with other fields."""
        answer = self.post("/api/jobs", {**HELLO, **fields})
        assert answer.status == 201, answer.text
        job: dict[str, Any] = answer.json()
        return job

    def send(self, data: bytes, *, timeout_seconds: float = 20.0) -> bytes:
        """Everything that comes back for these bytes, until the server closes; the write side is then closed too."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout_seconds) as connection:
            connection.sendall(data)
            with contextlib.suppress(OSError):  # it may have answered and closed already
                connection.shutdown(socket.SHUT_WR)
            received = b""
            while part := connection.recv(65536):
                received += part
            return received


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def web_server(database_url: str, **settings: str) -> Iterator[WebServer]:
    """`forgeflow-web` on this database; keywords are environment variables without their FORGEFLOW_."""
    port = free_port()
    environment = {
        **os.environ,
        **BARE,
        "FORGEFLOW_DATABASE_URL": database_url,
        "FORGEFLOW_LISTEN_ADDR": f"127.0.0.1:{port}",
        "FORGEFLOW_SERVER_WORKERS": "1",
        **{f"FORGEFLOW_{name}": value for name, value in settings.items()},
    }
    with tempfile.NamedTemporaryFile(prefix="forgeflow-web-", suffix=".log") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "forgeflow.cli", "web"], env=environment, stdout=log, stderr=log
        )
        server = WebServer(port, process.pid, Path(log.name))
        try:
            wait_for(lambda: _answers(server, process), why="the web process answers")
            yield server
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(server: WebServer, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, server.log.read_text()
    with contextlib.suppress(OSError, http.client.HTTPException):
        return server.get("/healthz").status == 200
    return False


def open_database(url: str) -> psycopg.Connection[Any]:
    """What a test looks at the tables with."""
    return psycopg.connect(url, autocommit=True, options="-c search_path=forgeflow,pg_catalog")


def row_counts(connection: psycopg.Connection[Any]) -> dict[str, int]:
    counts = {}
    for table in TABLES:
        row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        assert row
        counts[table] = row[0]
    return counts


def empty_tables(connection: psycopg.Connection[Any]) -> None:
    connection.execute("; ".join(f"DELETE FROM {table}" for table in TABLES))


def table_digest(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """What stands in each table, to be compared."""
    found = {}
    for table in TABLES:
        row = connection.execute(f"SELECT md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM {table} t")
        found[table] = str(row.fetchone())
    return found


def insert_node(connection: psycopg.Connection[Any], name: str, *, lease: str = "30s", workers: int = 2) -> UUID:
    """A node as its beats leave it, with workers whose lease ends with the node's; returns its boot_id."""
    row = connection.execute(
        """INSERT INTO nodes
             (boot_id, worker_id, hostname, machine, pid, roles, concurrency, version, lease_expires_at)
           VALUES (gen_random_uuid(), %s, 'host', 'machine', 42, '{scheduler,worker}', 4, '0.1.0', now() + %s::interval)
           RETURNING boot_id""",
        [name, lease],
    ).fetchone()
    assert row
    boot_id: UUID = row[0]
    connection.execute(
        """INSERT INTO workers (boot_id, child, worker_id, lease_expires_at)
           SELECT %s, n, %s, now() + %s::interval FROM generate_series(1, %s) AS n""",
        [boot_id, name, lease, workers],
    )
    return boot_id


def make_leader(connection: psycopg.Connection[Any], boot_id: UUID) -> None:
    connection.execute(
        "INSERT INTO leader (term, boot_id, worker_id) SELECT 1, boot_id, worker_id FROM nodes WHERE boot_id = %s",
        [boot_id],
    )


def start_run(connection: psycopg.Connection[Any], run_id: str, boot_id: UUID | None = None) -> None:
    """As if a worker had claimed it."""
    connection.execute(
        """UPDATE queue SET boot_id = coalesce(%s, gen_random_uuid()), child = 1, attempt = attempt + 1,
                            started_at = clock_timestamp() WHERE id = %s""",
        [boot_id, run_id],
    )


def end_run(
    connection: psycopg.Connection[Any],
    run_id: str,
    status: str,
    *,
    worker_id: str = "node-a",
    error: str | None = None,
    error_type: str = "failed",
) -> None:
    """As if a worker had ended it."""
    connection.execute(
        """WITH gone AS (DELETE FROM queue WHERE id = %s RETURNING *)
           INSERT INTO finished_runs (id, job_id, job_version, priority, scheduled_for, trigger, is_catch_up,
                                      max_attempts, attempt, failures, interruptions, worker_id, started_at, status,
                                      exit_code, error, error_type, output_head, output_bytes)
           SELECT id, job_id, job_version, priority, scheduled_for, trigger, is_catch_up, max_attempts,
                  greatest(attempt, 1), CASE %s WHEN 'dead' THEN max_attempts ELSE 0 END, 0, %s,
                  coalesce(started_at, scheduled_for), %s, 1, %s, %s, 'some output', 11 FROM gone""",
        [run_id, status, worker_id, status, error, error_type],
    )
