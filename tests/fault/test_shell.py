"""The shell executor in a real worker: endings told apart, output, timeouts, trees."""

import os
import pwd
import signal
import subprocess
import sys
import tempfile
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forgeflow.process.link import Link
from forgeflow.service.jobs import submit_job
from forgeflow.service.requests import read_job_request
from forgeflow.store import runs
from forgeflow.store.connection import Connection, connect
from forgeflow.store.runs import RunRow
from tests.support.databases import config_for, drop_database, make_database
from tests.support.processes import nodes, nothing_left_behind, processes_marked
from tests.support.waiting import wait_for

Execute = Callable[..., RunRow]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root, or one with its capabilities, becomes others")


@pytest.fixture(scope="module")
def execute(server_url: str, template: str) -> Iterator[Execute]:
    """Runs a command as a job with one try, on a node of this module, and gives the ended run."""
    url = make_database(server_url, template=template)
    with nothing_left_behind(), nodes() as start, connect(config_for(url), "test") as connection:
        start(url, executor__shell__run_as_allowed="nobody no-such-user").wait_for_log("node ready")
        yield lambda command, **fields: _execute(connection, command, fields)
    drop_database(server_url, url)


def _execute(connection: Connection, command: str, fields: dict[str, Any]) -> RunRow:
    body = {"name": "job", "executor": "shell", "payload": {"command": command}, "max_attempts": 1, **fields}
    job_id = submit_job(connection, read_job_request(body), source="api").job.id

    def ended() -> list[RunRow]:
        found = runs.list_runs(connection, job_id=job_id, status=None, before=None, max_rows=1)
        return [run for run in found if run.finished_at]

    (run,) = wait_for(ended, why=f"the end of {command!r}")
    whole = runs.get_run(connection, run_id=run.id)
    assert whole
    return whole


@pytest.mark.parametrize(
    ("command", "exit_code", "error_type", "error"),
    [
        ("exit 0", 0, None, None),
        ("exit 3", 3, "failed", "exit code 3"),
        ("kill -9 $$", None, "signalled", "ended by signal 9 (SIGKILL)"),
        ("kill -TERM $$", None, "signalled", "ended by signal 15 (SIGTERM)"),
        ("kill -40 $$", None, "signalled", "ended by signal 40 (SIGRTMIN+6)"),
        ("no-such-command-here", 127, "not_found", "exit code 127 (command not found)"),
        ("/etc/passwd", 126, "failed", "exit code 126 (found, but could not be executed)"),
    ],
)
def test_exit_code_signal_and_missing_binary_are_told_apart(
    execute: Execute, command: str, exit_code: int | None, error_type: str | None, error: str | None
) -> None:
    run = execute(command)
    assert (run.exit_code, run.error_type, run.error) == (exit_code, error_type, error)
    assert run.status == ("succeeded" if error is None else "dead")


def test_timeout_ends_the_whole_group(execute: Execute) -> None:
    marker = uuid.uuid4().hex
    run = execute(f"sleep 61 & sleep 62; echo never # {marker}", timeout_seconds=0.4)
    assert (run.error_type, run.error) == ("timed_out", "still running after 0.4 s, stopped")
    assert run.output_head == ""
    assert not processes_marked(marker)


def test_command_that_answers_term_in_time_may_say_goodbye(execute: Execute) -> None:
    run = execute("trap 'echo goodbye; exit 0' TERM; sleep 60 & wait", timeout_seconds=0.4)
    assert (run.error_type, run.output_head, run.exit_code) == ("timed_out", "goodbye\n", 0)


def test_command_that_ignores_term_is_killed_after_the_grace(execute: Execute) -> None:
    marker = uuid.uuid4().hex
    run = execute(f"trap '' TERM; sleep 60; sleep 60 # {marker}", timeout_seconds=0.3)
    assert (run.error_type, run.exit_code) == ("timed_out", None)
    assert not processes_marked(marker)


def test_command_that_prints_without_end_is_ended_by_its_timeout(execute: Execute) -> None:
    run = execute("yes", timeout_seconds=0.4)
    assert (run.error_type, run.output_head[:4]) == ("timed_out", "y\ny\n")


_EXECUTE_ALONE = """
    import dataclasses, socket, sys, uuid
    from forgeflow.config import load_config
    from forgeflow.executors.output import OutputKeeper
    from forgeflow.executors.shell import ShellExecutor
    from forgeflow.process.clock import boottime
    from forgeflow.process.link import Link
    from forgeflow.process.page import SharedPage
    from forgeflow.process.tree import become_subreaper, children
    from forgeflow.worker.orders import WorkerOrders
    from tests.support.scenario import claimed_run

    become_subreaper()
    config = load_config(environ={"FORGEFLOW_DATABASE_URL": "postgresql://user@host/name"})
    page = SharedPage(1)
    link = Link(socket.socket(fileno=int(sys.argv[1])))
    orders = WorkerOrders(link, page, 0, config.worker.fence())
    page.set_lease_end(0, boottime() + config.worker.fence_margin + float(sys.argv[3]))
    run = dataclasses.replace(claimed_run(payload={"command": sys.argv[2]}), id=uuid.UUID(int=1))
    ending = ShellExecutor(config)(run, orders, OutputKeeper(1024))
    print(ending.failure.error_type, children())
"""


