"""What an operator asks on a machine: is the configuration right."""

import os
from collections.abc import Iterator
from typing import Any

from forgeflow.cli.exits import exit_code
from forgeflow.cli.node import check_node
from forgeflow.cli.say import complain, say, say_document
from forgeflow.config import Config, Reading, effective, in_words, read_config, secret_keys
from forgeflow.errors import ConfigError
from forgeflow.store.connection import shown_url

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
