"""What a job's payload may say, for each executor; every bad field is named, none of the refused values is repeated."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from forgeflow.executors.secrets import REFERENCE
from forgeflow.functions.fields import MAX_NAME_LENGTH


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is blank; expected something to read")
    return text


Label = Annotated[str, AfterValidator(_not_blank)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


# Linux takes no longer argument of a program (MAX_ARG_STRLEN, 32 pages), its final NUL included.
_MAX_ARGUMENT_BYTES = 131_071
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _length(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _fit_an_argument(text: str) -> str:
    if _length(text) > _MAX_ARGUMENT_BYTES:
        raise ValueError(f"is longer than {_MAX_ARGUMENT_BYTES} bytes; put it into a file and run that")
    return text


def _is_variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("expected the name of a variable: letters, digits and underscores, no digit first")
    if name.startswith("FORGEFLOW_"):
        raise ValueError("is a name that ForgeFlow keeps for itself")
    return name


def _fit_an_environment(variables: dict[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if _length(name) + 1 + _length(value) > _MAX_ARGUMENT_BYTES:
            raise ValueError(f"has a variable of more than {_MAX_ARGUMENT_BYTES} bytes; put it into stdin or a file")
    return variables


def _is_absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("expected an absolute path")
    return path


def refuse_secrets(text: str) -> str:
    """For what is seen by others while the run goes on: in the list of processes, or in logs."""
    if REFERENCE.search(text):
        raise ValueError(
            "refers to a secret, which others would see here; expected secret:NAME in env or stdin of a command, "
            "in headers or body of a request, or in args of a function"
        )
    return text


Argument = Annotated[str, AfterValidator(_fit_an_argument), AfterValidator(refuse_secrets)]
Folder = Annotated[str, AfterValidator(_is_absolute)]


# Of a resource: more than the kernel counts to is no limit.
Amount = Annotated[int, Field(ge=1, le=2**62)]


class Limits(Body):
    """What one process of a command may take.  Source: setrlimit(2).

    Bytes of address space, seconds of CPU, descriptors, bytes of a core file; `processes` counts all of its user.
    """

    memory: Amount | None = None
    cpu: Amount | None = None
    files: Amount | None = None
    processes: Amount | None = None
    core: Annotated[int, Field(ge=0, le=2**62)] | None = None


class ShellPayload(Body):
    """A line for the shell, or a program with its arguments, and what it is given.  Source: README "Shell jobs"."""

    command: Argument | None = Field(default=None, min_length=1)
    argv: list[Argument] | None = Field(default=None, min_length=1, max_length=1000)
    env: Annotated[dict[Annotated[str, AfterValidator(_is_variable)], str], AfterValidator(_fit_an_environment)] = {}
    workdir: Folder | None = Field(default=None, max_length=4000)
    stdin: str | None = None
    success_codes: list[Annotated[int, Field(ge=0, le=255)]] = Field(default=[0], min_length=1, max_length=256)
    run_as: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,31}$")] | None = None
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.command is None) == (self.argv is None):
            raise ValueError("expected either command, a line for the shell, or argv, a program and its arguments")
        if self.argv is not None and not self.argv[0]:
            raise ValueError("expected the name of a program as the first of argv")
        return self


class FunctionPayload(Body):
    function: Label = Field(min_length=1, max_length=MAX_NAME_LENGTH)
    args: dict[str, Any] = {}


MAX_URL_LENGTH = 8000
_MAX_HOST_LENGTH = 253
_MAX_HEADERS = 100
_MAX_HEADER_LENGTH = 8000


def _check_url(url: str) -> str:
    """That it can be called; where it leads to is looked at when it is called."""
    if any(character <= " " or character in "\x7f\\" for character in url):
        raise ValueError("holds a blank, a backslash or a control character; expected them percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("is no URL; expected one such as https://example.com:8443/path") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError("expected a URL that begins with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("holds a user or password; expected a header Authorization instead")
    if not parts.hostname or len(parts.hostname) > _MAX_HOST_LENGTH or port == 0:
        raise ValueError(f"expected a host of {_MAX_HOST_LENGTH} characters at most, and a port from 1 to 65535 if any")
    return url


# A token of RFC 9110, 5.6.2.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# What frames the message, and what tells of the run: two of them, or a forged one, would mislead who reads it.
_OUR_HEADERS = {
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "proxy-connection",
    "expect",
    "idempotency-key",
    "traceparent",
}


def _check_header_name(name: str) -> str:
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError("is no name of a header")
    if name.lower() in _OUR_HEADERS or name.lower().startswith("x-forgeflow-"):
        raise ValueError("is a header that ForgeFlow sets itself")
    return name


def _check_header_value(value: str) -> str:
    if _CONTROL.search(value) or len(value) > _MAX_HEADER_LENGTH:
        raise ValueError(f"expected one line of {_MAX_HEADER_LENGTH} characters at most, without control characters")
    return value


def _differ_in_more_than_case(headers: dict[str, str]) -> dict[str, str]:
    if len({name.lower() for name in headers}) < len(headers):
        raise ValueError("has a header twice, in different case")
    return headers


HeaderName = Annotated[str, AfterValidator(_check_header_name)]
HeaderValue = Annotated[str, AfterValidator(_check_header_value)]
Headers = Annotated[dict[HeaderName, HeaderValue], AfterValidator(_differ_in_more_than_case)]
Status = Annotated[int, Field(ge=100, le=599)]


class HttpPayload(Body):
    url: Annotated[str, AfterValidator(_check_url), AfterValidator(refuse_secrets)] = Field(
        min_length=1, max_length=MAX_URL_LENGTH
    )
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "POST"
    headers: Headers = Field(default={}, max_length=_MAX_HEADERS)
    body: JsonValue = None
    expect_status: list[Status] | None = Field(default=None, min_length=1, max_length=500)


# What a payload is checked by; an executor that is none is refused elsewhere.
PAYLOADS: Mapping[str, type[Body]] = {"shell": ShellPayload, "http": HttpPayload, "python": FunctionPayload}
