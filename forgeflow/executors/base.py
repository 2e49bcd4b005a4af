"""What every executor is given and what it promises."""

from collections.abc import Mapping
from typing import Protocol

from forgeflow.domain.run import RUN_VARIABLES, Ending, Failure
from forgeflow.executors.output import OutputKeeper
from forgeflow.store.runs import ClaimedRun


class Orders(Protocol):
    """What a running attempt may be told from outside, and until when it is ours."""

    def fileno(self) -> int:
        """Readable when something has come."""

    @property
    def is_closed(self) -> bool:
        """Nothing will come any more."""

    def stop_reason(self, run: ClaimedRun) -> str | None:
        """`cancelled`, `interrupted`, `fenced` or `lost` (our master died) when this attempt shall stop, else None.

        Reads what has come; never blocks.
        """

    def fence_at(self, run: ClaimedRun) -> float:
        """When to ask again, on CLOCK_BOOTTIME: the lease may not have been renewed by then."""


# What an attempt ends with that was stopped, by `Orders.stop_reason`. That of a lost master is charged, as whoever
# recovers us would: a job that ends its master must not be tried for ever.
STOPPED: Mapping[str, Failure] = {
    "cancelled": Failure("cancelled", "stopped", charged=False),
    "fenced": Failure("fenced", "stopped because its node could not renew the lease", charged=False),
    "interrupted": Failure("interrupted", "stopped because its node is stopping", charged=False),
    "lost": Failure("lost", "its node's master died", charged=True),
}


class Executor(Protocol):
    def __call__(self, run: ClaimedRun, orders: Orders, keeper: OutputKeeper) -> Ending:
        """Execute one attempt and return when nothing of it is left.

        What it prints is fed to the keeper, and is in the Ending by the caller's hand. What goes wrong with the job is
        part of the Ending; an exception is a bug of the executor.
        """


def run_environment(run: ClaimedRun) -> Mapping[str, str]:
    """What tells a job which run it is, so that it can be idempotent.  Source: README "Shell jobs"."""
    values = (
        str(run.id),
        str(run.attempt),
        str(run.job_id),
        run.job_name,
        run.scheduled_for.isoformat().replace("+00:00", "Z"),
        run.timezone,
        "true" if run.is_catch_up else "false",
    )
    return dict(zip(RUN_VARIABLES, values, strict=True))
