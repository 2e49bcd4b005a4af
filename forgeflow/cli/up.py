"""`forgeflow up`: everything on one machine, under one guard.

PostgreSQL, unless there is one, then the schema, then master and web process; all of it stops in the other order.
"""

import contextlib
import fcntl
import http.client
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from forgeflow.cli.guard import Guard, Interrupted, Postgres, Service, Signals, Watchdog, end_children
from forgeflow.config import Config, load_config
from forgeflow.embedded import EmbeddedServer, start_server
from forgeflow.errors import ConfigError, StateTaken
from forgeflow.log import set_up_logging
from forgeflow.process.privacy import become_private
from forgeflow.process.tree import become_subreaper
from forgeflow.store.connection import connect
from forgeflow.store.schema import migrate
from forgeflow.web.address import check_address


def run_up(config_file: str | None, *, listen: str | None, data_dir: str | None) -> int:
    """Serve everything until told to stop.  Raises as `serve_machine`."""
    masters = [Service("master", "master")]
    return serve_machine(config_file, listen=listen, data_dir=data_dir, masters=masters, greet=_greet)


def serve_machine(
    config_file: str | None,
    *,
    listen: str | None,
    data_dir: str | None,
    masters: Sequence[Service],
    greet: Callable[[Config], bool],
) -> int:
    """Serve with these masters, a web process and, unless a URL is given, PostgreSQL, until told to stop.

    `greet` is called until it says that it has greeted.  Raises ConfigError, AddressTaken, StateTaken before anything
    is started, StoreError before it serves.
    """
    overrides = {"server.listen": listen} if listen else {}
    config = load_config(config_file, overrides=overrides)
    set_up_logging(config.log)
    environment = _environment(config, config_file)
    check_address(config)
    become_private()
    become_subreaper()
    signals = Signals()
    try:
        with _database(config, data_dir, signals) as postgres:
            url = postgres.url if postgres else config.database.url
            with signals.interruptible():
                _migrate(load_config(config_file, overrides={**overrides, "database.url": url}))
            for master in masters:
                master.watchdog = _watchdog(config)
            code = Guard(signals, postgres, environment, lambda: greet(config), masters).run()
    except Interrupted:
        end_children(signals)
        code = 0
    finally:
        signals.close()
    say("ForgeFlow has stopped.")
    return code


def state_folder(data_dir: str | None) -> Path:
    """Where the embedded server keeps its data."""
    if data_dir:
        return Path(data_dir).absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/forgeflow")
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base).absolute() / "forgeflow"


@contextlib.contextmanager
def _database(config: Config, data_dir: str | None, signals: Signals) -> Iterator[Postgres | None]:
    """The embedded server, stopped at the end; None when there is another."""
    if config.database.url:
        yield None
        return
    state = state_folder(data_dir)
    with _held(state):
        with signals.interruptible():
            postgres = Postgres(lambda: _start_embedded(config, state))
        try:
            yield postgres
        finally:
            postgres.stop()


def _start_embedded(config: Config, state: Path) -> EmbeddedServer:
    binaries = config.database.embedded_bin
    # Each worker has one connection, courier and scheduler one each, the web a pool for each process.
    needed = config.worker.concurrency + config.server.workers * config.server.threads + 20
    server = start_server(
        state,
        account=config.database.embedded_user or None,
        binaries=Path(binaries) if binaries else None,
        max_connections=max(100, needed),
    )
    _tell_url(state / "postgres" / "url", server.url)
    return server


def _tell_url(file: Path, url: str) -> None:
    """For FORGEFLOW_DATABASE_URL_FILE of other commands; it holds the password, so it is ours alone."""
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(f"{url}\n")
    new.rename(file)


@contextlib.contextmanager
def _held(state: Path) -> Iterator[None]:
    """Be the only `forgeflow up` of that state folder: a second one would stop the database of the first.

    The kernel gives the lock back when this process ends, however it does; no child inherits it. A folder that
    start_server then refuses is left as it was.  Raises StateTaken, ConfigError.
    """
    lock = state / "up.lock"
    try:
        made = _make_folders(state)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigError(f"the state folder {state} cannot be used: {error.strerror}") from error
    try:
        _take(descriptor, state)
        try:
            yield
        finally:
            if not (state / "postgres").exists():
                lock.unlink()
                _remove_folders(made)
    finally:
        os.close(descriptor)


def _take(descriptor: int, state: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(descriptor, 20).decode(errors="replace").strip() or "unknown"
        raise StateTaken(
            f"another `forgeflow up` (pid {holder}) uses the state folder {state}: stop it, or give this one a folder "
            "of its own with --data-dir (`make run STATE=folder PORT=8081`)"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _make_folders(state: Path) -> list[Path]:
    """Create the folder and its missing parents, which are returned, deepest last.

    As root they are open to all, whatever our umask, for the account that runs PostgreSQL must get through.
    """
    made = []
    for folder in reversed((state, *state.parents)):
        if not folder.exists():
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                folder.chmod(0o755 if os.geteuid() == 0 else 0o700)
                made.append(folder)
    return made


def _remove_folders(made: list[Path]) -> None:
    with contextlib.suppress(OSError):  # somebody else has put something there
        for folder in reversed(made):
            folder.rmdir()


def _migrate(config: Config) -> None:
    connection = connect(config, "migrate")
    try:
        migrate(connection, config)
    finally:
        connection.close()


def _environment(config: Config, config_file: str | None) -> dict[str, str]:
    """What the services read beside the file: our environment, and what our own options and `up` itself decide.

    Raises ConfigError when the master would have nothing to do.
    """
    roles = [role for role in config.server.roles if role != "api"]
    if not roles:
        raise ConfigError("server.roles is api alone; expected scheduler, worker or both beside it")
    chosen = {"FORGEFLOW_LISTEN_ADDR": config.server.listen, "FORGEFLOW_ROLES": " ".join(roles)}
    if config_file:
        chosen["FORGEFLOW_CONFIG"] = str(Path(config_file).absolute())
    return {**os.environ, **chosen}


def _watchdog(config: Config) -> Watchdog:
    """As quick as the unit's, and quicker where leases are short."""
    worker = config.worker
    return Watchdog(min(15.0, worker.lease_duration - worker.heartbeat_interval - worker.fence_margin))


def _reachable(config: Config) -> tuple[str, int]:
    """Where we ourselves get at `server.listen`."""
    host, port = config.server.address()
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port


def answers(config: Config) -> bool:
    connection = http.client.HTTPConnection(*_reachable(config), timeout=1.0)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def address_of(config: Config) -> str:
    """Where a browser on this machine finds us."""
    host, port = _reachable(config)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _greet(config: Config) -> bool:
    """Once the API serves, say where, and how to try it; whether it does."""
    if not answers(config):
        return False
    address = address_of(config)
    say(
        f"""
ForgeFlow is up: {address}

Try a job:
  curl -X POST {address}/api/jobs -d '{{"name": "hello", "executor": "shell", "payload": {{"command": "echo hello"}}}}'
  curl {address}/api/runs

Ctrl-C stops everything; running jobs may finish. A second Ctrl-C stops them and hands them back.
"""
    )
    return True


def say(text: str) -> None:
    """To stdout; nobody needs to read it."""
    try:
        click.echo(text)
    except OSError:  # nobody reads it: the terminal was closed, `| head` has ended
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())  # or Python fails over what is still in its buffer
