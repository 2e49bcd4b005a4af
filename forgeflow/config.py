"""The settings of a node, read once, checked whole, never changed.

Order of strength: option, environment, file, default. Every key is declared once, in a section below; the commented
list for people is `conf/forgeflow.ini`, and a test holds the two against each other.
"""

import configparser
import difflib
import ipaddress
import os
import re
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from forgeflow.domain.lease import Fence
from forgeflow.domain.run import JOB_VARIABLES
from forgeflow.duration import in_seconds
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

_SIZE = re.compile(r"([0-9]{1,12})([KMG]?)")
# Half a surrogate is what Python makes of a byte that is not UTF-8: it can be neither logged nor stored.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_KEY = re.compile(r"[a-z_]{1,40}")
_MAX_FILE_BYTES = 1024**2
_LISTEN = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:\[\]]*):(?P<port>[0-9]{1,5})")

# What libpq would refuse, or would read otherwise than it was meant, it quotes in its message, password and all. So
# a URL must be beyond doubt here: one @ at most, no blank, every % a code.
_CODE = r"%(?!00)[0-9a-fA-F]{2}"
_WORD = rf"(?:[^@/?%\s]|{_CODE})*"
_HOST = rf"(?:\[[0-9a-fA-F:.]*\]|(?:[^@/?:,%\s\[\]]|{_CODE})*)(?::[0-9]*)?"
_DATABASE_URL = re.compile(
    rf"postgres(?:ql)?://(?:{_WORD}@)?{_HOST}(?:,{_HOST})*(?:/{_WORD})?(?:\?(?:[^@%\s]|{_CODE})*)?"
)
_DATABASE_WORDS = re.compile(r"\s*(?:[a-z_]+\s*=\s*(?:'(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)+)(?:\s+|$))+")


def _in_bytes(text: str) -> int:
    """`64K`, `1M` in bytes.  Raises ValueError."""
    match = _SIZE.fullmatch(text.upper())
    if not match:
        raise ValueError("expected a size such as 65536, 64K or 1M")
    return int(match[1]) * {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}[match[2]]


def _duration(*, at_most: str = "366d") -> BeforeValidator:
    longest = in_seconds(at_most)

    def check(value: Any) -> float:
        seconds = in_seconds(value.strip()) if isinstance(value, str) else float(value)
        if not 0 < seconds <= longest:
            raise ValueError(f"expected a duration of more than 0 and at most {at_most}")
        return seconds

    return BeforeValidator(check)


def _size(*, at_most: str) -> BeforeValidator:
    largest = _in_bytes(at_most)

    def check(value: Any) -> int:
        size = _in_bytes(value.strip()) if isinstance(value, str) else int(value)
        if not 1 <= size <= largest:
            raise ValueError(f"expected a size from 1 to {at_most} bytes")
        return size

    return BeforeValidator(check)


def _whole(lowest: int, highest: int) -> BeforeValidator:
    def check(value: Any) -> int:
        text = str(value).strip()
        if not re.fullmatch(r"[0-9]{1,9}", text) or not lowest <= int(text) <= highest:
            raise ValueError(f"expected a whole number from {lowest} to {highest}")
        return int(text)

    return BeforeValidator(check)


def _pattern(pattern: str | re.Pattern[str], expected: str) -> BeforeValidator:
    compiled = re.compile(pattern)

    def check(value: Any) -> str:
        text = str(value).strip()
        if not compiled.fullmatch(text):
            raise ValueError(f"expected {expected}")
        return text

    return BeforeValidator(check)


def _yes_or_no() -> BeforeValidator:
    words = {"yes": True, "no": False, "true": True, "false": False}

    def check(value: Any) -> bool:
        word = str(value).strip().lower()
        if word not in words:
            raise ValueError("expected yes or no")
        return words[word]

    return BeforeValidator(check)


def _or_never(validator: BeforeValidator) -> BeforeValidator:
    """The word `never` is None: no such limit."""

    def check_or_never(value: Any) -> Any:
        is_never = value is None or str(value).strip().lower() == "never"
        return None if is_never else cast("Callable[[Any], Any]", validator.func)(value)

    return BeforeValidator(check_or_never)


def _split(value: Any) -> Any:
    """Words between blanks or commas, each once, in their order."""
    return tuple(dict.fromkeys(value.replace(",", " ").split())) if isinstance(value, str) else value


