# mypy: ignore-errors
"""procrastinate, 4 jobs at once in each process."""

from adapter import Peer, call, main
from procrastinate import App, PsycopgConnector


class WithProcrastinate(Peer):
    def __init__(self, url: str) -> None:
        self._app = App(connector=PsycopgConnector(conninfo=url))

        @self._app.task(name="call")
        async def run(job: str, argument: str) -> None:
            await call(job, argument)

        self._task = run

    async def install(self) -> None:
        await self._app.open_async()
        await self._app.schema_manager.apply_schema_async()

    async def connect(self) -> None:
        await self._app.open_async()

    async def enqueue(self, job: str, argument: str) -> None:
        await self._task.defer_async(job=job, argument=argument)

    async def enqueue_many(self, job: str, count: int) -> None:
        await self._task.batch_defer_async(*[{"job": job, "argument": ""}] * count)

    async def work(self) -> None:
        await self._app.open_async()
        await self._app.run_worker_async(concurrency=4)


if __name__ == "__main__":
    main(WithProcrastinate)
