"""One attempt of a run, from claim to ending."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from forgeflow.domain.pace import WINDOW_SECONDS
from forgeflow.domain.run import Ending, Failure
from forgeflow.executors.base import Executor, Orders
from forgeflow.executors.output import OutputKeeper
from forgeflow.executors.secrets import Mask, SecretRefused, hidden_in_this_process, read_secrets, references, resolve
from forgeflow.process.clock import boottime
from forgeflow.store.runs import ClaimedRun
from forgeflow.worker.tally import Tally

log = structlog.get_logger()


def execute_run(
    run: ClaimedRun,
    executors: Mapping[str, Executor],
    orders: Orders,
    keeper: OutputKeeper,
    tally: Tally,
    *,
    secrets_folder: str,
) -> Ending:
    """Execute one attempt; whatever happens inside becomes its Ending.  Blocks until nothing of it is left.

    A run that the tally does not admit has a line in the log only when it fails, or lasts a window.
    """
    began = boottime()
    if tally.admits():
        log.info("run started", **named(run), job_name=run.job_name, try_number=run.failures + 1)
    ending = (
        _execute_with_secrets(run, names, executors, orders, keeper, secrets_folder)
        if (names := references(run))
        else _execute(run, executors, orders, keeper)
    )
    if keeper.total_bytes:
        ending = replace(ending, output=keeper.output())
    seconds = boottime() - began
    if tally.is_told or ending.failure or seconds >= WINDOW_SECONDS:
        log.info(
            "run ended",
            **named(run),
            job_name=run.job_name,
            error_type=ending.failure and ending.failure.error_type,
            exit_code=ending.exit_code,
            duration_seconds=round(seconds, 3),
        )
    else:
        tally.count()
    return ending


def _execute_with_secrets(
    run: ClaimedRun,
    names: Sequence[str],
    executors: Mapping[str, Executor],
    orders: Orders,
    keeper: OutputKeeper,
    folder: str,
) -> Ending:
    """Read what the run refers to, and hide it in all that the run says."""
    try:
        secrets = read_secrets(names, folder)
    except SecretRefused as error:
        return Ending(run.id, run.attempt, Failure("not_started", str(error), charged=True))
    mask = Mask(secrets)
    keeper.hide(mask)
    with hidden_in_this_process(mask):
        ending = _execute(resolve(run, secrets), executors, orders, keeper)
    failure = ending.failure
    return replace(ending, failure=replace(failure, error=mask.hide_text(failure.error))) if failure else ending


def _execute(run: ClaimedRun, executors: Mapping[str, Executor], orders: Orders, keeper: OutputKeeper) -> Ending:
    executor = executors.get(run.executor)
    if executor is None:
        known = ", ".join(executors)
        return Ending(
            run.id, run.attempt, Failure("unsupported", f"this node executes {known}, not {run.executor}", charged=True)
        )
    try:
        return executor(run, orders, keeper)
    except Exception:
        log.exception("executor failed", **named(run))
        failure = Failure("internal", "ForgeFlow failed to execute the run; its log has the traceback", charged=True)
        return Ending(run.id, run.attempt, failure)


def named(run: ClaimedRun) -> dict[str, Any]:
    """What every line of the log about an attempt says first."""
    return {"run_id": str(run.id), "job_id": str(run.job_id), "attempt": run.attempt}
