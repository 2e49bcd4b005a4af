# mypy: ignore-errors
"""pgqueuer over asyncpg, in uvloop as its own command does.  BENCH_BATCH: jobs it takes at once, 10 by default."""

import os

import asyncpg
import uvloop
from adapter import Peer, call, keywords, main
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver


class WithPgqueuer(Peer):
    def __init__(self, url: str) -> None:
        facts = keywords(url)
        self._place = {
            **{name: facts[name] for name in ("host", "port", "user", "password")},
            "database": facts["dbname"],
        }

    async def _driver(self) -> AsyncpgDriver:
        return AsyncpgDriver(await asyncpg.connect(**self._place))

    async def install(self) -> None:
        await Queries(await self._driver()).install()

    async def connect(self) -> None:
        self._queries = Queries(await self._driver())

    async def enqueue(self, job: str, argument: str) -> None:
        await self._queries.enqueue(job, argument.encode())

    async def enqueue_many(self, job: str, count: int) -> None:
        await self._queries.enqueue([job] * count, [b""] * count, [0] * count)

    async def work(self) -> None:
        queuer = PgQueuer(await self._driver())

        def register(name: str) -> None:
            @queuer.entrypoint(name)
            async def run(job) -> None:
                await call(name, (job.payload or b"").decode())

        for name in ("noop", "true", "stamp"):
            register(name)
        await queuer.run(batch_size=int(os.environ.get("BENCH_BATCH", "10")))


if __name__ == "__main__":
    uvloop.install()
    main(WithPgqueuer)