def _check_url(value: Any) -> str:
    text = str(value).strip()
    if text and not _DATABASE_URL.fullmatch(text) and not _DATABASE_WORDS.fullmatch(text):
        raise ValueError(
            "expected a libpq URL such as postgresql://user:password@host:5432/name, "
            "with %40 for @, %2F for /, %3F for ?, %25 for % and %20 for a blank in user and password"
        )
    return text


def _check_listen(value: Any) -> str:
    text = str(value).strip()
    match = _LISTEN.fullmatch(text)
    if not match or not 1 <= int(match["port"]) <= 65535:
        raise ValueError("expected host:port such as 127.0.0.1:8080 or [::1]:8080, the port from 1 to 65535")
    return text


Seconds = Annotated[float, _duration()]
Words = Annotated[tuple[str, ...], BeforeValidator(_split)]
Role = Literal["api", "scheduler", "worker"]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Database(_Section):
    url: Annotated[str, BeforeValidator(_check_url), Field(repr=False)] = ""
    schema_name: Annotated[
        str,
        _pattern(r"[a-z_][a-z0-9_]{0,62}", "lower-case letters, digits and underscores, 63 at most, no digit first"),
        Field(alias="schema"),
    ] = "forgeflow"
    connect_timeout: Seconds = 10.0
    statement_timeout: Seconds = 30.0
    embedded_bin: str = ""
    embedded_user: str = ""


class Server(_Section):
    roles: Annotated[tuple[Role, ...], BeforeValidator(_split), Field(min_length=1)] = ("scheduler", "worker")
    listen: Annotated[str, BeforeValidator(_check_listen)] = "127.0.0.1:8080"
    workers: Annotated[int, _whole(1, 64)] = 2
    threads: Annotated[int, _whole(1, 256)] = 8
    request_timeout: Seconds = 30.0
    max_body: Annotated[int, _size(at_most="2G")] = 1024**2
    allowed_hosts: Words = ()

    def address(self) -> tuple[str, int]:
        """Host and port of `listen`; an empty host (`:8080`) means all interfaces."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]") or "0.0.0.0", int(port)


class Scheduler(_Section):
    tick: Annotated[float, _duration(at_most="2s")] = 1.0
    campaign_interval: Seconds = 5.0
    misfire_grace: Annotated[float, _duration(at_most="1h")] = 60.0


class Worker(_Section):
    id: Annotated[str, _pattern(r".{0,200}", "200 characters at most")] = ""
    concurrency: Annotated[int, _whole(1, 512)] = 8
    claim_batch: Annotated[int, _whole(1, 500)] = 100
    poll_interval: Seconds = 1.0
    lease_duration: Seconds = 30.0
    heartbeat_interval: Seconds = 10.0
    statement_deadline: Seconds = 5.0
    recovery_interval: Seconds = 5.0
    kill_grace: Seconds = 10.0
    fence_margin: Seconds = 5.0
    fence_grace: Seconds = 3.0
    drain_timeout: Seconds = 300.0
    spawn_timeout: Seconds = 30.0
    recycle_age: Annotated[float | None, _or_never(_duration())] = 86400.0
    recycle_memory: Annotated[int | None, _or_never(_size(at_most="1024G"))] = 512 * 1024**2
    recycle_runs: Annotated[int | None, _or_never(_whole(1, 999_999_999))] = None

    def fence(self) -> Fence:
        return Fence(self.lease_duration, self.fence_margin, self.fence_grace)

    @model_validator(mode="after")
    def _keep_proportions(self) -> Self:
        """A lease shorter than the default shortens what depends on it, unless that is given, too."""
        share = self.lease_duration / type(self).model_fields["lease_duration"].get_default()
        for name in ("heartbeat_interval", "statement_deadline", "fence_margin", "fence_grace"):
            if share < 1 and name not in self.model_fields_set:
                self.__dict__[name] *= share
        return self


class Retry(_Section):
    base: Seconds = 5.0
    cap: Seconds = 900.0


class Shell(_Section):
    shell: Annotated[str, _pattern(r".+", "the path of a shell such as /bin/sh")] = "/bin/sh"
    workdir: str = ""
    env_pass: Words = ("PATH", "HOME", "LANG", "TZ")
    output_limit: Annotated[int, _size(at_most="2G")] = 128 * 1024
    memory_limit: Annotated[int | None, _or_never(_size(at_most="1024G"))] = None
    run_as_allowed: Words = ()


class Secrets(_Section):
    folder: Annotated[str, _pattern(r"(/.*)?", "the absolute path of a folder, or nothing")] = ""


def _check_networks(words: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        try:
            is_network = word == "private" or ipaddress.ip_network(word) is not None
        except ValueError:
            is_network = False
        if not is_network:
            raise ValueError("expected networks such as 10.0.0.0/8, 192.0.2.7 or fc00::/7, or the word private")
    return words


Networks = Annotated[Words, AfterValidator(_check_networks)]


class Http(_Section):
    connect_timeout: Seconds = 5.0
    read_timeout: Seconds = 30.0
    max_redirects: Annotated[int, _whole(0, 20)] = 0
    response_limit: Annotated[int, _size(at_most="1G")] = 64 * 1024
    deny_networks: Networks = (
        "0.0.0.0/8",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "100.64.0.0/10",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/128",
        "::1/128",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
        "168.63.129.16/32",
        "192.0.0.0/24",
        "198.18.0.0/15",
        "fd00:ec2::254/128",
        "fd20:ce::254/128",
        "fd00:c1::a9fe:a9fe/128",
        "100::/64",
        "2001::/32",
        "64:ff9b:1::/48",
        "::ffff:0:0:0/96",
        "64:ff9b::/96",
        "2002::/16",
    )
    allow_networks: Networks = ()
    verify_tls: Annotated[bool, _yes_or_no()] = True


def _check_modules(names: tuple[str, ...]) -> tuple[str, ...]:
    if not all(part.isidentifier() for name in names for part in name.split(".")):
        raise ValueError("expected names of modules such as shop.jobs, with blanks between")
    return names


class Python(_Section):
    modules: Annotated[Words, AfterValidator(_check_modules)] = ()


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
    executor_secrets: Secrets = Secrets()
    executor_http: Http = Http()
    python: Python = Python()
    auth: Auth = Auth()
    log: Log = Log()

    @model_validator(mode="after")
    def _intervals_fit(self) -> Self:
        """How far apart the intervals of a node must be, for a lease to be renewed, and a job fenced, in time."""
        if problems := list(_misfits(self.worker)):
            raise ValueError(*problems)
        return self

    def worker_id(self) -> str:
        """The node's public name, `worker.id` or hostname-pid of the calling process."""
        return self.worker.id or f"{socket.gethostname()}-{os.getpid()}"


