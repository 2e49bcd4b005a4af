"""What the command line prints of what a job printed."""

import os
import sys

import pytest

from forgeflow.cli.say import say_text

TEXT = "\x1b[31mred\x1b[0m\tä\nend"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_text_of_a_job_commands_no_terminal_and_is_whole_elsewhere(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    reading, writing = os.openpty() if is_terminal else os.pipe()
    with os.fdopen(writing, "w", encoding="utf-8") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        say_text(TEXT)
        said = os.read(reading, 1000).decode().replace("\r\n", "\n")
    os.close(reading)
    assert said == ("\\x1b[31mred\\x1b[0m\tä\nend" if is_terminal else TEXT)