@pytest.mark.parametrize("command", ["sleep 60", "yes"])
@pytest.mark.parametrize("reason", ["cancelled", "interrupted", "lost", "fenced"])
def test_what_ends_a_run_is_heard_whether_its_command_prints_or_not(command: str, reason: str, tmp_path: Path) -> None:
    ours, theirs = Link.pair()
    begun = tmp_path / "begun"
    lease_seconds = 1.0 if reason == "fenced" else 60.0
    worker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(_EXECUTE_ALONE),
            str(theirs.fileno()),
            f": > {begun}; exec {command}",
            str(lease_seconds),
        ],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    try:
        wait_for(lambda: begun.exists() or worker.poll() is not None, why="the command")
        match reason:
            case "cancelled":
                ours.send("CANCEL", run=str(uuid.UUID(int=1)), attempt=1)
            case "interrupted":
                ours.send("STOP")
            case "lost":
                ours.close()
        told, _ = worker.communicate(timeout=30)
    finally:
        worker.kill()
        worker.wait()
        ours.close()
    assert told == f"{reason} []\n"


def test_command_that_left_its_group_is_ended_by_its_timeout(execute: Execute) -> None:
    marker = uuid.uuid4().hex
    leave = f"import os, signal; os.setpgid(0, os.getpgid(os.getppid())); signal.pause()  # {marker}"
    run = execute(f"exec python3 -c '{leave}'", timeout_seconds=0.5)
    assert run.error_type == "timed_out"
    assert run.finished_at
    assert run.started_at
    assert (run.finished_at - run.started_at).total_seconds() < 30
    assert not processes_marked(marker)


def test_timeout_of_a_year_is_watched_like_any_other(execute: Execute) -> None:
    """poll takes no more than 24 days; the command once went on unwatched, and ran at each try at once."""
    run = execute("echo once; sleep 0.2", timeout_seconds=366 * 86400)
    assert (run.status, run.output_head, run.attempt) == ("succeeded", "once\n", 1)


def test_stopped_command_is_ended_by_its_timeout(execute: Execute) -> None:
    assert execute("kill -STOP $$; echo woken", timeout_seconds=0.4).error_type == "timed_out"


def test_what_a_command_leaves_behind_ends_with_it(execute: Execute) -> None:
    marker = uuid.uuid4().hex
    quiet = f"(setsid sh -c 'trap \"\" TERM; sleep 300; sleep 300 # {marker}' >/dev/null 2>&1 &)"
    holding = f"(setsid sh -c 'sleep 301; sleep 301 # {marker}' &)"
    run = execute(f"{quiet}; {holding}; echo done")
    assert (run.status, run.output_head) == ("succeeded", "done\n")
    assert not processes_marked(marker)


def test_background_process_may_finish_its_line(execute: Execute) -> None:
    assert execute("(sleep 0.2; echo late) & echo early").output_head == "early\nlate\n"


def test_output_is_capped_and_counted(execute: Execute) -> None:
    run = execute("echo begin; yes | head -c 5000000; echo end")
    assert run.status == "succeeded"
    assert run.output_bytes == 5_000_010
    assert len(run.output_head) == len(run.output_tail) == 64 * 1024
    assert run.output_head.startswith("begin\ny\n")
    assert run.output_tail.endswith("y\nend\n")


def test_nul_and_broken_utf8_in_the_output_do_not_stop_the_run_from_ending(execute: Execute) -> None:
    run = execute(r"printf 'a\000b\377c'")
    assert (run.status, run.output_head, run.output_bytes) == ("succeeded", "a\ufffdb\ufffdc", 5)


def test_command_starts_from_a_clean_slate(execute: Execute) -> None:
    """stdin is empty, no descriptor of the worker, no blocked or ignored signal, only the variables allowed."""
    run = execute("cat; ls /proc/self/fd | tr '\\n' ' '; grep -E 'SigBlk|SigIgn' /proc/self/status; env | cut -d= -f1")
    first, *rest = run.output_head.splitlines()
    assert first.startswith("0 1 2 3 4 SigBlk:\t0000000000000000")  # 3 is ls reading the folder, 4 takes progress
    # make hands 32 and 33 down ignored; they are the C library's own, and no program can change them.
    assert int(rest[0].split()[1], 16) & ~(0b11 << 31) == 0
    names = {name for name in rest[1:] if not name.startswith("FORGEFLOW_")}
    assert names <= {"PATH", "HOME", "LANG", "TZ", "PWD", "OLDPWD", "SHLVL", "_"}
    assert "DATABASE" not in run.output_head


