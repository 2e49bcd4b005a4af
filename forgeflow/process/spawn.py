"""Starting a program that shares nothing with us: no descriptor, no process group.

By subprocess, which starts it by vfork as long as it gets no `preexec_fn`, user, group or umask: fork copies the page
tables of all that a worker has loaded, and takes four times as long. Not by os.posix_spawn, though it is quicker by
the twentieth part of a short command: it takes no folder to start in, and to go there ourselves would take our
threads with us.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence

from forgeflow.process.fork import heed_signals
from forgeflow.process.oom import OwnScore


def spawn(
    argv: Sequence[str], *, workdir: str, environment: Mapping[str, str], own_score: OwnScore, least_score: int
) -> tuple[int, int]:
    """Start a program; returns its process id and the reading end, which never blocks, of what it prints.

    It leads a process group, reads nothing and has at least this out-of-memory score; signals that Python ignores
    are at their defaults. Blocks until it is executed.  Raises OSError, `filename` the program or the folder that is
    to blame, when it cannot be; then nothing of it is left.
    """
    heed_signals()  # a function that was called before may have left some blocked or ignored
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        os.set_blocking(reading, False)
        before = own_score.raise_to(least_score)
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                cwd=workdir,
                env=environment,
                process_group=0,
            )
        finally:
            own_score.restore(before)
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    process.returncode = 0  # whoever has started it reaps it, not subprocess
    return process.pid, reading