# What a busy machine may need to kill a tree, between the job's KILL and the end of its lease.
_LEAST_LAST_CALL = 0.1


def _misfits(worker: Worker) -> Iterator[str]:
    beat, lease, deadline = worker.heartbeat_interval, worker.lease_duration, worker.statement_deadline
    if beat > lease / 3:
        yield (
            f"worker.heartbeat_interval is {beat:g}s; expected at most {lease / 3:g}s, "
            f"a third of worker.lease_duration, which is {lease:g}s"
        )
    if deadline >= beat:
        yield (
            f"worker.statement_deadline is {deadline:g}s; expected less than worker.heartbeat_interval, "
            f"which is {beat:g}s"
        )
    margin, grace = worker.fence_margin, worker.fence_grace
    if beat + margin >= lease:
        yield (
            f"worker.fence_margin is {margin:g}s; expected less than {lease - beat:g}s, worker.lease_duration minus "
            "worker.heartbeat_interval"
        )
    if grace > margin - _LEAST_LAST_CALL:
        yield (
            f"worker.fence_grace is {grace:g}s; expected at least {_LEAST_LAST_CALL:g}s less than "
            f"worker.fence_margin, which is {margin:g}s"
        )


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


def secret_keys() -> set[str]:
    """The dotted keys whose values are for no eye: those that have no place in a repr."""
    return {
        f"{section_name(attribute)}.{info.alias or key}"
        for attribute, section in dict(Config()).items()
        for key, info in type(section).model_fields.items()
        if not info.repr
    }