def test_command_leads_its_own_group(execute: Execute) -> None:
    run = execute("echo $$; ps -o pgid= -p $$ | tr -d ' '")
    own, group = run.output_head.split()
    assert own == group


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"executor__shell__shell": "/no/such/shell"}, "executor.shell.shell is /no/such/shell"),
        ({"executor__shell__workdir": "/no/such/folder"}, "executor.shell.workdir is /no/such/folder"),
    ],
)
def test_node_that_could_start_no_command_does_not_serve(
    server_url: str, template: str, settings: dict[str, str], reason: str
) -> None:
    """Every run would be charged for it."""
    url = make_database(server_url, template=template)
    with nothing_left_behind(), nodes() as start:
        node = start(url, **settings)
        assert node.wait() == 3
        assert reason in node.log_text()
    drop_database(server_url, url)


LITERAL = "a; touch /tmp/$(id) `id`\n\"quoted\" 'twice' * ~ \N{SNOWMAN}"


def test_arguments_and_variables_arrive_as_they_are(execute: Execute) -> None:
    run = execute("", payload={"argv": ["printf", "%s|", LITERAL, "", "-n"]})
    assert (run.status, run.output_head) == ("succeeded", f"{LITERAL}||-n|")
    run = execute("", payload={"command": 'printf %s "$WHAT"', "env": {"WHAT": LITERAL}})
    assert (run.status, run.output_head) == ("succeeded", LITERAL)


def test_variables_of_a_payload_stand_beside_those_of_the_run(execute: Execute) -> None:
    env = {"PATH": "/bin:/usr/bin", "LC_CTYPE": "C", "EMPTY": ""}
    run = execute("", payload={"command": 'echo "$PATH $LC_CTYPE ${EMPTY-no} ${FORGEFLOW_ATTEMPT}"', "env": env})
    assert run.output_head == "/bin:/usr/bin C  1\n"


@pytest.mark.parametrize("size", [0, 5, 700_000])
def test_stdin_is_given_whole_however_much_is_printed_meanwhile(execute: Execute, size: int) -> None:
    run = execute(
        "", payload={"command": "head -c 300000 /dev/zero; wc -c; readlink /proc/$$/fd/0", "stdin": "\xe9" * size}
    )
    assert run.status == "succeeded"
    assert run.output_tail.lstrip("\ufffd").split()[0] == str(2 * size)


def test_stdin_that_is_not_read_is_no_failure(execute: Execute) -> None:
    assert execute("", payload={"command": "true", "stdin": "x" * 500_000}).status == "succeeded"


def test_command_starts_in_its_folder(execute: Execute, tmp_path: Path) -> None:
    assert execute("", payload={"argv": ["pwd"], "workdir": "/usr/share"}).output_head == "/usr/share\n"


@pytest.mark.parametrize(("command", "status"), [("exit 0", "succeeded"), ("exit 7", "succeeded"), ("exit 1", "dead")])
def test_which_exit_codes_are_success_is_the_payloads_to_say(execute: Execute, command: str, status: str) -> None:
    run = execute("", payload={"command": command, "success_codes": [0, 7]})
    assert (run.status, run.exit_code) == (status, int(command[-1]))


def test_zero_is_no_success_where_it_is_not_named(execute: Execute) -> None:
    run = execute("", payload={"command": "true", "success_codes": [75]})
    assert (run.status, run.error) == ("dead", "exit code 0")


def test_exit_75_is_tried_again_and_charged_to_nobody(execute: Execute) -> None:
    run = execute("[ $FORGEFLOW_ATTEMPT -gt 3 ] || exit 75")
    assert (run.status, run.attempt, run.failures) == ("succeeded", 4, 0)


@pytest.mark.parametrize(
    ("payload", "error_type", "error"),
    [
        ({"argv": ["no-such-program-here", "x"]}, "not_found", "the program was not found: no-such-program-here"),
        ({"argv": ["/etc/passwd"]}, "not_started", "the command was not started: Permission denied: /etc/passwd"),
        ({"argv": ["/etc"]}, "not_started", "the command was not started: Permission denied: /etc"),
        (
            {"command": "true", "workdir": "/no/such/folder"},
            "not_started",
            "the command was not started: No such file or directory: /no/such/folder",
        ),
        (
            {"command": "true", "workdir": "/etc/passwd"},
            "not_started",
            "the command was not started: Not a directory: /etc/passwd",
        ),
        (
            {"argv": ["true", *["x" * 131_000] * 20]},
            "not_started",
            "the command was not started: Argument list too long",
        ),
        (
            {"command": "true", "run_as": "root"},
            "not_started",
            "jobs do not run as root on this node: executor.shell.run_as_allowed does not name that user",
        ),
    ],
)
def test_command_that_cannot_be_started_says_why(
    execute: Execute, payload: dict[str, Any], error_type: str, error: str
) -> None:
    run = execute("", payload=payload)
    assert (run.status, run.outcome, run.error_type) == ("dead", "could_not_start", error_type)
    assert run.error is not None
    assert run.error.removesuffix(": true") == error


