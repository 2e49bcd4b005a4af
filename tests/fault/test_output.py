"""What is seen of a run while it goes on, what is kept of endless output, and secrets: in a real node."""

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from forgeflow.service.lifecycle import cancel_job
from forgeflow.service.output import OutputPart, read_output
from forgeflow.store.connection import Connection, connect
from forgeflow.store.runs import RunRow
from tests.support.commands import command, environment, refused, run
from tests.support.databases import config_for, drop_database, make_database
from tests.support.hostile import hostile_server
from tests.support.processes import NodeProcess, descendants_of, nodes, nothing_left_behind, title
from tests.support.waiting import wait_for
from tests.support.web import WebServer, web_server
from tests.support.work import only_run, submit

CANARY = "canary/7f3a?b+c=dÄ"
B64 = base64.b64encode(CANARY.encode()).decode()  # of ASCII alone, as headers must be
OLD = UUID(int=1)
LEAK = """
import logging, os, sys, threading, time
import forgeflow

@forgeflow.job(name="leak")
def leak(*, token, file):
    print("printed", token)
    sys.stderr.write("written " + token + "\\n")
    logging.getLogger("user").error("logged %s", token)
    with open(file, "w") as opened:
        opened.write(token)
    raise ValueError(990 * "." + token)  # an error is cut at 1000
"""


class Scene:
    """A node with a folder of secrets, its database, and a web process on it."""

    def __init__(self, url: str, connection: Connection, node: NodeProcess, web: WebServer) -> None:
        self.url, self.connection, self.node, self.web = url, connection, node, web

    def submit(self, command: str, **fields: Any) -> UUID:
        return submit(self.connection, command, max_attempts=1, **fields)

    def run_of(self, job_id: UUID) -> RunRow:
        return only_run(self.connection, job_id)

    def ended(self, job_id: UUID) -> RunRow:
        wait_for(lambda: self.run_of(job_id).finished_at, why="the end of the run")
        return self.run_of(job_id)

    def seen(self, job_id: UUID) -> OutputPart:
        """The first part of its output that is there while it goes on."""
        run_id = self.run_of(job_id).id
        wait_for(lambda: read_output(self.connection, run_id).data, why="something is seen of the run")
        part = read_output(self.connection, run_id)
        assert not part.is_finished
        return part

    def pieces(self, job_id: UUID) -> int:
        row = self.connection.execute(
            "SELECT count(*) FROM output_chunks WHERE run_id = %s", [self.run_of(job_id).id]
        ).fetchone()
        assert row
        return int(row[0])


