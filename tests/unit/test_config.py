"""Settings: what is read, which source wins, and how every mistake is told."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgeflow.config import SHORT_NAMES, Config, known_keys, load_config, variable_names
from forgeflow.domain.run import JOB_VARIABLES
from forgeflow.errors import ConfigError

SHIPPED = Path(__file__).parents[2] / "conf" / "forgeflow.ini"
SECRET = "hunter2"


def load(**environ: str) -> Config:
    return load_config("/dev/null", environ=environ)


def load_text(tmp_path: Path, text: str | bytes, /, **environ: str) -> Config:
    file = tmp_path / "forgeflow.ini"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_config(str(file), environ=environ)


def complaint(**environ: str) -> str:
    """What is said of that environment, nothing when it is accepted."""
    try:
        load(**environ)
    except ConfigError as error:
        return str(error)
    return ""


def checked(told: str) -> str:
    """The one line that a refused configuration gets; it must never hold the secret."""
    assert told
    assert "\n" not in told
    assert SECRET not in told
    assert "Input should" not in told
    return told


def refusal(**environ: str) -> str:
    return checked(complaint(**environ))


def file_refusal(folder: Path, text: str | bytes, /, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_text(folder, text, **environ)
    return checked(str(caught.value))


def value_of(config: Config, dotted: str) -> Any:
    section, _, key = dotted.rpartition(".")
    given = getattr(config, section.replace(".", "_"))
    names = {info.alias or name: name for name, info in type(given).model_fields.items()}
    return getattr(given, names[key])


def shipped_keys() -> dict[str, str]:
    """Every commented key of conf/forgeflow.ini with the default that it shows."""
    found, section = {}, ""
    for line in SHIPPED.read_text().splitlines():
        if match := re.fullmatch(r"\[([a-z.]+)\]", line):
            section = match[1]
        elif match := re.fullmatch(r"# ([a-z_]+) =(?: (.*))?", line):
            found[f"{section}.{match[1]}"] = match[2] or ""
    return found


KEYS = [f"{section}.{key}" for section, keys in known_keys().items() for key in keys]


# The file for people


def test_shipped_file_has_every_key_of_the_code_and_no_other() -> None:
    assert list(shipped_keys()) == KEYS


def test_shipped_file_sets_nothing() -> None:
    assert load_config(str(SHIPPED), environ={}) == Config()


def test_shipped_file_with_every_key_uncommented_is_the_defaults(tmp_path: Path) -> None:
    text = re.sub(r"^# ([a-z_]+ =)", r"\1", SHIPPED.read_text(), flags=re.MULTILINE)
    assert text.count("\n# ") < SHIPPED.read_text().count("\n# ")
    assert load_text(tmp_path, text) == Config()


@pytest.mark.parametrize("dotted", KEYS)
def test_each_default_of_the_shipped_file_is_that_of_the_code(dotted: str) -> None:
    config = load_config("/dev/null", environ={}, overrides={dotted: shipped_keys()[dotted]})
    assert value_of(config, dotted) == value_of(Config(), dotted)


def test_shipped_file_names_every_short_variable_at_its_key() -> None:
    section = pending = ""
    found = {}
    for line in SHIPPED.read_text().splitlines():
        if match := re.fullmatch(r"\[([a-z.]+)\]", line):
            section = match[1]
        pending = next(iter(re.findall(r"\[(FORGEFLOW_[A-Z_]+)\]", line)), pending)
        if (match := re.fullmatch(r"# ([a-z_]+) =.*", line)) and pending:
            found[pending], pending = f"{section}.{match[1]}", ""
    assert found == SHORT_NAMES


# Where a value comes from


CHANGED = {
    "worker.recycle_runs": "1000",
    "executor.shell.memory_limit": "1G",
    "executor.secrets.folder": "/etc/secrets",
    "executor.http.deny_networks": "private 192.0.2.0/24",
    "executor.http.allow_networks": "127.0.0.1",
    "executor.http.verify_tls": "no",
    "database.schema": "other",
    "server.roles": "worker",
    "server.listen": "127.0.0.1:9",
    "auth.mode": "off",
    "log.level": "debug",
    "log.format": "json",
    "worker.lease_duration": "44s",
    "scheduler.tick": "2s",
    "database.url": "postgresql:///other",
}


def changed(dotted: str) -> str:
    """Some other value that the key accepts."""
    if dotted in CHANGED:
        return CHANGED[dotted]
    return {float: "4s", int: "7", tuple: "a b", str: "x"}[type(value_of(Config(), dotted))]


@pytest.mark.parametrize(("variable", "dotted"), variable_names().items())
def test_each_key_has_its_variable(variable: str, dotted: str) -> None:
    calm = {} if dotted == "worker.statement_deadline" else {"FORGEFLOW_WORKER_STATEMENT_DEADLINE": "3s"}
    config = load(**{**calm, variable: changed(dotted)})
    assert value_of(config, dotted) != value_of(Config(), dotted)


def test_option_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = tmp_path / "forgeflow.ini"
    file.write_text("[worker]\nconcurrency = 3\nid = from-file\nkill_grace = 3s\n")
    environ = {"FORGEFLOW_CONCURRENCY": "4", "FORGEFLOW_WORKER_ID": "from-environment"}
    worker = load_config(str(file), environ=environ, overrides={"worker.concurrency": "5"}).worker
    assert (worker.concurrency, worker.id, worker.kill_grace, worker.poll_interval) == (5, "from-environment", 3, 1)


def test_variable_may_name_a_file_with_the_value(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text(f"postgresql://me:{SECRET}@db/forge\n")
    assert load(FORGEFLOW_DATABASE_URL_FILE=str(secret)).database.url == f"postgresql://me:{SECRET}@db/forge"


def test_file_of_a_variable_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert refusal(FORGEFLOW_DATABASE_URL_FILE="/nowhere") == (
        "FORGEFLOW_DATABASE_URL_FILE: /nowhere cannot be read: No such file or directory"
    )
    assert "Is a directory" in refusal(FORGEFLOW_DATABASE_URL_FILE=str(tmp_path))


def test_files_are_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, count in (("conf/forgeflow.ini", 1), ("variable.ini", 2), ("option.ini", 3)):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(f"[worker]\nconcurrency = {count}\n")
    by_variable = {"FORGEFLOW_CONFIG": "variable.ini"}
    assert load_config(environ={}).worker.concurrency == 1
    assert load_config(environ=by_variable).worker.concurrency == 2
    assert load_config("option.ini", environ=by_variable).worker.concurrency == 3


def test_file_that_was_asked_for_must_be_there() -> None:
    with pytest.raises(ConfigError, match="configuration file /nowhere does not exist"):
        load_config(environ={"FORGEFLOW_CONFIG": "/nowhere"})


# What a value may hold


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:50%25%23off@db.example:5432/forge?sslmode=require",
        "postgresql://me:a#b;c=d!e@db/forge",
        "postgres://a,b:5433,[::1]:5434/forge?target_session_attrs=read-write",
        "postgresql://forgeflow:x@/forgeflow?host=%2Frun%2Fforgeflow-1&port=5432",
        "postgresql://%2Fvar%2Frun/forge",
        "postgresql:///forge?application_name=a/b?c",
        "postgresql://",
        "host=db user=me password='a b%;#\\'c' dbname = forge",
        r"host=/run/x password=a\'b#%;c",
    ],
)
def test_database_url_survives_as_it_is(tmp_path: Path, url: str) -> None:
    assert load_text(tmp_path, f"[database]\nurl = {url}\n").database.url == url
    assert load(FORGEFLOW_DATABASE_URL=url).database.url == url


@pytest.mark.parametrize(
    "url",
    [
        f"postgres//me:{SECRET}@db/forge",
        f"postgresql://me:{SECRET}%@db/forge",
        f"postgresql://me:{SECRET}%zz@db/forge",
        f"postgresql://me:{SECRET}%00@db/forge",
        f"postgresql://me:a@{SECRET}@db/forge",
        f"postgresql://me:a/{SECRET}@db/forge",
        f"postgresql://me:a?{SECRET}@db/forge",
        f"postgresql://me:a {SECRET}@db/forge",
        f"postgresql://me:{SECRET}",
        f"mysql://me:{SECRET}@db/forge",
        f"host=db password='{SECRET}",
        f"password={SECRET} oops",
        SECRET,
    ],
)
def test_database_url_in_doubt_is_refused_without_its_password(url: str) -> None:
    """libpq would quote what it does not like, or take a part of the password for the host."""
    assert refusal(FORGEFLOW_DATABASE_URL=url).startswith(
        "configuration refused: database.url (FORGEFLOW_DATABASE_URL): expected a libpq URL such as postgresql://"
    )


@given(st.text(st.characters(codec="ascii"), max_size=60))
def test_any_url_is_taken_or_refused_at_once(rest: str) -> None:
    assert len(complaint(FORGEFLOW_DATABASE_URL=f"postgresql://{rest}")) < 400


def test_url_never_shows_in_the_configuration_as_text() -> None:
    config = load(FORGEFLOW_DATABASE_URL=f"postgresql://me:{SECRET}@db/forge")
    assert SECRET not in f"{config!r} {config} {config.database!r}"


def test_values_keep_what_other_formats_take_for_comments(tmp_path: Path) -> None:
    config = load_text(tmp_path, "[worker]\nid = 50% # a;b  c\n; a comment\n# another\n")
    assert config.worker.id == "50% # a;b  c"


def test_byte_order_mark_and_carriage_returns_are_nothing(tmp_path: Path) -> None:
    assert load_text(tmp_path, b"\xef\xbb\xbf[worker]\r\nconcurrency = 3\r\n").worker.concurrency == 3


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("90s", 90), ("1m30s", 90), ("1.5h", 5400), ("1h", 3600), ("7d", 604800), (" 5s ", 5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert load(FORGEFLOW_RETRY_BASE=text).retry.base == seconds


@pytest.mark.parametrize(
    "text", ["5", "", "s", "-5s", "+5s", "5 m", "5M", "1e3s", "nan", "inf", "٣s", "1m-5s", ".5s", "5s5", "five"]
)
def test_what_is_no_duration_is_told_the_form(text: str) -> None:
    assert refusal(FORGEFLOW_RETRY_BASE=text) == (
        "configuration refused: retry.base (FORGEFLOW_RETRY_BASE): expected a duration such as 30s, 5m or 1h30m"
    )


@pytest.mark.parametrize("text", ["0s", "367d", "99999999999999999999h", "0.1ns", "9" * 400 + "s"])
def test_durations_have_bounds(text: str) -> None:
    assert "retry.base (FORGEFLOW_RETRY_BASE): expected a duration of more than 0 and at most 366d" in refusal(
        FORGEFLOW_RETRY_BASE=text
    )


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    told = complaint(FORGEFLOW_RETRY_BASE=text)
    assert told.startswith("configuration refused: retry.base (FORGEFLOW_RETRY_BASE): expected ") or (
        0 < load(FORGEFLOW_RETRY_BASE=text).retry.base <= 366 * 86400
    )


@pytest.mark.parametrize(("text", "size"), [("65536", 65536), ("64K", 65536), ("1m", 2**20), ("2G", 2**31)])
def test_sizes(text: str, size: int) -> None:
    assert load(FORGEFLOW_SERVER_MAX_BODY=text).server.max_body == size


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("FORGEFLOW_SERVER_MAX_BODY", "1T", "server.max_body (…): expected a size such as 65536, 64K or 1M"),
        ("FORGEFLOW_SERVER_MAX_BODY", "0", "server.max_body (…): expected a size from 1 to 2G bytes"),
        ("FORGEFLOW_SERVER_MAX_BODY", "9999G", "server.max_body (…): expected a size from 1 to 2G bytes"),
        ("FORGEFLOW_CONCURRENCY", "many", "worker.concurrency (…): expected a whole number from 1 to 512"),
        ("FORGEFLOW_CONCURRENCY", "0", "worker.concurrency (…): expected a whole number from 1 to 512"),
        ("FORGEFLOW_CONCURRENCY", "513", "worker.concurrency (…): expected a whole number from 1 to 512"),
        ("FORGEFLOW_CONCURRENCY", "1_0", "worker.concurrency (…): expected a whole number from 1 to 512"),
        ("FORGEFLOW_CONCURRENCY", "2.0", "worker.concurrency (…): expected a whole number from 1 to 512"),
        ("FORGEFLOW_CONCURRENCY", "", "worker.concurrency (…): expected a whole number from 1 to 512"),
        ("FORGEFLOW_ROLES", "leader", "server.roles (…): expected api, scheduler or worker"),
        ("FORGEFLOW_ROLES", "", "server.roles (…): expected one word at least"),
        ("FORGEFLOW_AUTH_MODE", "on", "auth.mode (…): expected auto or off"),
        ("FORGEFLOW_LOG_LEVEL", "loud", "log.level (…): expected debug, info, warning or error"),
        ("FORGEFLOW_SCHEDULER_TICK", "3s", "scheduler.tick (…): expected a duration of more than 0 and at most 2s"),
        ("FORGEFLOW_WORKER_ID", "x" * 201, "worker.id (…): expected 200 characters at most"),
        ("FORGEFLOW_EXECUTOR_SHELL_SHELL", "", "executor.shell.shell (…): expected the path of a shell such as"),
        ("FORGEFLOW_EXECUTOR_SECRETS_FOLDER", "x/y", "executor.secrets.folder (…): expected the absolute path of a"),
        (
            "FORGEFLOW_EXECUTOR_HTTP_DENY_NETWORKS",
            "10.0.0.1/8",
            "executor.http.deny_networks (…): expected networks such",
        ),
        ("FORGEFLOW_EXECUTOR_HTTP_ALLOW_NETWORKS", "localhost", "executor.http.allow_networks (…): expected networks"),
        ("FORGEFLOW_EXECUTOR_HTTP_VERIFY_TLS", "off", "executor.http.verify_tls (…): expected yes or no"),
        (
            "FORGEFLOW_EXECUTOR_HTTP_MAX_REDIRECTS",
            "21",
            "executor.http.max_redirects (…): expected a whole number from",
        ),
        ("FORGEFLOW_PYTHON_MODULES", "shop/jobs.py", "python.modules (…): expected names of modules such as shop.jobs"),
        ("FORGEFLOW_DATABASE_SCHEMA", "Forge;--", "database.schema (…): expected lower-case letters, digits and"),
        ("FORGEFLOW_WORKER_ID", "a\nb", "worker.id (…): expected one line"),
        ("FORGEFLOW_WORKER_ID", "a\x1bb", "worker.id (…): expected one line"),
    ],
)
def test_each_refusal_names_key_origin_and_what_is_expected(variable: str, text: str, expected: str) -> None:
    assert refusal(**{variable: text}).startswith("configuration refused: " + expected.replace("…", variable))


@pytest.mark.parametrize(
    "text", ["8080", ":", "localhost", "localhost:", ":0", ":65536", "a b:80", "unix:/x", "::1:80", f"u:{SECRET}@h:80"]
)
def test_listen_is_host_and_port(text: str) -> None:
    assert "server.listen (FORGEFLOW_LISTEN_ADDR): expected host:port" in refusal(FORGEFLOW_LISTEN_ADDR=text)


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:80", ("127.0.0.1", 80)), (":8080", ("0.0.0.0", 8080)), ("[::1]:80", ("::1", 80)), ("h:1", ("h", 1))],
)
def test_address_of_listen(text: str, address: tuple[str, int]) -> None:
    assert load(FORGEFLOW_LISTEN_ADDR=text).server.address() == address


def test_words_come_with_blanks_or_commas_each_once() -> None:
    assert load(FORGEFLOW_ROLES="worker,scheduler  worker").server.roles == ("worker", "scheduler")
    assert load(FORGEFLOW_ROLES="api,scheduler,worker").server.roles == ("api", "scheduler", "worker")


# Mistakes of the file


def test_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    assert file_refusal(tmp_path, "[worker]\nconcurency = 3\n") == (
        f"configuration refused: {tmp_path}/forgeflow.ini: unknown key worker.concurency; did you mean concurrency?"
    )


def test_unknown_key_without_a_near_one_lists_those_of_its_section(tmp_path: Path) -> None:
    assert file_refusal(tmp_path, f"[retry]\nzzz = {SECRET}\n").endswith("unknown key retry.zzz; known are base, cap")


def test_unknown_section_names_the_nearest(tmp_path: Path) -> None:
    assert file_refusal(tmp_path, f"[databse]\nurl = {SECRET}\n").endswith(
        "unknown section [databse]; did you mean database?"
    )
    assert "[DEFAULT]; known are database, server" in file_refusal(tmp_path, "[DEFAULT]\nurl = x\n")


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    told = file_refusal(tmp_path, "[worker]\nconcurency = 3\nkill_grace = 5\n[nope]\n", FORGEFLOW_LOG_LEVEL="loud")
    for part in ("worker.concurency", "[nope]", f"worker.kill_grace ({tmp_path}", "log.level (FORGEFLOW_LOG_LEVEL)"):
        assert part in told


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"url = {SECRET}\n", ", line 1: expected a [section] before the first key"),
        (f"[database]\n{SECRET}\n", ", line 2: expected key = value"),
        (f"[database]\nschema = a\nschema = {SECRET}\n", ", line 3: database.schema is set twice"),
        ("[log]\n[database]\n[log]\n", ", line 3: section [log] stands here twice"),
        (b"[worker]\nid = \xff\xfe\n", " is not UTF-8 text"),
        (
            f"[database]\nurl = postgresql:///x\n  schema = {SECRET}\n",
            "expected one line; is the line after it indented?",
        ),
    ],
)
def test_broken_file_is_told_without_quoting_it(tmp_path: Path, text: str | bytes, expected: str) -> None:
    told = file_refusal(tmp_path, text)
    assert expected in told
    assert str(tmp_path / "forgeflow.ini") in told


def test_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(str(tmp_path), environ={})


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "forgeflow.ini"
    file.touch(mode=0)
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        load_config(str(file), environ={})


def test_unknown_override_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"worker\.nope \(option\): unknown key"):
        load_config("/dev/null", environ={}, overrides={"worker.nope": "1"})


# Intervals that do not fit


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            {"FORGEFLOW_LEASE_DURATION": "20s", "FORGEFLOW_HEARTBEAT_INTERVAL": "10s"},
            "worker.heartbeat_interval is 10s; expected at most 6.66667s, a third of worker.lease_duration, "
            "which is 20s",
        ),
        (
            {"FORGEFLOW_WORKER_STATEMENT_DEADLINE": "10s"},
            "worker.statement_deadline is 10s; expected less than worker.heartbeat_interval, which is 10s",
        ),
    ],
)
def test_intervals_that_do_not_fit_are_refused_with_their_numbers(environ: Mapping[str, str], expected: str) -> None:
    assert refusal(**environ) == f"configuration refused: {expected}"


def test_both_rules_are_told_at_once() -> None:
    told = refusal(FORGEFLOW_HEARTBEAT_INTERVAL="20s", FORGEFLOW_WORKER_STATEMENT_DEADLINE="21s")
    assert "heartbeat_interval is 20s" in told
    assert "statement_deadline is 21s" in told


def test_worker_id_is_the_given_one_or_host_and_pid() -> None:
    assert load(FORGEFLOW_WORKER_ID="node-1").worker_id() == "node-1"
    assert load().worker_id().endswith(f"-{os.getpid()}")


def test_configuration_never_changes() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().worker.concurrency = 3


def test_unknown_variable_names_the_nearest() -> None:
    """A misspelled one would change nothing, and nobody would know why."""
    with pytest.raises(
        ConfigError, match=r"unknown variable FORGEFLOW_CONCURENCY; did you mean FORGEFLOW_CONCURRENCY\?"
    ):
        load_config(environ={"FORGEFLOW_CONCURENCY": "4"})


def test_setting_that_is_given_twice_and_differs_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("postgresql://b/x")
    twice = [
        {"FORGEFLOW_CONCURRENCY": "4", "FORGEFLOW_WORKER_CONCURRENCY": "5"},
        {"FORGEFLOW_DATABASE_URL": "postgresql://a/x", "FORGEFLOW_DATABASE_URL_FILE": str(file)},
    ]
    for environ in twice:
        with pytest.raises(ConfigError, match=r"(worker\.concurrency|database\.url): .* and .* differ"):
            load_config(environ=environ)
    assert (
        load_config(environ={"FORGEFLOW_CONCURRENCY": "4", "FORGEFLOW_WORKER_CONCURRENCY": "4"}).worker.concurrency == 4
    )


def test_what_a_job_is_told_is_no_setting() -> None:
    """A job may start a ForgeFlow of its own."""
    assert load_config(environ=dict.fromkeys(JOB_VARIABLES, "x") | {"FORGEFLOW_DATA_DIR": "/x"})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"worker.fence_margin": "20s"}, "worker.fence_margin is 20s; expected less than 20s"),
        (
            {"worker.fence_grace": "5s"},
            "worker.fence_grace is 5s; expected at least 0.1s less than worker.fence_margin, which is 5s",
        ),
    ],
)
def test_fence_that_does_not_fit_into_the_lease_is_refused(settings: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(environ={}, overrides=settings)
    assert told in str(refused.value)


def test_limits_may_be_switched_off() -> None:
    limits = load(FORGEFLOW_WORKER_RECYCLE_AGE="never", FORGEFLOW_WORKER_RECYCLE_MEMORY=" Never ").worker
    assert (limits.recycle_age, limits.recycle_memory, limits.recycle_runs) == (None, None, None)
    with pytest.raises(ConfigError, match=r"worker\.recycle_age .*expected a duration"):
        load(FORGEFLOW_WORKER_RECYCLE_AGE="nevermore")


def test_short_lease_shortens_what_depends_on_it() -> None:
    worker = load(FORGEFLOW_LEASE_DURATION="15s", FORGEFLOW_WORKER_FENCE_GRACE="1s").worker
    assert (worker.heartbeat_interval, worker.statement_deadline) == (5.0, 2.5)
    assert (worker.fence_margin, worker.fence_grace) == (2.5, 1.0)
    worker = load(FORGEFLOW_LEASE_DURATION="5m").worker
    assert (worker.heartbeat_interval, worker.statement_deadline, worker.fence_margin) == (10.0, 5.0, 5.0)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"worker\.id"):
        load(FORGEFLOW_WORKER_ID="alpha\udcff")
