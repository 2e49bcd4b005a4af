"""The settings of a node, read once, checked whole, never changed.

Order of strength: environment, then file, then default. Every key is declared once, in a section below; the
commented list for people is `conf/forgeflow.ini`, and a test holds the two against each other.
"""

import configparser
import difflib
import os
import socket
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import durationpy
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from forgeflow.errors import ConfigError

SEARCH_PATH = (Path("conf/forgeflow.ini"), Path("/etc/forgeflow/forgeflow.ini"))

# The short names that the first users know; all other keys are FORGEFLOW_<SECTION>_<KEY>.
SHORT_NAMES = {
    "FORGEFLOW_DATABASE_URL": "database.url",
    "FORGEFLOW_LISTEN_ADDR": "server.listen",
    "FORGEFLOW_ROLES": "server.roles",
    "FORGEFLOW_WORKER_ID": "worker.id",
    "FORGEFLOW_CONCURRENCY": "worker.concurrency",
    "FORGEFLOW_POLL_INTERVAL": "worker.poll_interval",
    "FORGEFLOW_LEASE_DURATION": "worker.lease_duration",
    "FORGEFLOW_HEARTBEAT_INTERVAL": "worker.heartbeat_interval",
    "FORGEFLOW_SCHEDULER_TICK": "scheduler.tick",
}


def _seconds(value: Any) -> Any:
    """A duration such as `30s`, `1m30s` or `250ms` in seconds; bare numbers are refused, for nobody knows the unit."""
    if not isinstance(value, str):
        return value
    try:
        parsed = durationpy.from_str(value.strip())
    except (durationpy.DurationError, ValueError, OverflowError) as error:
        raise ValueError("expected a duration such as 30s, 5m or 1h30m") from error
    assert isinstance(parsed, timedelta)
    return parsed.total_seconds()


def _bytes(value: Any) -> Any:
    """A size such as `64K` or `1M` in bytes."""
    if not isinstance(value, str):
        return value
    text = value.strip().upper()
    factor = {"K": 1024, "M": 1024**2, "G": 1024**3}.get(text[-1:], 1)
    digits = text[:-1] if factor > 1 else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError("expected a size such as 65536, 64K or 1M")
    return int(digits) * factor


