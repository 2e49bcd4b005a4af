"""What a started program gets of the process that starts it: nothing that it was not given."""

import errno
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

_PRELUDE = """
    import errno, os, resource, sys, threading
    from pathlib import Path
    from forgeflow.process.spawn import spawn
    from forgeflow.process.fork import open_descriptors
    from forgeflow.process.oom import OwnScore
    from forgeflow.process.tree import become_subreaper, children

    become_subreaper()
    score = OwnScore()
    children()  # keeps a descriptor from its first call on

    def printed(command, program="/bin/sh", **settings):
        return output_of([program, "-c", command], **settings)

    def output_of(argv, workdir="/", least_score=0):
        pid, reading = spawn(argv, workdir=workdir, environment={"PATH": os.defpath},
                                    own_score=score, least_score=least_score)
        os.set_blocking(reading, True)
        with open(reading) as output:
            text = output.read()
        os.waitpid(pid, 0)
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
        print(printed("ls /proc/self/fd").split(), os.get_inheritable(200))
        """
    )
    assert told == "['0', '1', '2', '3'] True\n"  # 3 is ls reading the folder


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
