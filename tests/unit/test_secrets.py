"""Secrets: where a payload may refer to them, which files are trusted, and what is hidden in this process."""

import dataclasses
import io
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from forgeflow.errors import InvalidInput
from forgeflow.executors.secrets import (
    Mask,
    SecretRefused,
    hidden_in_this_process,
    read_secrets,
    references,
    resolve,
)
from forgeflow.log import PatientHandler
from forgeflow.service.requests import read_job_request
from forgeflow.store.runs import ClaimedRun
from tests.support.scenario import claimed_run

VALUE = "correct horse"


def shell(**payload: Any) -> ClaimedRun:
    return claimed_run(payload={"command": "true", **payload})


def write(folder: Path, name: str = "token", data: bytes = VALUE.encode(), *, mode: int = 0o600) -> Path:
    file = folder / name
    file.write_bytes(data)
    file.chmod(mode)
    return file


def refusal(name: str, folder: Path) -> str:
    with pytest.raises(SecretRefused) as refused:
        read_secrets([name], str(folder))
    return str(refused.value)


# References


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("secret:token", ["token"]),
        ("Bearer secret:api.token-1_x", ["api.token-1_x"]),
        ('{"key": "secret:a", "other": "secret:b", "again": "secret:a"}', ["a", "b"]),
        ("https://user:secret:token@host", ["token"]),
        ("mysecret:token", []),
        ("my-secret:token", []),
        ("secret: token", []),
        ("secret:", []),
        ("SECRET:token", []),
        ("secret:" + "x" * 64, ["x" * 64]),
        ("secret:" + "x" * 65, []),
    ],
)
def test_reference_is_a_whole_word(text: str, names: list[str]) -> None:
    assert list(references(shell(stdin=text))) == names


@pytest.mark.parametrize(
    ("executor", "payload"),
    [
        ("shell", {"command": "true", "env": {"A": "secret:token", "B": "x"}}),
        ("shell", {"command": "true", "stdin": "secret:token"}),
        ("http", {"url": "https://host", "headers": {"Authorization": "Bearer secret:token"}}),
        ("http", {"url": "https://host", "body": {"deep": ["secret:token", 1, None]}}),
        ("python", {"function": "f", "args": {"a": 1, "b": {"c": ["secret:token"]}}}),
    ],
)
def test_reference_is_resolved_where_nobody_else_sees_it(executor: str, payload: dict[str, Any]) -> None:
    run = claimed_run(executor, payload)
    assert references(run) == ["token"]
    resolved = resolve(run, {"token": VALUE})
    assert repr(resolved.payload) == repr(payload).replace("secret:token", VALUE)
    assert dataclasses.replace(resolved, payload=run.payload) == run
    assert "secret:token" in repr(run.payload)


def test_reference_elsewhere_is_left_as_it_is() -> None:
    run = shell(command="echo secret:token", argv=["secret:token"], workdir="secret:token", env={"secret:token": "x"})
    assert not references(run)
    assert resolve(run, {}).payload == run.payload


@pytest.mark.parametrize(
    ("executor", "field", "text"),
    [("shell", "command", "curl -u me:secret:token host"), ("http", "url", "http://host/?key=secret:token")],
)
def test_reference_that_others_would_see_is_refused_when_submitted(executor: str, field: str, text: str) -> None:
    body = {"name": "job", "executor": executor, "payload": {field: text}}
    with pytest.raises(InvalidInput) as refused:
        read_job_request(body)
    (problem,) = refused.value.problems
    assert problem.pointer == f"#/payload/{field}"
    assert problem.detail.startswith("refers to a secret, which others would see here; expected secret:NAME in env")
    assert "token" not in problem.detail


# Files


def test_secret_is_a_file_without_its_last_line_end(tmp_path: Path) -> None:
    write(tmp_path, "one", b"a b\n")
    write(tmp_path, "two", b"a\n\n", mode=0o400)
    assert read_secrets(["one", "two"], str(tmp_path)) == {"one": "a b", "two": "a\n"}


def test_credential_of_the_unit_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    credentials, folder = tmp_path / "credentials", tmp_path / "folder"
    for each in (credentials, folder):
        each.mkdir()
    write(credentials, "both", b"from the unit", mode=0o440)  # systemd's access list shows as rights of the group
    write(folder, "both")
    write(folder, "other")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    assert read_secrets(["both", "other"], str(folder)) == {"both": "from the unit", "other": VALUE}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("missing", "secret missing is missing; expected a file of that name in executor.secrets.folder"),
        ("readable", "secret readable is refused: its file is accessible by group or others; expected mode 0600"),
        ("grouped", "secret grouped is refused: its file is accessible by group or others"),
        ("link", "secret link cannot be read: it is a link"),
        ("pipe", "secret pipe is refused: it is not a regular file"),
        ("..", "secret .. cannot be read: Is a directory"),
        ("long", "secret long is refused: it is longer than 65536 bytes"),
        ("nul", "secret nul is refused: it has a NUL"),
        ("binary", "secret binary is refused: it is not UTF-8 text"),
        ("empty", "secret empty is refused: it is empty"),
        ("lines", "secret lines is refused: it has more than 1000 lines"),
    ],
)
def test_file_that_is_not_trusted_is_refused_with_the_reason(name: str, told: str, tmp_path: Path) -> None:
    write(tmp_path, "readable", mode=0o604)
    write(tmp_path, "grouped", mode=0o640)
    (tmp_path / "link").symlink_to(write(tmp_path))
    os.mkfifo(tmp_path / "pipe", 0o600)
    write(tmp_path, "long", b"x" * 65537)
    write(tmp_path, "nul", b"a\0b")
    write(tmp_path, "binary", b"correct\xff")
    write(tmp_path, "empty", b"\n")
    write(tmp_path, "lines", b"secret\n" * 1001)
    reason = refusal(name, tmp_path)
    assert reason.startswith(told)
    assert VALUE not in reason
    assert str(tmp_path) not in reason


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    os.chown(write(tmp_path), 65534, -1)
    assert "belongs to somebody else" in refusal("token", tmp_path)


def test_without_a_folder_there_is_none() -> None:
    assert "is missing" in refusal("token", Path("/"))


# In this process


def test_end_of_a_printed_secret_that_may_begin_another_one_stays_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stdout", printed)
    with hidden_in_this_process(Mask({"token": "abcab"})):
        sys.stdout.write("abcab")
        sys.stdout.write("x")
    assert printed.getvalue() == "******x"


def test_what_is_printed_and_logged_meanwhile_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stdout", printed)
    reading, writing = os.pipe()
    logger = logging.getLogger("test_secrets")
    logger.propagate = False
    logger.addHandler(PatientHandler(writing))
    with hidden_in_this_process(Mask({"token": VALUE})):
        print("it is", VALUE)  # noqa: T201
        for letter in VALUE:
            sys.stdout.write(letter)
        sys.stdout.write("corr")
        logger.error("with %s", VALUE)
    print(VALUE)  # noqa: T201
    os.close(writing)
    with os.fdopen(reading) as log:
        assert log.read() == "with ***\n"
    assert printed.getvalue() == f"it is ***\n***corr{VALUE}\n"