def test_limits_hold_for_the_command_alone(execute: Execute) -> None:
    limits = {"memory": 1024**3, "cpu": 7, "files": 77, "processes": 5000, "core": 0}
    run = execute("", payload={"command": "ulimit -v; ulimit -t; ulimit -n; ulimit -c; ulimit -Hn", "limits": limits})
    assert run.output_head.split() == [str(1024**2), "7", "77", "0", "77"]
    assert execute("ulimit -n").output_head != "77\n"


def test_command_that_takes_more_cpu_than_its_limit_is_ended_by_the_kernel(execute: Execute) -> None:
    run = execute("", payload={"command": "while :; do :; done", "limits": {"cpu": 1}})
    assert (run.outcome, run.signal, run.error) == ("crashed", signal.SIGXCPU, "ended by signal 24 (SIGXCPU)")


WHOAMI = """
    id -u; id -g; id -G; echo $HOME $USER $LOGNAME ${LC_CTYPE-none}
    echo $(grep -E '^(NoNewPrivs|Cap(Inh|Prm|Eff|Amb))' /proc/self/status | tr -d '\\t')
    echo $(ls /proc/self/fd)
"""


@needs_root
def test_command_runs_as_another_user_whole_and_for_good(execute: Execute) -> None:
    nobody = pwd.getpwnam("nobody")
    run = execute("", payload={"command": WHOAMI, "run_as": "nobody", "workdir": "/"})
    uid, gid, groups, home, status, descriptors = run.output_head.splitlines()
    assert (int(uid), int(gid)) == (nobody.pw_uid, nobody.pw_gid)
    assert set(map(int, groups.split())) == set(os.getgrouplist("nobody", nobody.pw_gid))
    assert home == f"{nobody.pw_dir} nobody nobody none"
    nothing = "0" * 16
    assert status.split() == [*(f"Cap{kind}:{nothing}" for kind in ("Inh", "Prm", "Eff", "Amb")), "NoNewPrivs:1"]
    assert descriptors.split() == ["0", "1", "2", "3", "4"]


@needs_root
def test_variables_of_a_job_are_heeded_only_once_it_is_the_other_user(execute: Execute) -> None:
    """Those of the dynamic linker can make any program do anything; this one has each program leave a file."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        env = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{folder}/linked"}
        execute("", payload={"command": "true", "run_as": "nobody", "workdir": "/", "env": env})
        owners = {file.stat().st_uid for file in Path(folder).iterdir()}
    assert owners == {pwd.getpwnam("nobody").pw_uid}


@needs_root
def test_other_users_command_is_stopped_with_all_that_it_has_left(execute: Execute) -> None:
    marker = uuid.uuid4().hex
    command = f"trap '' TERM; setsid sh -c 'sleep 61; : {marker}' & sleep 62; : {marker}"
    run = execute("", payload={"command": command, "run_as": "nobody", "workdir": "/"}, timeout_seconds=0.6)
    assert run.error_type == "timed_out"
    assert not processes_marked(marker)


@needs_root
@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"argv": ["true"], "run_as": "no-such-user"}, "there is no user no-such-user on this machine"),
        (
            {"argv": ["true"], "run_as": "nobody", "workdir": "/root"},
            "the command was not started: /root: Permission denied",
        ),
        (
            {"argv": ["no-such-program"], "run_as": "nobody", "workdir": "/", "env": {"PATH": "/bin"}},
            "the command was not started: no-such-program: No such file or directory",
        ),
    ],
)
def test_what_another_user_cannot_start_does_not_run_as_us(
    execute: Execute, payload: dict[str, Any], error: str
) -> None:
    run = execute("", payload=payload)
    assert (run.error_type, run.error) == ("not_started", error)


def test_command_that_prints_our_own_forms_changes_nothing(execute: Execute) -> None:
    """What a job says on its output is output, whatever it looks like."""
    forms = [
        '{"kind":"STOP"}',
        '{"kind":"DRAIN"}',
        "42% done",
        '{"timestamp":"2026-12-01T00:00:00Z","level":"error","event":"node stopped"}',
        "READY=1",
        r"\000\033]0;title\007",
    ]
    run = execute("", payload={"argv": ["printf", r"%b\n", *forms]})
    assert (run.status, run.progress) == ("succeeded", None)
    assert execute("echo again").output_head == "again\n"
