"""What a job's payload may say, for each executor; every bad field is named, none of the refused values is repeated."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from forgeflow.executors.secrets import REFERENCE
from forgeflow.functions.registry import MAX_NAME_LENGTH


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is blank; expected something to read")
    return text


Label = Annotated[str, AfterValidator(_not_blank)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


# Linux takes no longer argument of a program (MAX_ARG_STRLEN, 32 pages), its final NUL included.
_MAX_ARGUMENT_BYTES = 131_071


def _fit_an_argument(command: str) -> str:
    if len(command.encode("utf-8", "surrogatepass")) > _MAX_ARGUMENT_BYTES:
        raise ValueError(f"is longer than {_MAX_ARGUMENT_BYTES} bytes; put it into a file and run that")
    return command


def refuse_secrets(text: str) -> str:
    """For what is seen by others while the run goes on: in the list of processes, or in logs."""
    if REFERENCE.search(text):
        raise ValueError(
            "refers to a secret, which others would see here; expected secret:NAME in env or stdin of a command, "
            "in headers or body of a request, or in args of a function"
        )
    return text


class ShellPayload(Body):
    command: Annotated[str, AfterValidator(_fit_an_argument), AfterValidator(refuse_secrets)] = Field(min_length=1)


class FunctionPayload(Body):
    function: Label = Field(min_length=1, max_length=MAX_NAME_LENGTH)
    args: dict[str, Any] = {}


# What a payload is checked by; an executor that is none is refused elsewhere.
PAYLOADS: Mapping[str, type[Body]] = {"shell": ShellPayload, "python": FunctionPayload}
