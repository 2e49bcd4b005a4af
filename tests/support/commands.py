"""`forgeflow` as a user starts it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.databases import INTERVALS

SECRET = "hunter2"
# For every process of ours: only what a user's installation has.
BARE = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).with_name("absent"))}


def environment(**variables: str) -> dict[str, str]:
    intervals = {f"FORGEFLOW_{name}".upper().replace(".", "_"): value for name, value in INTERVALS.items()}
    return {**BARE, "FORGEFLOW_CONCURRENCY": "2", **intervals, **variables}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "forgeflow.cli", *arguments]


def run(folder: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `forgeflow`, started in that folder."""
    done = subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stdout + done.stderr
    return done.returncode, done.stdout, done.stderr


def refused(folder: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    """Exit code and the one sentence."""
    code, output, complaint = run(folder, *arguments, **variables)
    assert output == ""
    (line,) = complaint.splitlines()
    assert line.startswith("forgeflow: ")
    return code, line.removeprefix("forgeflow: ")