@pytest.fixture(scope="module")
def scene(server_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("scene")
    (folder / "leak.py").write_text(LEAK)
    (folder / "token").write_text(f"{CANARY}\n")
    (folder / "token").chmod(0o600)
    (folder / "b64").write_text(B64)
    (folder / "b64").chmod(0o600)
    (folder / "open").write_text(CANARY)
    (folder / "open").chmod(0o644)
    url = make_database(server_url, template=template)
    with (
        nothing_left_behind(),
        web_server(url) as web,
        nodes() as start,
        connect(config_for(url), "test") as connection,
    ):
        connection.execute(
            "INSERT INTO output_chunks (run_id, attempt, first, text, added_at)"
            " VALUES (%s, 1, 0, 'old', now() - interval '1 hour')",
            [OLD],
        )
        node = start(
            url,
            executor__secrets__folder=str(folder),
            executor__http__allow_networks="127.0.0.1/32",
            python__modules="leak",
            log__level="debug",
            environment={"PYTHONPATH": str(folder)},
        )
        node.wait_for_log("node ready")
        yield Scene(url, connection, node, web)
    drop_database(server_url, url)


# While it goes on


def test_output_is_seen_while_the_run_lasts_and_to_its_end(scene: Scene, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    go_on = tmp_path / "goes-on"
    job_id = scene.submit(f"echo begun; while ! test -e {go_on}; do sleep 0.05; done; echo ended")
    part = scene.seen(job_id)
    assert part == OutputPart(1, "begun\n", 6, 0, is_finished=False)
    run_id = scene.run_of(job_id).id
    follower = subprocess.Popen(
        command("output", str(run_id), "--follow"),
        env=environment(FORGEFLOW_DATABASE_URL=scene.url),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout
    assert follower.stdout.readline() == "begun\n"
    go_on.touch()
    scene.ended(job_id)
    rest, _ = follower.communicate(timeout=20)
    assert (rest, follower.returncode) == ("ended\n", 0)
    answer = scene.web.get(f"/api/runs/{run_id}/output?attempt=1&offset=6").json()
    assert answer == {"attempt": 1, "data": "ended\n", "next_offset": 12, "finished": True}
    code, said, _ = run(tmp_path, "output", str(run_id), "--json", FORGEFLOW_DATABASE_URL=scene.url)
    assert (code, json.loads(said)) == (0, scene.web.get(f"/api/runs/{run_id}/output").json())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((str(UUID(int=7)),), (3, f"there is no run {UUID(int=7)}")),
        (("nightly",), (2, "RUN is no id of a run; the API and the log show them")),
        (
            (str(UUID(int=7)), "--json", "-f"),
            (2, "--follow and --json exclude each other: a document is about one moment"),
        ),
    ],
)
def test_output_that_is_not_to_be_had_is_refused(
    scene: Scene, tmp_path: Path, arguments: tuple[str, ...], told: tuple[int, str]
) -> None:
    assert refused(tmp_path, "output", *arguments, FORGEFLOW_DATABASE_URL=scene.url) == told


def test_run_that_ends_within_a_second_writes_nothing_meanwhile(scene: Scene) -> None:
    job_id = scene.submit("echo begun; sleep 0.7; echo ended")
    assert scene.ended(job_id).output_head == "begun\nended\n"
    assert scene.pieces(job_id) == 0


def test_long_poll_is_answered_when_something_comes(scene: Scene, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    job_id = scene.submit("sleep 0.6; echo at last; sleep 60", timeout_seconds=60)
    run_id = scene.run_of(job_id).id
    began = time.monotonic()
    answer = scene.web.get(f"/api/runs/{run_id}/output?wait=20").json()
    assert (answer["data"], answer["finished"]) == ("at last\n", False)
    assert time.monotonic() - began < 15
    cancel_job(scene.connection, job_id)
    answer = scene.web.get(f"/api/runs/{run_id}/output?wait=20&attempt=1&offset=8").json()
    assert (answer["data"], answer["finished"]) == ("", True)


def test_piece_that_the_database_refuses_is_left_out_and_costs_the_run_nothing(scene: Scene) -> None:
    scene.connection.execute("ALTER TABLE output_chunks ADD CONSTRAINT none CHECK (text NOT LIKE '%refused%')")
    try:
        job_id = scene.submit("echo refused; sleep 2; echo after; sleep 1.5")
        assert (scene.seen(job_id).data, scene.seen(job_id).skipped) == ("after\n", len("refused\n"))
        assert scene.ended(job_id).output_head == "refused\nafter\n"
    finally:
        scene.connection.execute("ALTER TABLE output_chunks DROP CONSTRAINT none")
    scene.node.wait_for_log("output cannot be shown meanwhile")


def test_session_that_is_ended_while_a_run_is_shown_costs_the_run_nothing(scene: Scene) -> None:
    job_id = scene.submit("while sleep 0.1; do echo tick; done", timeout_seconds=30)
    scene.seen(job_id)
    scene.connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE 'forgeflow:worker%' AND datname = current_database()"
    )
    before = read_output(scene.connection, scene.run_of(job_id).id, offset=0).next_offset
    run_id = scene.run_of(job_id).id
    wait_for(lambda: read_output(scene.connection, run_id, attempt=1, offset=before).data, why="it is shown again")
    cancel_job(scene.connection, job_id)
    assert (scene.ended(job_id).status, scene.ended(job_id).attempt) == ("cancelled", 1)


def test_leader_deletes_what_was_seen_of_runs_that_have_ended(scene: Scene) -> None:
    wait_for(
        lambda: not scene.connection.execute("SELECT FROM output_chunks WHERE run_id = %s", [OLD]).fetchall(),
        why="the old piece is deleted",
    )


# Without end


def flood(scene: Scene, size: str) -> tuple[RunRow, int]:
    """The run, and the most memory in KiB that the workers took meanwhile."""
    job_id = scene.submit(f"head -c {size} /dev/urandom; printf 'a\\000b'", timeout_seconds=300)
    most = 0

    def has_ended() -> bool:
        nonlocal most
        for pid in scene.node.workers():
            status = Path(f"/proc/{pid}/status").read_text()
            most = max(most, int(status.partition("VmRSS:")[2].split()[0]))
        return scene.run_of(job_id).finished_at is not None

    wait_for(has_ended, timeout_seconds=280)
    return scene.run_of(job_id), most


@pytest.mark.parametrize(
    ("size", "count"), [("150M", 150 * 1024**2), pytest.param("3G", 3 * 1024**3, marks=pytest.mark.proof)]
)
def test_binary_output_without_end_leaves_memory_flat(scene: Scene, size: str, count: int) -> None:
    _, before = flood(scene, "1M")
    ended, most = flood(scene, size)
    assert (ended.status, ended.output_bytes) == ("succeeded", count + 3)
    assert most - before < 16 * 1024
    assert len(ended.output_head.encode()) <= 65536
    assert len(ended.output_tail.encode()) <= 65536
    assert ended.output_tail.endswith("a\ufffdb")


# Secrets


def tables(connection: Connection) -> str:
    """Every row of every table, as text."""
    names = connection.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'forgeflow'")
    found = []
    for (name,) in names.fetchall():
        found += [row[0] for row in connection.execute(f"SELECT t::text FROM {name} AS t").fetchall()]
    return "\n".join(found)


def surfaces(scene: Scene, job_id: UUID) -> dict[str, str]:
    ended = scene.run_of(job_id)
    paths = [
        f"/api/jobs/{job_id}",
        f"/api/runs/{ended.id}",
        f"/api/runs/{ended.id}/output",
        "/api/runs",
        "/metrics",
        "/",
    ]
    return {
        "tables": tables(scene.connection),
        "node log": scene.node.log_text(),
        "web log": scene.web.log.read_text(),
        **{path: scene.web.get(path).text for path in paths},
        "download": scene.web.get(f"/api/runs/{ended.id}/output", {"Accept": "text/plain"}).text,
        "titles": "\n".join(title(pid) for pid in [scene.node.pid, *descendants_of(scene.node.pid)]),
        "environ": "".join(
            Path(f"/proc/{pid}/environ").read_text(errors="replace")
            for pid in [scene.node.pid, *scene.node.workers(), scene.web.pid]
        ),
    }


def assert_hidden(scene: Scene, job_id: UUID) -> None:
    for spelling in (
        CANARY,
        CANARY[:8],
        CANARY[3:12],
        B64,
        json.dumps(CANARY)[2:-2],
    ):
        for name, text in surfaces(scene, job_id).items():
            assert spelling not in text, f"the secret is in {name}"


def test_function_has_its_secret_and_nobody_else_sees_it(scene: Scene, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    payload = {"function": "leak", "args": {"token": "secret:token", "file": str(tmp_path / "given")}}
    job_id = scene.submit("", executor="python", payload=payload)
    ended = scene.ended(job_id)
    assert (tmp_path / "given").read_text() == CANARY
    assert (ended.status, ended.error_type) == ("dead", "failed")
    assert "***" in ended.output_tail + ended.output_head
    wait_for(lambda: "printed ***" in scene.node.log_text() and "logged ***" in scene.node.log_text())
    assert "secret:token" in tables(scene.connection)
    assert_hidden(scene, job_id)


def test_command_has_its_secrets_and_nobody_else_sees_them(scene: Scene, tmp_path: Path) -> None:
    """Nor while it runs; in its progress neither."""
    tmp_path.chmod(0o777)
    lines = [
        f'printf %s "$TOKEN" > {tmp_path}/env; cat > {tmp_path}/stdin',
        'echo "env $TOKEN"; env; cat /proc/self/environ',
        'echo "7% with $TOKEN" >&$FORGEFLOW_PROGRESS_FD',
        f"while ! test -e {tmp_path}/goes-on; do sleep 0.05; done; exit 3",
    ]
    payload = {"command": "\n".join(lines), "env": {"TOKEN": "secret:token"}, "stdin": "<secret:token>"}
    job_id = scene.submit("", payload=payload)
    scene.seen(job_id)
    assert_hidden(scene, job_id)
    path = f"/api/runs/{scene.run_of(job_id).id}"
    assert scene.web.get(path).json()["progress"] == {"percent": 7, "note": "with ***"}
    (tmp_path / "goes-on").touch()
    ended = scene.ended(job_id)
    assert ((tmp_path / "env").read_text(), (tmp_path / "stdin").read_text()) == (CANARY, f"<{CANARY}>")
    assert (ended.status, ended.exit_code) == ("dead", 3)
    assert (ended.output_head + ended.output_tail).count("TOKEN=***") == 2
    assert_hidden(scene, job_id)


def test_request_has_its_secrets_and_nobody_else_sees_them(scene: Scene) -> None:
    with hostile_server() as server:
        payload = {
            "url": server.url("/echo"),
            "headers": {"X-Token": "Bearer secret:b64"},
            "body": {"token": ["secret:token"]},
            "expect_status": [204],
        }
        ended = scene.ended(job_id := scene.submit("", executor="http", payload=payload))
    assert (ended.status, ended.error) == ("dead", "answered 200, expected 204")
    assert server.requests[-1].headers["x-token"] == f"Bearer {B64}"
    assert json.loads(server.requests[-1].body) == {"token": [CANARY]}
    assert ended.output_head + ended.output_tail == '{"token":["***"]}'
    assert_hidden(scene, job_id)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("absent", "secret absent is missing; expected a file of that name in executor.secrets.folder or among the"),
        ("open", "secret open is refused: its file is accessible by group or others; expected mode 0600 or 0400"),
    ],
)
def test_run_whose_secret_is_not_to_be_had_is_not_started(scene: Scene, name: str, told: str, tmp_path: Path) -> None:
    payload = {"function": "leak", "args": {"token": f"secret:{name}", "file": str(tmp_path / "given")}}
    job_id = scene.submit("", executor="python", payload=payload)
    ended = scene.ended(job_id)
    assert (ended.status, ended.error_type, ended.failures) == ("dead", "not_started", 1)
    assert ended.error
    assert ended.error.startswith(told)
    assert not (tmp_path / "given").exists()
    assert_hidden(scene, job_id)
