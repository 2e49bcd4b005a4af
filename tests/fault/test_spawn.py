"""What a started program gets of the process that starts it: nothing that it was not given."""

import errno
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from forgeflow.process import become, capabilities

_PRELUDE = """
    import errno, os, resource, sys, threading
    from pathlib import Path
    from forgeflow.process.spawn import ProgressSlot, Start, spawn
    from forgeflow.process.fork import open_descriptors
    from forgeflow.process.oom import OwnScore
    from forgeflow.process.tree import become_subreaper, children

    become_subreaper()
    score, slot = OwnScore(), ProgressSlot()
    children()  # keeps a descriptor from its first call on

    def printed(command, program="/bin/sh", **settings):
        return output_of([program, "-c", command], **settings)

    def output_of(argv, workdir="/", least_score=0):
        start = Start(argv, workdir=workdir, environment={"PATH": os.defpath})
        started = spawn(start, own_score=score, least_score=least_score, slot=slot)
        os.set_blocking(started.output, True)
        with open(os.dup(started.output)) as output:
            text = output.read()
        os.waitpid(started.pid, 0)
        started.close()
        return text
"""


def run_python(source: str, *arguments: str) -> str:
    """Run a program of its own: the limits and folders that they set are the process's."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PRELUDE) + textwrap.dedent(source), *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_signals_that_python_ignores_are_not_ignored_by_the_program() -> None:
    """`yes | head` would go on for ever, or fail, without SIGPIPE."""
    told = run_python(
        """
        # Not by way of a shell: some clear the mask themselves.
        print(output_of(["/bin/grep", "-E", "SigBlk|SigIgn", "/proc/self/status"]))
        """
    )
    # 32 and 33 are the C library's own, and no program can change them.
    assert [int(word, 16) & ~(0b11 << 31) for word in told.split()[1::2]] == [0, 0]


def test_descriptors_that_others_left_inheritable_are_not_handed_down() -> None:
    told = run_python(
        """
        left = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
        for descriptor in left:
            os.set_inheritable(descriptor, True)
        os.dup2(left[0], 200)
        print(printed("ls /proc/self/fd").split(), slot.number, os.get_inheritable(200))
        """
    )
    assert told == "['0', '1', '2', '3', '5'] 5 True\n"  # 3 is ls reading the folder, 5 takes progress


def test_stdin_is_empty_and_output_is_one_pipe() -> None:
    told = run_python("print(printed('cat; readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2'))")
    stdin, stdout, stderr = told.split()
    assert stdin == "/dev/null"
    assert stdout == stderr
    assert stdout.startswith("pipe:")


def test_program_leads_its_group_in_its_folder_and_we_stay_in_ours(tmp_path: Path) -> None:
    told = run_python(
        """
        os.chdir("/usr")
        print(printed("pwd; ps -o pgid= -p $$ | grep -cw $$", workdir=sys.argv[1]), os.getcwd())
        """,
        str(tmp_path),
    )
    assert told.split() == [str(tmp_path), "1", "/usr"]


def test_folder_of_a_thread_does_not_change_while_a_program_is_started(tmp_path: Path) -> None:
    """It is the process's: a thread that a function has left would write its files somewhere else for a moment."""
    told = run_python(
        """
        os.chdir("/usr")
        seen, is_over = set(), threading.Event()
        def look():
            while not is_over.is_set():
                seen.add(os.getcwd())
        sys.setswitchinterval(1e-5)
        thread = threading.Thread(target=look)
        thread.start()
        folders = {printed("pwd", workdir=sys.argv[1]) for _ in range(100)}
        is_over.set()
        thread.join()
        print(seen, len(folders))
        """,
        str(tmp_path),
    )
    assert told == "{'/usr'} 1\n"


def test_program_is_ended_for_want_of_memory_before_us() -> None:
    told = run_python(
        """
        read = lambda: int(Path("/proc/self/oom_score_adj").read_text())
        before = read()
        for least in (before + 40, before - 40):
            job = int(printed("cat /proc/self/oom_score_adj", least_score=least))
            print(job - before, read() - before)
        """
    )
    assert told == "40 0\n0 0\n"


