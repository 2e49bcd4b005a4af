"""What an operator asks on a machine: is the configuration right, and is all well around a node."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from forgeflow.cli.exits import FAILED, exit_code
from forgeflow.cli.node import check_node
from forgeflow.cli.say import complain, say, say_document
from forgeflow.config import Config, Reading, effective, in_words, read_config, secret_keys
from forgeflow.errors import ConfigError, StoreError
from forgeflow.service import doctor
from forgeflow.service.doctor import Check, Verdict
from forgeflow.store.connection import Connection, required_url, shown_url
from forgeflow.store.probe import look

# However many hosts and addresses there are, and whatever hangs.
_DATABASE_SECONDS = 30.0


# check-config


def run_check_config(config_file: str | None, *, as_json: bool) -> int:
    """Say where the settings of a node come from; a line on stderr for each that is wrong.  Blocks on files alone."""
    try:
        reading = read_config(config_file)
        check_node(reading.config)
    except ConfigError as error:
        if as_json:
            say_document({"is_valid": False, "problems": error.problems})
        for problem in error.problems:
            complain(problem)
        return exit_code(error)
    if as_json:
        say_document(_reading_document(reading, config_file))
    else:
        for line in _reading_lines(reading, config_file):
            say(line)
    return 0


def _named_by(reading: Reading, config_file: str | None) -> str:
    if reading.file is None:
        return "nothing"
    if config_file:
        return "--config"
    return "FORGEFLOW_CONFIG" if os.environ.get("FORGEFLOW_CONFIG") else "the search"


def _shown(key: str, text: str) -> str:
    """A setting as it was given, without what is secret in it."""
    if key not in secret_keys():
        return text
    return shown_url(text) if key == "database.url" and text else "***"


def _differs(config: Config, key: str) -> bool:
    return bool(effective(config, key) != effective(Config(), key))


def _default(key: str) -> str:
    return in_words(effective(Config(), key)) or "none"


def _settings(reading: Reading) -> Iterator[dict[str, Any]]:
    """What was set to something else than its default, and what was beaten by something stronger."""
    for key, setting in reading.file_settings.items():
        beaten_by = reading.environment_settings.get(key)
        if beaten_by or _differs(reading.config, key):
            yield _setting(key, setting.text, setting.origin, beaten_by.origin if beaten_by else None)
    for key, setting in reading.environment_settings.items():
        yield _setting(key, setting.text, setting.origin, None)


def _setting(key: str, text: str, origin: str, beaten_by: str | None) -> dict[str, Any]:
    shown = _shown(key, text)
    return {"key": key, "value": shown, "default": _default(key), "origin": origin, "beaten_by": beaten_by}


def _reading_document(reading: Reading, config_file: str | None) -> dict[str, Any]:
    return {
        "is_valid": True,
        "file": str(reading.file) if reading.file else None,
        "named_by": _named_by(reading, config_file),
        "settings": list(_settings(reading)),
    }


def _reading_lines(reading: Reading, config_file: str | None) -> Iterator[str]:
    by_file: list[str] = []
    by_environment: list[str] = []
    for setting in _settings(reading):
        beaten = f"; beaten by {setting['beaten_by']}" if setting["beaten_by"] else ""
        line = f"  {setting['key']} = {setting['value']} (default {setting['default']}{beaten})"
        if setting["origin"] == str(reading.file):
            by_file.append(line)
        else:
            by_environment.append(f"  {setting['origin']}: {line.strip()}")
    if reading.file is None:
        yield "file: none was found"
    else:
        yield f"file: {reading.file} (named by {_named_by(reading, config_file)})"
        yield from by_file or ["  nothing in it differs from the defaults"]
    yield "environment:"
    yield from by_environment or ["  nothing"]
    yield "Everything else has its default. A node would start with this configuration."


# doctor


def run_doctor(config_file: str | None, *, as_json: bool) -> int:
    """Say what is wrong around a node.  Blocks for half a minute at most, and writes nothing to the database."""
    checks: list[Check] = []
    code = _examine(config_file, checks.append)
    if not code and any(check.verdict is Verdict.FAILED for check in checks):
        code = FAILED
    if as_json:
        say_document({"exit_code": code, "checks": [asdict(check) for check in checks]})
        return code
    for check in checks:
        say(f"{check.verdict:8} {check.name}: {' '.join(check.found.split())}")
        if check.cure:
            say(f"{'':8} cure: {check.cure}")
    say(_summary(checks))
    return code


def _summary(checks: list[Check]) -> str:
    failed = sum(check.verdict is Verdict.FAILED for check in checks)
    warnings = sum(check.verdict is Verdict.WARNING for check in checks)
    return f"{len(checks)} checks: {failed or 'none'} failed, {warnings} {'warning' if warnings == 1 else 'warnings'}"


def _examine(config_file: str | None, note: Callable[[Check], None]) -> int:
    """All checks that can be made; the code that ends the command unless one of them failed."""
    code = 0
    try:
        reading = read_config(config_file)
        config = reading.config
        try:
            check_node(config)
            note(doctor.check_reading(str(reading.file) if reading.file else None, sorted(_variables(reading))))
        except ConfigError as error:
            code = _note_problems(error, note)
        if _has_url(config):
            unreachable = _examine_database(config, note)
            code = code or unreachable
        doctor.examine_machine(config, note)
    except ConfigError as error:
        code = _note_problems(error, note)
    doctor.examine_zones(note)
    return code


def _note_problems(error: ConfigError, note: Callable[[Check], None]) -> int:
    for problem in error.problems:
        note(doctor.check_problem(problem))
    return exit_code(error)


def _variables(reading: Reading) -> set[str]:
    return {setting.origin for setting in reading.environment_settings.values()}


def _has_url(config: Config) -> bool:
    try:
        required_url(config)
    except ConfigError:
        return False
    return True


def _examine_database(config: Config, note: Callable[[Check], None]) -> int:
    found: list[Check] = []
    begun = time.monotonic()

    def examine(connection: Connection) -> None:
        found.append(doctor.check_reached(config.database.url, time.monotonic() - begun))
        doctor.examine_database(connection, config, found.append)

    code = 0
    try:
        look(config, "doctor", examine, within_seconds=_DATABASE_SECONDS)
    except StoreError as error:
        code = exit_code(error)
        found = [*found, doctor.check_refusal(str(error))]  # a copy: the thread may still be at it
    for check in found:
        note(check)
    return code
