# mypy: ignore-errors
"""Celery on Redis: prefork, 4 processes, acknowledged when a task has ended."""

import sys

from adapter import JOBS, Peer, main
from celery import Celery

app = Celery("bench", broker=sys.argv[2])
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)


@app.task(name="call")
def run(job: str, argument: str) -> None:
    JOBS[job](argument)


class WithCelery(Peer):
    def __init__(self, url: str) -> None: ...

    async def install(self) -> None: ...

    async def connect(self) -> None:
        app.connection_for_write().ensure_connection(max_retries=3)

    async def enqueue(self, job: str, argument: str) -> None:
        run.delay(job, argument)

    async def enqueue_many(self, job: str, count: int) -> None:
        with app.producer_pool.acquire(block=True) as producer:
            for _ in range(count):
                run.apply_async((job, ""), producer=producer)

    async def work(self) -> None:
        app.worker_main(["worker", "-c", "4", "-P", "prefork", "-l", "warning", "--without-gossip", "--without-mingle"])


if __name__ == "__main__":
    main(WithCelery)
