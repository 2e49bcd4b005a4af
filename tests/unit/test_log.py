"""What a line of the log looks like, and what no data can do to it."""

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import structlog

from forgeflow.config import Log
from forgeflow.log import PatientHandler, set_up_logging

NASTY = "a\nb\x1b[31m\r\x9b\u2028\u202e\x00 'q' \"r\" \ud800"


class _Stderr:
    """A file that may pass for a terminal."""

    def __init__(self, path: Path, *, terminal: bool) -> None:
        self._path = path
        self._file = path.open("wb")
        self._terminal = terminal

    def fileno(self) -> int:
        return self._file.fileno()

    def isatty(self) -> bool:
        return self._terminal

    def lines(self) -> list[str]:
        return self._path.read_text().split("\n")[:-1]


Lines = Callable[[], list[str]]


@pytest.fixture
def logging_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Lines]]:
    """Set logging up on a stream of our own; the answer gives its lines."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def start(
        form: Literal["auto", "console", "json"] = "auto",
        *,
        level: Literal["debug", "info", "warning", "error"] = "info",
        terminal: bool = False,
    ) -> Lines:
        stream = _Stderr(tmp_path / f"stderr-{len(list(tmp_path.iterdir()))}", terminal=terminal)
        monkeypatch.setattr(sys, "stderr", stream)
        set_up_logging(Log(level=level, format=form))
        return stream.lines

    yield start
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_json_line_begins_with_time_level_and_event(logging_to: Callable[..., Lines]) -> None:
    lines = logging_to()
    structlog.contextvars.bind_contextvars(role="worker")
    structlog.get_logger().info("run finished", run_id=81, status="succeeded")
    (line,) = lines()
    assert list(json.loads(line)) == ["timestamp", "level", "event", "run_id", "status", "role"]


def test_console_line_is_what_the_house_writes(logging_to: Callable[..., Lines]) -> None:
    lines = logging_to(terminal=True)
    structlog.get_logger().warning(
        "run finished", run_id=81, job="two words", seconds=1.204, owner=None, roles=("a", "b")
    )
    (line,) = lines()
    timestamp, _, rest = line.partition(" ")
    assert timestamp.endswith("Z")
    assert rest == "warning run finished run_id=81 job='two words' seconds=1.204 owner=None roles=a,b"


@pytest.mark.parametrize("form", ["console", "json"])
def test_no_data_forges_a_line_or_drives_a_terminal(logging_to: Callable[..., Lines], form: str) -> None:
    lines = logging_to(form)
    structlog.get_logger().info("job submitted", name=NASTY, object={"key": NASTY}, raw=NASTY.encode(errors="replace"))
    logging.getLogger("library").warning("it said %s", NASTY)
    first, second = lines()
    assert first.isprintable()
    assert second.isprintable()
    if form == "json":
        assert json.loads(first)["name"] == NASTY


def test_libraries_log_in_the_same_form(logging_to: Callable[..., Lines]) -> None:
    lines = logging_to()
    logging.getLogger("gunicorn.error").info("Listening at %s", "there")
    logging.getLogger("gunicorn.error").debug("too much")
    (line,) = lines()
    found = json.loads(line)
    assert (found["level"], found["event"]) == ("info", "Listening at there")


def test_level_decides(logging_to: Callable[..., Lines]) -> None:
    lines = logging_to(level="error")
    structlog.get_logger().warning("it recovered")
    structlog.get_logger().error("someone must look")
    assert len(lines()) == 1


def _fail(logger: Any) -> None:
    try:
        raise ValueError(NASTY)
    except ValueError:
        logger.exception("pass failed", run_id=1)


def test_traceback_is_part_of_the_json_line(logging_to: Callable[..., Lines]) -> None:
    lines = logging_to()
    _fail(structlog.get_logger())
    (line,) = lines()
    assert "ValueError" in json.loads(line)["exception"]


def test_traceback_on_a_terminal_stands_indented_below(logging_to: Callable[..., Lines]) -> None:
    lines = logging_to(terminal=True)
    _fail(structlog.get_logger())
    first, *below = lines()
    assert first.endswith("error pass failed run_id=1")
    assert any("ValueError" in line for line in below)
    assert all(line.startswith("    ") and line.isprintable() for line in below)


def test_set_up_twice_still_writes_once(logging_to: Callable[..., Lines]) -> None:
    logging_to()
    lines = logging_to()
    structlog.get_logger().info("once")
    assert len(lines()) == 1


def test_full_pipe_costs_lines_but_never_a_wait() -> None:
    """The count of the lost lines is told when somebody reads again."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    handler = PatientHandler(writing)
    handler.setFormatter(logging.Formatter("%(message)s"))

    def say(text: str) -> None:
        handler.emit(logging.LogRecord("x", logging.INFO, "x", 1, text, None, None))

    for number in range(2000):
        say(f"{number:05} " + "x" * 100)
    read = os.read(reading, 1 << 20).decode().splitlines()
    say("heard again")
    told = os.read(reading, 1 << 20).decode().splitlines()
    assert [int(line.split()[0]) for line in read] == list(range(len(read)))
    assert told == [f"forgeflow: {2000 - len(read)} log lines dropped, nobody read them", "heard again"]
    os.close(reading)
    say("to nobody")
    os.close(writing)
    say("to nothing")
