"""Words for people and documents for programs; that nobody takes them changes no exit code, which says it all."""

import io
import json
import os
import re
import sys
from pathlib import Path

import click


def say(text: str) -> None:
    """A line on stdout, escaped where it might command a terminal, or where the terminal lacks a character."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    _write(_harmless(text))


def say_text(text: str) -> None:
    """What a job printed, without a line's end of its own: as it is, but to a terminal, which it must not command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stdout.isatty():
        text = re.sub(r"[^\n\t]+", lambda found: _harmless(found[0]), text)
    _write(text, end="")


def say_document(document: object) -> None:
    """One JSON document on stdout."""
    _write(json.dumps(document, indent=2))


def complain(text: str) -> None:
    """A line on stderr, whatever `text` is made of."""
    _write(f"forgeflow: {_harmless(' '.join(text.split()))}", to_stderr=True)


def _harmless(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]


def _write(text: str, *, to_stderr: bool = False, end: str = "\n") -> None:
    try:
        click.echo(text + end, err=to_stderr, nl=False, color=True)
    except OSError:  # the disk is full, or `| head` has ended
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 2 if to_stderr else 1)  # or Python fails over what is still in its buffer
