"""One attempt of a run, from claim to ending."""

from collections.abc import Mapping

import structlog

from forgeflow.domain.run import Ending, Failure
from forgeflow.executors.base import Executor, Orders
from forgeflow.process.clock import boottime
from forgeflow.store.runs import ClaimedRun

log = structlog.get_logger()


def execute_run(run: ClaimedRun, executors: Mapping[str, Executor], orders: Orders) -> Ending:
    """Execute one attempt; whatever happens inside becomes its Ending.  Blocks until nothing of it is left."""
    bound = log.bind(run_id=str(run.id), job_id=str(run.job_id), attempt=run.attempt)
    began = boottime()
    bound.info("run started", job_name=run.job_name, try_number=run.failures + 1)
    executor = executors.get(run.executor)
    if executor is None:
        known = ", ".join(executors)
        return Ending(
            run.id, run.attempt, Failure("unsupported", f"this node executes {known}, not {run.executor}", charged=True)
        )
    try:
        ending = executor(run, orders)
    except Exception:  # noqa: BLE001 - the edge of the attempt: a bug here must cost a try, not the worker
        bound.exception("executor failed")
        failure = Failure("internal", "ForgeFlow failed to execute the run; its log has the traceback", charged=True)
        ending = Ending(run.id, run.attempt, failure)
    bound.info(
        "run ended",
        outcome=ending.failure.error_type if ending.failure else "succeeded",
        exit_code=ending.exit_code,
        duration_seconds=round(boottime() - began, 3),
    )
    return ending