def effective(config: Config, dotted: str) -> Any:
    """The value of that key.  Raises KeyError for a key that is none."""
    section, _, key = dotted.rpartition(".")
    return getattr(config, section.replace(".", "_")).model_dump(by_alias=True)[key]


def in_words(value: Any) -> str:
    """A value of the configuration as its file would have it."""
    if isinstance(value, float):
        return f"{value:g}s"
    return " ".join(value) if isinstance(value, tuple) else str(value)


def changed_keys(before: Config, after: Config) -> list[str]:
    """Dotted names of what differs; no values, for one of them may be a password."""
    return [
        f"{section_name(attribute)}.{info.alias or key}"
        for attribute, section in dict(after).items()
        for key, info in type(section).model_fields.items()
        if getattr(section, key) != getattr(getattr(before, attribute), key)
    ]


def find_file(explicit: str | None, environ: Mapping[str, str]) -> Path | None:
    """The first of: `explicit`, FORGEFLOW_CONFIG, ./conf/forgeflow.ini, /etc/forgeflow/forgeflow.ini.

    Raises ConfigError when one that was asked for by name is not there.
    """
    named = explicit or environ.get("FORGEFLOW_CONFIG")
    try:
        if not named:
            return next((path for path in SEARCH_PATH if path.is_file()), None)
        path = Path(named)
        if not path.exists():
            raise ConfigError(f"configuration file {named} does not exist; name another or none")
    except OSError as error:
        raise ConfigError(f"configuration file {error.filename} cannot be read: {error.strerror}") from error
    return path


@dataclass(frozen=True, slots=True)
class Setting:
    """A value as it was given, and where: what a complaint names, for the value itself may be a password."""

    text: str = field(repr=False)
    origin: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A configuration, and what was set where: by dotted key, as given; `file_settings` also where it was beaten."""

    config: Config
    file: Path | None
    file_settings: Mapping[str, Setting]
    environment_settings: Mapping[str, Setting]


def _nearest(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"


def _read_text(path: Path, what: str) -> str:
    """The text of a file; never waits, for a master reads it as well.  Raises ConfigError, which says why not."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{what} {path} is a pipe; expected a file")
            data = os.read(descriptor, _MAX_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(data) > _MAX_FILE_BYTES:
            raise ConfigError(f"{what} {path} is longer than 1 MiB")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what} {path} is not UTF-8 text") from error
    except OSError as error:
        raise ConfigError(f"{what} {path} cannot be read: {error.strerror}") from error


def _parse(path: Path) -> configparser.ConfigParser:
    """Raises ConfigError with the number of the line; configparser would quote it, and a password in it."""
    # No interpolation: passwords contain %.
    parser = configparser.ConfigParser(interpolation=None, strict=True, default_section="\0")
    text = _read_text(path, "configuration file")
    try:
        parser.read_string(text)
    except configparser.MissingSectionHeaderError as error:
        raise ConfigError(f"{path}, line {error.lineno}: expected a [section] before the first key") from error
    except configparser.ParsingError as error:
        raise ConfigError(f"{path}, line {error.errors[0][0]}: expected key = value") from error
    except configparser.DuplicateOptionError as error:
        raise ConfigError(f"{path}, line {error.lineno}: {error.section}.{error.option} is set twice") from error
    except configparser.DuplicateSectionError as error:
        raise ConfigError(f"{path}, line {error.lineno}: section [{error.section}] stands here twice") from error
    return parser


def _read_file(path: Path, problems: list[str]) -> dict[str, Setting]:
    """The settings of a file by their dotted names; what is unknown in it is added to `problems`."""
    parser = _parse(path)
    known = known_keys()
    found: dict[str, Setting] = {}
    for section in parser.sections():
        if section not in known:
            problems.append(f"{path}: unknown section [{section}]; {_nearest(section, list(known))}")
            continue
        for key, text in parser.items(section):
            if key in known[section]:
                found[f"{section}.{key}"] = Setting(text, str(path))
            else:
                # A line that was wrapped may be the rest of a password.
                what = f"unknown key {section}.{key}" if _KEY.fullmatch(key) else f"a line of [{section}] is no setting"
                problems.append(f"{path}: {what}; {_nearest(key, list(known[section]))}")
    return found