@pytest.mark.parametrize(
    ("wrong", "number", "to_blame"),
    [
        ({"program": "/no/such/shell"}, errno.ENOENT, "/no/such/shell"),
        ({"program": "/etc/passwd"}, errno.EACCES, "/etc/passwd"),
        ({"workdir": "/no/such/folder"}, errno.ENOENT, "/no/such/folder"),
        ({"workdir": "/etc/passwd"}, errno.ENOTDIR, "/etc/passwd"),
    ],
)
def test_program_that_cannot_be_started_leaves_nothing_behind(
    wrong: dict[str, str], number: int, to_blame: str
) -> None:
    told = run_python(
        f"""
        os.chdir("/usr")
        state = lambda: (open_descriptors(), os.getcwd(), Path("/proc/self/oom_score_adj").read_text(), children())
        before = state()
        try:
            printed("true", least_score=int(before[2]) + 1, **{wrong!r})
        except OSError as error:
            print(error.errno, error.filename, state() == before)
        """
    )
    assert told == f"{number} {to_blame} True\n"


def test_want_of_descriptors_at_any_point_is_told_and_leaves_nothing_behind() -> None:
    """Whichever the last one was needed for; what the machine lacks is not held against a job."""
    told = run_python(
        """
        taken = [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) for _ in range(20)]
        before, own = open_descriptors(), os.getcwd()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(taken)
        failures = 0
        for room in range(1, 20):
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + room, hard))
            try:
                text = printed("echo started")
            except OSError as error:
                assert error.errno == errno.EMFILE, error
                failures += 1
            else:
                assert text == "started\\n", text
                break
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert (open_descriptors(), os.getcwd(), children()) == (before, own, [])
        print(failures >= 2, open_descriptors() == before)
        """
    )
    assert told == "True True\n"


_GRANTED = """
    import json, os, subprocess, sys
    sys.path.insert(0, sys.argv[1])
    from capabilities import keep_to_ourselves, lent, may_switch_user

    facts = "id -u; id -G; grep -E 'Cap(Inh|Prm|Eff|Amb)|NoNewPrivs' /proc/self/status"
    def told(argv, **settings):
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, **settings)
        return [word for word in done.stdout.split() if word[0].isdigit()]

    def become(uid):
        reading, writing = os.pipe()
        user = {"uid": uid, "gid": uid, "groups": [uid]}
        spec = os.memfd_create("spec")
        os.write(spec, json.dumps({"user": user, "limits": {}, "workdir": "/", "environment": {}}).encode())
        os.lseek(spec, 0, os.SEEK_SET)
        script = sys.argv[1] + "/become.py"
        argv = [sys.executable, "-I", "-S", script, str(writing), str(spec), "/bin/sh", "-c", facts]
        with lent():
            words = told(argv, pass_fds=(writing, spec))
        os.close(writing)
        return words, os.read(reading, 1000).decode()

    print(may_switch_user())
    if may_switch_user():
        keep_to_ourselves()
        print(told(["/bin/sh", "-c", facts]))
        print(*become(1))
        print(told(["/bin/sh", "-c", facts]))
"""


def _as_nobody(*granted: str) -> list[str]:
    """What that prints as nobody, whose unit has granted it these capabilities."""
    folder = Path(tempfile.mkdtemp(prefix="forgeflow-granted-"))  # nobody may not be allowed into the checkout
    folder.chmod(0o755)
    for module in (capabilities, become):
        shutil.copy(str(module.__file__), folder)
    names = ",".join(f"+{name}" for name in granted)
    grants = [f"--inh-caps={names}", f"--ambient-caps={names}"] if granted else []
    argv = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *grants, "/usr/bin/python3"]
    try:
        done = subprocess.run(
            [*argv, "-c", textwrap.dedent(_GRANTED), str(folder)],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            cwd="/",
        )
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


NOTHING = "0000000000000000"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can grant a capability")
def test_capabilities_of_the_node_are_lent_to_none_but_who_switches_users() -> None:
    may, before, switched, after = _as_nobody("setuid", "setgid", "kill")
    assert may == "True"
    nobody = pwd.getpwnam("nobody").pw_uid
    plain = str([str(nobody), str(pwd.getpwnam("nobody").pw_gid), *[NOTHING] * 4, "0"])
    assert (before, after) == (plain, plain)
    assert switched == str(["1", "1", *[NOTHING] * 4, "1"]) + " "


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take its own away")
def test_node_without_capabilities_knows_that_it_cannot_switch_users() -> None:
    assert _as_nobody() == ["False"]
