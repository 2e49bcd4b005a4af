"""What a shell job's payload may say."""

from typing import Any

import pytest

from forgeflow.errors import InvalidInput
from forgeflow.service.requests import read_job_request


def read(payload: Any) -> dict[str, Any]:
    """As it would be stored."""
    body = {"name": "job", "executor": "shell", "payload": payload}
    return dict(read_job_request(body).definition().payload)


@pytest.mark.parametrize(
    "payload",
    [
        {"command": "true"},
        {"argv": ["true"]},
        {"argv": ["printf", "%s", "", "a b", ";"]},
        {"command": "true", "env": {}},
        {"command": "true", "env": {"A": "", "_b1": "x=y\nz"}, "workdir": "/", "stdin": "", "success_codes": [0, 255]},
        {"command": "true", "run_as": "www-data", "limits": {"core": 0, "files": 1}},
    ],
)
def test_payload_is_stored_as_it_was_given(payload: dict[str, Any]) -> None:
    assert read(payload) == payload


@pytest.mark.parametrize(
    ("payload", "where"),
    [
        ({}, "#/payload"),
        ({"command": "true", "argv": ["true"]}, "#/payload"),
        ({"argv": [""]}, "#/payload"),
        ({"argv": []}, "#/payload/argv"),
        ({"argv": "true"}, "#/payload/argv"),
        ({"argv": ["true", 1]}, "#/payload/argv/1"),
        ({"argv": ["true", "x" * 131_072]}, "#/payload/argv/1"),
        ({"argv": ["login", "secret:password"]}, "#/payload/argv/1"),
        ({"command": ""}, "#/payload/command"),
        ({"command": "x" * 131_072}, "#/payload/command"),
        ({"command": "true", "env": {"1A": "x"}}, "#/payload/env/1A"),
        ({"command": "true", "env": {"A=B": "x"}}, "#/payload/env/A=B"),
        ({"command": "true", "env": {"FORGEFLOW_RUN_ID": "x"}}, "#/payload/env/FORGEFLOW_RUN_ID"),
        ({"command": "true", "env": {"A": 1}}, "#/payload/env/A"),
        ({"command": "true", "env": {"A": "x\0"}}, "#/payload/env/A"),
        ({"command": "true", "env": {"A": "x" * 131_071}}, "#/payload/env"),
        ({"command": "true", "workdir": "home"}, "#/payload/workdir"),
        ({"command": "true", "stdin": 1}, "#/payload/stdin"),
        ({"command": "true", "success_codes": []}, "#/payload/success_codes"),
        ({"command": "true", "success_codes": [256]}, "#/payload/success_codes/0"),
        ({"command": "true", "run_as": "a b"}, "#/payload/run_as"),
        ({"command": "true", "limits": {"memory": 0}}, "#/payload/limits/memory"),
        ({"command": "true", "limits": {"ram": 5}}, "#/payload/limits/ram"),
        ({"command": "true", "uid": 0}, "#/payload/uid"),
    ],
)
def test_bad_field_is_named_and_its_value_is_not_repeated(payload: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(payload)
    (problem,) = refused.value.problems
    assert problem.pointer == where
    assert "x" * 10 not in problem.detail
    assert "password" not in problem.detail
