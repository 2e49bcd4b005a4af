"""The http executor: one request, through a client that is made with a worker's first HTTP job."""

from typing import TYPE_CHECKING

from forgeflow.config import Config
from forgeflow.domain.run import Ending
from forgeflow.executors.base import Orders
from forgeflow.executors.output import OutputKeeper
from forgeflow.store.runs import ClaimedRun

if TYPE_CHECKING:
    from forgeflow.executors.exchange import Exchange


class HttpExecutor:
    """Sends `payload.method` to `payload.url`.  One at a time; made once per worker, in the worker."""

    def __init__(self, config: Config) -> None:
        self._settings = config.executor_http
        self._exchange: Exchange | None = None

    def __call__(self, run: ClaimedRun, orders: Orders, keeper: OutputKeeper) -> Ending:
        if self._exchange is None:
            # The client is 20 MB and takes 0.2 s to import: workers that never see such a job do without.
            from forgeflow.executors.exchange import Exchange

            self._exchange = Exchange(self._settings)
        return self._exchange(run, orders, keeper)
