"""One attempt of a run, from claim to ending."""

from collections.abc import Mapping
from typing import Any

import structlog

from forgeflow.domain.pace import WINDOW_SECONDS
from forgeflow.domain.run import Ending, Failure
from forgeflow.executors.base import Executor, Orders
from forgeflow.process.clock import boottime
from forgeflow.store.runs import ClaimedRun

log = structlog.get_logger()


def execute_run(run: ClaimedRun, executors: Mapping[str, Executor], orders: Orders, *, is_told: bool = True) -> Ending:
    """Execute one attempt; whatever happens inside becomes its Ending.  Blocks until nothing of it is left.

    `is_told`: its beginning and its end are logged; the end is always when it fails, or has lasted a window.
    """
    began = boottime()
    if is_told:
        log.info("run started", **_names(run), job_name=run.job_name, try_number=run.failures + 1)
    executor = executors.get(run.executor)
    if executor is None:
        known = ", ".join(executors)
        return Ending(
            run.id, run.attempt, Failure("unsupported", f"this node executes {known}, not {run.executor}", charged=True)
        )
    try:
        ending = executor(run, orders)
    except Exception:
        log.exception("executor failed", **_names(run))
        failure = Failure("internal", "ForgeFlow failed to execute the run; its log has the traceback", charged=True)
        ending = Ending(run.id, run.attempt, failure)
    seconds = boottime() - began
    if is_told or ending.failure or seconds >= WINDOW_SECONDS:
        log.info(
            "run ended",
            **_names(run),
            outcome=ending.failure.error_type if ending.failure else "succeeded",
            exit_code=ending.exit_code,
            duration_seconds=round(seconds, 3),
        )
    return ending


def _names(run: ClaimedRun) -> dict[str, Any]:
    return {"run_id": str(run.id), "job_id": str(run.job_id), "attempt": run.attempt}
