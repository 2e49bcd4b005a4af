"""Every fault test fails when it leaves a process behind, and shows the logs of its nodes when it fails."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.processes import NodeProcess, nodes, nothing_left_behind
from tests.support.waiting import wait_for
from tests.support.wire import Wire

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture
def start_node(request: pytest.FixtureRequest, database_url: str) -> Iterator[Callable[..., NodeProcess]]:
    """Starts `forgeflow master` processes on the test's database; keywords are `section__key`."""
    item: pytest.Item = request.node
    with nothing_left_behind(), nodes(show_logs=lambda: item.stash.get(FAILED, False)) as start:
        yield lambda **settings: start(database_url, **settings)


@pytest.fixture
def wire(database_url: str) -> Iterator[Wire]:
    """Ask for it before start_node: a node that cannot say farewell at the end takes its time."""
    with Wire(database_url) as opened:
        yield opened


@pytest.fixture(params=["options,extra_float_digits"])
def pooler(request: pytest.FixtureRequest, database_url: str) -> Iterator[str]:
    """A real pgbouncer in transaction mode before the test's database; yields the URL through it.

    The parameter names what it ignores of a client's settings, instead of refusing it.
    """
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("pgbouncer is not installed")
        pytest.skip("pgbouncer is not installed")
    facts = conninfo_to_dict(database_url)
    folder = Path(tempfile.mkdtemp(prefix="forgeflow-pooler-"))
    folder.chmod(0o777)
    (folder / "users").write_text(f'"{facts["user"]}" "{facts["password"]}"\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={facts['host']} port={facts['port']}\n[pgbouncer]\nlisten_addr =\n"
        f"unix_socket_dir = {folder}\nlisten_port = 6432\nauth_type = scram-sha-256\nauth_file = {folder}/users\n"
        f"pool_mode = transaction\nignore_startup_parameters = {request.param}\n"
    )
    # It refuses to run as root, and the server's socket folder is its account's alone: be that one.
    owner = Path(str(facts["host"])).stat()
    is_root = os.geteuid() == 0
    process = subprocess.Popen(
        [program, "-q", str(folder / "pgbouncer.ini")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=owner.st_uid if is_root else None,
        group=owner.st_gid if is_root else None,
        extra_groups=[] if is_root else None,
    )
    try:
        wait_for(lambda: (folder / ".s.PGSQL.6432").exists() or process.poll() is not None)
        yield make_conninfo(database_url, host=str(folder), port=6432)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)
