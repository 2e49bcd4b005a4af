"""One table: class of error → exit code.  Source: README "Exit codes"."""

import gc
import sys
from collections.abc import Callable
from typing import NoReturn

from forgeflow.cli.say import complain
from forgeflow.errors import (
    AddressTaken,
    ConfigError,
    Conflict,
    ForgeError,
    InvalidInput,
    NotFound,
    SchemaMismatch,
    StateTaken,
    StoreUnavailable,
)
from forgeflow.process.fork import open_standard_descriptors

FAILED = 1
INTERRUPTED = 130


# The first class that fits decides.
_TABLE: list[tuple[type[ForgeError], int]] = [
    (AddressTaken, 75),
    (StateTaken, 75),
    (ConfigError, 78),
    (InvalidInput, 2),
    (NotFound, 3),
    (Conflict, 4),
    (SchemaMismatch, 4),
    (StoreUnavailable, 69),
]


def exit_code(error: ForgeError) -> int:
    return next((code for kind, code in _TABLE if isinstance(error, kind)), FAILED)


def _sentence(error: ForgeError) -> str:
    if isinstance(error, InvalidInput) and error.problems:
        return f"{error}: {'; '.join(problem.detail for problem in error.problems)}"
    return str(error)


def exit_with(action: Callable[[], int]) -> NoReturn:
    """Run a command to its end: its code, or that of its error after one line on stderr."""
    open_standard_descriptors()
    try:
        code = action()
    except ForgeError as error:
        complain(_sentence(error))
        code = exit_code(error)
    except KeyboardInterrupt:
        code = INTERRUPTED
    gc.freeze()  # or Python walks the whole heap once more, which takes longer than most commands
    sys.exit(code)