def variable_names() -> dict[str, str]:
    """Every variable of the environment that sets something, with the dotted name of the key; strongest last."""
    generic = {
        f"FORGEFLOW_{section}_{key}".upper().replace(".", "_"): f"{section}.{key}"
        for section, keys in known_keys().items()
        for key in keys
    }
    return generic | SHORT_NAMES


# Variables of ours that are no settings: where those are, what a job is told, and what the tests use.
_OTHER_VARIABLES = {"FORGEFLOW_CONFIG", "FORGEFLOW_DATA_DIR", *JOB_VARIABLES}


def _read_environment(environ: Mapping[str, str], problems: list[str]) -> dict[str, Setting]:
    """The settings in the environment; `<NAME>_FILE` names a file that holds the value.

    Names that are not known, and settings that are given twice and differ, are added to `problems`.
    """
    known = variable_names()
    problems += _unknown_variables(environ, set(known))
    found: dict[str, Setting] = {}
    for name, dotted in known.items():
        given = [Setting(environ[name], name)] if name in environ else []
        if file := environ.get(f"{name}_FILE"):
            text = _read_text(Path(file), f"{name}_FILE:")
            given.append(Setting(text.strip(), f"{name}_FILE"))
        for setting in given:
            before = found.setdefault(dotted, setting)
            if before.text != setting.text:
                problems.append(f"{dotted}: {before.origin} and {setting.origin} differ; set one of them")
    return found


def _unknown_variables(environ: Mapping[str, str], known: set[str]) -> Iterator[str]:
    """A misspelled variable would change nothing, and nobody would know why."""
    for name in sorted(environ):
        is_ours = name.startswith("FORGEFLOW_") and not name.startswith("FORGEFLOW_TEST_")
        if is_ours and name not in _OTHER_VARIABLES and name.removesuffix("_FILE") not in known:
            yield f"unknown variable {name}; {_nearest(name, sorted(known))}"


def _expected(problem: Mapping[str, Any]) -> str:
    """What pydantic wanted, as a person would say it; our own validators say so themselves."""
    match problem["type"]:
        case "value_error":
            return str(problem["ctx"]["error"])
        case "literal_error":
            return "expected " + str(problem["ctx"]["expected"]).replace("'", "")
        case "too_short":
            return "expected one word at least"
        case "extra_forbidden":
            return "unknown key"
        case _:
            return str(problem["msg"])


def _complaints(error: ValidationError, settings: Mapping[str, Setting]) -> Iterator[str]:
    """Each refused setting by its dotted name and origin; the refused values stay out."""
    for problem in error.errors(include_url=False, include_input=False):
        if not problem["loc"]:
            yield from problem["ctx"]["error"].args
            continue
        attribute, key = str(problem["loc"][0]), str(problem["loc"][1])
        name = f"{section_name(attribute)}.{key}"
        yield f"{name} ({settings[name].origin}): {_expected(problem)}"


def _validated(settings: Mapping[str, Setting], problems: list[str]) -> Config:
    """The defaults with the settings over them; what is refused is added to `problems`."""
    values: dict[str, dict[str, str]] = {}
    for name, setting in settings.items():
        if _CONTROL.search(setting.text):
            problems.append(f"{name} ({setting.origin}): expected one line; is the line after it indented?")
            continue
        section, _, key = name.rpartition(".")
        values.setdefault(section.replace(".", "_"), {})[key] = setting.text
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        problems += dict.fromkeys(_complaints(error, settings))
        return Config()


def read_config(
    explicit: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Reading:
    """Read and check everything.  `overrides` maps `section.key` to text and beats the environment.

    Raises ConfigError, one sentence that names every key that is wrong and where it was set, with the nearest known
    key for an unknown one; its `problems` are the same one by one.
    """
    environ = os.environ if environ is None else environ
    problems: list[str] = []
    path = find_file(explicit, environ)
    from_file = _read_file(path, problems) if path else {}
    from_environment = _read_environment(environ, problems)
    options = {name: Setting(text, "option") for name, text in (overrides or {}).items()}
    config = _validated(from_file | from_environment | options, problems)
    if problems:
        raise ConfigError("configuration refused: " + "; ".join(problems), problems)
    return Reading(config, path, from_file, from_environment)


def load_config(
    explicit: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Config:
    """The configuration alone; arguments and errors as of `read_config`."""
    return read_config(explicit, environ=environ, overrides=overrides).config
