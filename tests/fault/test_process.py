"""Forking, and trees of processes."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from forgeflow.process import tree
from forgeflow.process.tree import kill_child, signal_group


def run_python(source: str, timeout_seconds: float = 20.0) -> str:
    """Run a program of its own, for these functions act on all children of their process."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, timeout=timeout_seconds
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("leader", [-1, 0, 1])
def test_dangerous_ids_are_refused(leader: int) -> None:
    with pytest.raises(ValueError, match="refusing"):
        signal_group(leader, signal.SIGKILL)
    with pytest.raises(ValueError, match="refusing"):
        kill_child(leader)


def test_own_group_is_refused() -> None:
    with pytest.raises(ValueError, match="refusing"):
        signal_group(os.getpgrp(), signal.SIGKILL)


def test_sub_reaper_ends_fifty_descendants_in_three_sessions() -> None:
    told = run_python(
        """
        import subprocess
        from forgeflow.process.tree import Strays, become_subreaper, children
        become_subreaper()
        nest = "for i in $(seq 16); do (trap '' TERM; sleep 60; sleep 60) & done; sleep 60"
        for _ in range(3):
            subprocess.Popen(["setsid", "sh", "-c", f"({nest}) & exit 0"]).wait()
        killed = Strays().kill_until_none()
        print(killed >= 3, children())
        """
    )
    assert told == "True []\n"


def test_each_process_of_a_command_gets_a_signal_once() -> None:
    """The first process by its group alone: a second TERM tells many programs to drop everything."""
    told = run_python(
        """
        import os, signal, subprocess, sys
        from forgeflow.process.tree import signal_tree
        counter = (
            "import signal\\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])\\n"
            "print(flush=True)\\n"
            "n = 0\\n"
            "while signal.sigwait([signal.SIGTERM, signal.SIGUSR1]) == signal.SIGTERM:\\n"
            "    n += 1\\n"
            "print(n, flush=True)\\n"
        )
        counts = 0
        child = subprocess.Popen([sys.executable, "-c", counter], process_group=0, stdout=subprocess.PIPE)
        child.stdout.readline()
        for _ in range(200):
            signal_tree(child.pid, signal.SIGTERM)
            # Until it has taken that one: it is not pending any more.
            while int(open(f"/proc/{child.pid}/status").read().partition("ShdPnd:")[2].split()[0], 16):
                pass
        child.send_signal(signal.SIGUSR1)
        print(child.stdout.readline().decode().strip())
        child.wait()
        """
    )
    assert told == "200\n"


def test_forked_child_starts_clean(tmp_path: Path) -> None:
    """No descriptor but stdio and its own, an empty mask, no ignored signal that a job would inherit, a session."""
    told = run_python(
        """
        import os, signal, socket, sys
        from pathlib import Path
        from forgeflow.process.fork import fork_child
        signal.signal(signal.SIGTERM, lambda *a: None)
        left, right = socket.socketpair()
        signal.set_wakeup_fd(left.fileno()) if left.setblocking(False) is None else None
        extra = os.open("/dev/null", os.O_RDONLY)
        kept = os.open("/dev/null", os.O_RDONLY)

        def child():
            status = Path("/proc/self/status").read_text()
            blocked = status.partition("SigBlk:\\t")[2].split()[0]
            fds = [fd for fd in range(100) if Path(f"/proc/self/fd/{fd}").exists()]
            job = os.popen("grep -E 'SigBlk|SigIgn' /proc/self/status").read().split()
            ignored = int(job[1], 16) & ~(0b11 << 31)  # 32 and 33 are the C library's own
            print(fds == [0, 1, 2, kept], blocked, ignored == 0, os.getsid(0) == os.getpid(), flush=True)
            return 7

        pid = fork_child(child, keep=[kept])
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    first, second = told.splitlines()
    assert first == "True 0000000000000000 True True"
    assert second == "7"


def test_child_dies_with_its_parent() -> None:
    told = run_python(
        """
        import os, signal
        from forgeflow.process.fork import fork_child
        from forgeflow.process.tree import become_subreaper
        become_subreaper()
        reading, writing = os.pipe()
        parent = os.fork()
        if parent == 0:
            def grandchild():
                os.write(writing, str(os.getpid()).encode())
                signal.pause()
                return 0
            fork_child(grandchild, keep=[writing])
            signal.pause()
        grandchild = int(os.read(reading, 20))
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        print(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
        """
    )
    assert told == "-9\n"


def test_exception_in_a_child_is_its_exit_code_and_never_the_parents_stack() -> None:
    told = run_python(
        """
        import os
        from forgeflow.process.fork import fork_child
        def child():
            raise KeyError("oops")
        pid = fork_child(child, keep=[])
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    assert told == "70\n"


def test_process_with_a_thread_must_not_fork() -> None:
    told = run_python(
        """
        import threading
        from forgeflow.process.fork import fork_child
        stop = threading.Event()
        threading.Thread(target=stop.wait).start()
        try:
            fork_child(lambda: 0, keep=[])
        except AssertionError as error:
            print(error)
        stop.set()
        """
    )
    assert told == "a process with threads must not fork\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a program that changes its user")
def test_process_under_another_user_is_left_alone_and_known(tmp_path: Path) -> None:
    """What sudo leaves in the background cannot be killed by us, and must cost nobody else anything."""
    folder = Path(tempfile.mkdtemp(prefix="forgeflow-setuid-"))
    folder.chmod(0o755)
    program = folder / "become-root"
    shutil.copy("/usr/bin/perl", program)
    shutil.copy(tree.__file__, folder)  # the other account may not be allowed into the checkout
    program.chmod(0o4755)
    source = f"""
        import subprocess, sys
        sys.path.insert(0, {str(folder)!r})
        from tree import Strays, become_subreaper, children
        become_subreaper()
        root = subprocess.Popen([{str(program)!r}, "-e", '$< = 0; print "root\\n"; $| = 1; sleep 30'],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        ordinary = subprocess.Popen(["sleep", "30"])
        assert root.stdout.readline() == b"root\\n"
        strays = Strays()
        met = strays.kill_until_none()
        print(met, strays.immune == {{root.pid}}, children() == [root.pid], strays.kill())
        """
    process = subprocess.Popen(
        ["/usr/bin/python3", "-c", textwrap.dedent(source)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        user="nobody",
        group="nogroup",
        extra_groups=[],
        start_new_session=True,
    )
    try:
        told, trouble = process.communicate(timeout=20)
    finally:
        subprocess.run(["pkill", "-KILL", "-f", str(program)], check=False)
        shutil.rmtree(folder)
    assert told == "2 True True 0\n", trouble


def test_closed_standard_descriptors_are_opened_on_nothing() -> None:
    done = subprocess.run(
        [
            "/bin/sh",
            "-c",
            f'exec {sys.executable} -c "'
            "from forgeflow.process.fork import open_standard_descriptors; open_standard_descriptors();"
            "import os, sys; sys.stdout.write(str(1)); sys.stdout.flush();"
            "sys.exit(0 if os.readlink('/proc/self/fd/1') == os.readlink('/proc/self/fd/2') == '/dev/null' else 9)"
            '" <&- >&- 2>&-',
        ],
        check=False,
    )
    assert done.returncode == 0