def _words(value: Any) -> Any:
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0, le=366 * 86400)]
Size = Annotated[int, BeforeValidator(_bytes), Field(ge=1, le=2**31)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Database(_Section):
    url: str = ""
    schema_name: str = Field(default="forgeflow", alias="schema", pattern=r"^[a-z_][a-z0-9_]{0,62}$")
    connect_timeout: Seconds = 10.0
    statement_timeout: Seconds = 30.0
    embedded_bin: str = ""
    embedded_user: str = ""


class Server(_Section):
    roles: Annotated[tuple[Literal["scheduler", "worker"], ...], BeforeValidator(_words)] = (
        "scheduler",
        "worker",
    )
    listen: str = "127.0.0.1:8080"
    workers: int = Field(default=2, ge=1, le=64)
    threads: int = Field(default=8, ge=1, le=256)
    request_timeout: Seconds = 30.0
    max_body: Size = 1024**2
    allowed_hosts: Words = ()

    @model_validator(mode="after")
    def _has_a_role(self) -> Self:
        if not self.roles:
            raise ValueError("roles is empty; expected scheduler, worker or both")
        return self

    def address(self) -> tuple[str, int]:
        """Host and port of `listen`; an empty host (`:8080`) means all interfaces.  Raises ConfigError."""
        host, colon, port = self.listen.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise ConfigError(f"server.listen is {self.listen!r}; expected host:port")
        return host.strip("[]") or "0.0.0.0", int(port)


class Scheduler(_Section):
    tick: Annotated[Seconds, Field(le=2.0)] = 1.0
    campaign_interval: Seconds = 5.0
    misfire_grace: Annotated[Seconds, Field(le=3600.0)] = 60.0


class Worker(_Section):
    id: str = Field(default="", max_length=200)
    concurrency: int = Field(default=8, ge=1, le=512)
    poll_interval: Seconds = 1.0
    lease_duration: Seconds = 30.0
    heartbeat_interval: Seconds = 10.0
    statement_deadline: Seconds = 5.0
    recovery_interval: Seconds = 5.0
    kill_grace: Seconds = 10.0
    drain_timeout: Seconds = 300.0
    spawn_timeout: Seconds = 30.0


class Retry(_Section):
    base: Seconds = 5.0
    cap: Seconds = 900.0


class Shell(_Section):
    shell: str = "/bin/sh"
    workdir: str = ""
    env_pass: Words = ("PATH", "HOME", "LANG", "TZ")
    output_limit: Size = 128 * 1024


class Auth(_Section):
    mode: Literal["auto", "off"] = "auto"


class Log(_Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class Config(BaseModel):
    """Everything that can be set; attribute `a_b` of it is the INI section `[a.b]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database: Database = Database()
    server: Server = Server()
    scheduler: Scheduler = Scheduler()
    worker: Worker = Worker()
    retry: Retry = Retry()
    executor_shell: Shell = Shell()
    auth: Auth = Auth()
    log: Log = Log()

    @model_validator(mode="after")
    def _intervals_fit(self) -> Self:
        worker = self.worker
        if worker.heartbeat_interval > worker.lease_duration / 3:
            raise ValueError(
                f"worker.heartbeat_interval is {worker.heartbeat_interval:g}s; expected at most a third of "
                f"worker.lease_duration, {worker.lease_duration / 3:g}s"
            )
        if worker.statement_deadline >= worker.heartbeat_interval:
            raise ValueError(
                f"worker.statement_deadline is {worker.statement_deadline:g}s; expected less than "
                f"worker.heartbeat_interval, {worker.heartbeat_interval:g}s"
            )
        return self

    def worker_id(self) -> str:
        """The node's public name, `worker.id` or hostname-pid of the calling process."""
        return self.worker.id or f"{socket.gethostname()}-{os.getpid()}"


def section_name(attribute: str) -> str:
    return attribute.replace("_", ".")


def known_keys() -> dict[str, dict[str, Any]]:
    """Each INI section with its keys and their defaults, in the order of the file."""
    return {
        section_name(attribute): {
            info.alias or key: info.get_default() for key, info in type(section).model_fields.items()
        }
        for attribute, section in dict(Config()).items()
    }


def find_file(explicit: str | None, environ: Mapping[str, str]) -> Path | None:
    """The first of: `explicit`, FORGEFLOW_CONFIG, ./conf/forgeflow.ini, /etc/forgeflow/forgeflow.ini.

    Raises ConfigError when one that was asked for by name is not there.
    """
    named = explicit or environ.get("FORGEFLOW_CONFIG")
    if named:
        if not Path(named).is_file():
            raise ConfigError(f"configuration file {named} does not exist; name another or none")
        return Path(named)
    return next((path for path in SEARCH_PATH if path.is_file()), None)


def _nearest(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def _read_file(path: Path) -> dict[str, dict[str, str]]:
    # No interpolation: passwords contain %.
    parser = configparser.ConfigParser(interpolation=None, strict=True, default_section="\0")
    try:
        parser.read_string(path.read_text(encoding="utf-8"), source=str(path))
    except (configparser.Error, UnicodeDecodeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"configuration file {path} cannot be read: {reason}") from error
    known = known_keys()
    values: dict[str, dict[str, str]] = {}
    for section in parser.sections():
        if section not in known:
            hint = _nearest(section, list(known))
            raise ConfigError(f"{path}: unknown section [{section}]{hint}")
        for key, value in parser.items(section):
            if key not in known[section]:
                hint = _nearest(key, list(known[section]))
                raise ConfigError(f"{path}: unknown key {key} in [{section}]{hint}")
            values.setdefault(section, {})[key] = value
    return values


def _read_environment(environ: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The settings in the environment; `<NAME>_FILE` names a file that holds the value."""
    names = {
        f"FORGEFLOW_{section}_{key}".upper().replace(".", "_"): f"{section}.{key}"
        for section, keys in known_keys().items()
        for key in keys
    } | SHORT_NAMES
    values: dict[str, dict[str, str]] = {}
    for name, dotted in names.items():
        value = environ.get(name)
        if value is None and f"{name}_FILE" in environ:
            path = Path(environ[f"{name}_FILE"])
            try:
                value = path.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"{name}_FILE names {path}, which cannot be read") from error
        if value is not None:
            section, _, key = dotted.rpartition(".")
            values.setdefault(section, {})[key] = value
    return values


def _sentence(error: ValidationError) -> str:
    """Every refused setting by its dotted name; the refused values stay out, for one may be a password."""
    parts = []
    for problem in error.errors(include_url=False, include_input=False):
        location = [str(part) for part in problem["loc"]]
        name = ".".join([section_name(location[0]), *location[1:2]]) if location else ""
        reason = problem["msg"].removeprefix("Value error, ")
        parts.append(f"{name}: {reason}" if name else reason)
    return "; ".join(parts)


def load_config(
    explicit: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Config:
    """Read and check everything.  `overrides` maps `section.key` to text and beats the environment.

    Raises ConfigError, one sentence that names file and key, with the nearest known key for an unknown one.
    """
    environ = os.environ if environ is None else environ
    path = find_file(explicit, environ)
    values = _read_file(path) if path else {}
    for section, settings in _read_environment(environ).items():
        values.setdefault(section, {}).update(settings)
    for dotted, value in (overrides or {}).items():
        section, _, key = dotted.rpartition(".")
        values.setdefault(section, {})[key] = value
    try:
        return Config(**{name.replace(".", "_"): settings for name, settings in values.items()})  # type: ignore[arg-type]
    except ValidationError as error:
        source = f" ({path} and the environment)" if path else " (the environment)"
        raise ConfigError(f"configuration{source} refused: {_sentence(error)}") from error
