# mypy: ignore-errors
"""Oban for Python.  BENCH_BATCH: jobs at once in each process."""

import asyncio
import os

from adapter import Peer, call, main
from oban import Oban, job
from oban.schema import install
from psycopg_pool import AsyncConnectionPool


@job(queue="default")
async def run(name: str, argument: str) -> None:
    await call(name, argument)


class WithOban(Peer):
    def __init__(self, url: str) -> None:
        self._pool = AsyncConnectionPool(url, min_size=2, max_size=10, open=False)

    async def install(self) -> None:
        await self._pool.open()
        await install(self._pool)

    async def connect(self) -> None:
        await self._pool.open()
        self._oban = Oban(pool=self._pool)

    async def enqueue(self, job: str, argument: str) -> None:
        await self._oban.enqueue(run.new(job, argument))

    async def enqueue_many(self, job: str, count: int) -> None:
        for start in range(0, count, 1000):
            await self._oban.enqueue_many([run.new(job, "") for _ in range(min(1000, count - start))])

    async def work(self) -> None:
        await self._pool.open()
        async with Oban(pool=self._pool, queues={"default": int(os.environ.get("BENCH_BATCH", "100"))}):
            await asyncio.Event().wait()


if __name__ == "__main__":
    main(WithOban)
