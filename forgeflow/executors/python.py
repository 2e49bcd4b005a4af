"""The python executor: a registered function, called in the worker itself.

It costs about what the call costs: nothing is forked or sent. So a function shares the worker with those before and
after it, and what it prints goes where the worker's log goes. It is not interrupted: not by its timeout, nor by a
cancel, nor by a stop of the node. A worker that overruns the run's timeout by more than `worker.kill_grace` is killed
by its master, and the run is charged.
"""

import inspect
import os
import traceback

import structlog

from forgeflow.config import Config
from forgeflow.domain.run import Ending, Failure
from forgeflow.errors import Cancel, Retry
from forgeflow.executors.base import STOPPED, Orders
from forgeflow.executors.output import OutputKeeper, clean_text
from forgeflow.executors.surroundings import Belongings, WorkerSurroundings, context_of
from forgeflow.functions.registry import Registry
from forgeflow.functions.spec import FunctionSpec
from forgeflow.process.fork import EXIT_BUG, doubt_signals
from forgeflow.process.tree import Strays, children
from forgeflow.store.runs import ClaimedRun

log = structlog.get_logger()

_MAX_ERROR_LENGTH = 1000


class PythonExecutor:
    """Calls `payload.function` of the registry with the context, if it takes it, and with `payload.args`.

    One at a time; made once per worker, in the worker.
    """

    def __init__(self, registry: Registry, config: Config) -> None:
        self._registry = registry
        self._belongings = Belongings(config)
        self._strays = Strays()
        self._pid = os.getpid()

    def __call__(self, run: ClaimedRun, orders: Orders, keeper: OutputKeeper) -> Ending:
        name = run.payload.get("function")
        spec = self._registry.get(name)  # type: ignore[arg-type] # None is nobody's name
        if spec is None:
            error = f"no function is called {name}; workers know those of the modules in python.modules"
            return Ending(run.id, run.attempt, Failure("not_found", error, charged=True))
        doubt_signals()
        surroundings = WorkerSurroundings(run, self._belongings, orders, keeper)
        failure: Failure | None = None
        try:
            _call(spec, surroundings)
        except (Retry, Cancel) as wish:
            failure = _wished(wish, keeper)
        except BaseException as error:  # noqa: BLE001 - the edge of user code: one that exits must not end the worker
            failure = _failed(error, keeper)
        if surroundings.was_told:
            failure = STOPPED[surroundings.was_told]  # as of a command that has answered its TERM
        ending = Ending(run.id, run.attempt, failure)
        if os.getpid() != self._pid:
            os._exit(EXIT_BUG)  # a child of the function has returned: it must not be a second worker
        if children():
            self._kill_strays()
        return ending

    def _kill_strays(self) -> None:
        if left := self._strays.kill_until_none():
            log.warning("processes left behind killed", count=left)


def _call(spec: FunctionSpec, surroundings: WorkerSurroundings) -> None:
    given = (context_of(surroundings, spec.name),) if spec.takes_context else ()
    returned = spec.function(*given, **surroundings.run.payload.get("args", {}))
    if inspect.iscoroutine(returned):
        import asyncio  # costs every worker that has no asynchronous function 2 MB

        asyncio.run(returned)


def _wished(wish: Retry | Cancel, keeper: OutputKeeper) -> Failure:
    """What the function asked for by raising it."""
    reason = _last_words(wish, keeper)
    if isinstance(wish, Cancel):
        return Failure("cancelled", reason, charged=False)
    return Failure("postponed", reason, charged=True, is_later=True, retry_after_seconds=wish.after_seconds)


def _failed(error: BaseException, keeper: OutputKeeper) -> Failure:
    """Its last words, and the way to them without our own part of it; the values of variables are nobody's to keep."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    way = traceback.TracebackException(type(error), error, frames)
    for part in way.format():
        keeper.feed(part.encode("utf-8", "backslashreplace"))
    return Failure("failed", _last_words(error, keeper), charged=True)


def _last_words(error: BaseException, keeper: OutputKeeper) -> str:
    try:
        text = keeper.hidden(str(error))[:_MAX_ERROR_LENGTH]
    except BaseException:  # noqa: BLE001 - user code as well
        text = "(it cannot be shown as text)"
    said = f"{type(error).__qualname__}: {text}" if text else type(error).__qualname__
    return clean_text(said.encode("utf-8", "backslashreplace"))
