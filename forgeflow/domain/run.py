"""A run's vocabulary: its statuses, and how an attempt ended."""

from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

# What tells a job which run it is; a ForgeFlow that a job starts must not take these for settings.
RUN_VARIABLES = (
    "FORGEFLOW_RUN_ID",
    "FORGEFLOW_ATTEMPT",
    "FORGEFLOW_JOB_ID",
    "FORGEFLOW_JOB_NAME",
    "FORGEFLOW_SCHEDULED_FOR",
    "FORGEFLOW_TIMEZONE",
    "FORGEFLOW_IS_CATCH_UP",
)


# Where a command says how far it has come: it is not every job that has it.
PROGRESS_VARIABLE = "FORGEFLOW_PROGRESS_FD"
JOB_VARIABLES = (*RUN_VARIABLES, PROGRESS_VARIABLE)


class RunStatus(StrEnum):
    """Stored (or, for pending and running, derived from the owner) and shown; the last three are final."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Output:
    """What a run printed: its beginning and its end as clean text, and how many bytes there were in all.

    Clean: no NUL, no unpaired surrogate; bytes that are not UTF-8 are shown as U+FFFD. Otherwise a job's output
    could keep its own ending from being stored.
    """

    head: str = ""
    tail: str = ""
    total_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt did not succeed.

    `error_type`: failed, postponed, signalled, timed_out, memory, not_found, not_started, unsupported, internal;
    fenced, cancelled and interrupted by us; and where the worker could not say it itself crashed, wedged, refused,
    lost. Only a `charged` one uses up a try.

    `is_later`: the attempt asked to be made again later, and uses up no try as long as that is not asked too often;
    `retry_after_seconds`: how much later, instead of the job's own backoff; never more than its cap.
    """

    error_type: str
    error: str
    charged: bool
    is_later: bool = False
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How one attempt of a run ended; without `failure` it succeeded.

    A claimed run that was not begun is handed back as it was before its claim, whatever its failure says. `signal` is
    the number of the one that ended a command, and there is no exit code then.
    """

    run_id: UUID
    attempt: int
    failure: Failure | None = None
    exit_code: int | None = None
    output: Output = field(default_factory=Output)
    is_begun: bool = True
    signal: int | None = None
    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a worker is dead, and what that means for the runs that it owned.

    What it had begun, one attempt of `begun_run` or, where nobody can know, all of them, ends with this error; it
    is `charged` for it or not. The others are handed back untouched.
    """

    error_type: str
    error: str
    charged: bool
    begun_run: UUID | None = None
    begun_attempt: int | None = None
    all_begun: bool = False
