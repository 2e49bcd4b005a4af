"""What every peer's script can do: be installed, loaded, worked by, and timed.  Standard library only.

`python with_peer.py VERB URL …`; the URL is a libpq keyword string, or Redis'. Verbs that measure print JSON.
"""

import asyncio
import json
import mmap
import os
import random
import select
import struct
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import Any

# How many jobs this process has called, and the times of the first and of the last call (seconds since 1970).
TALLY = struct.Struct("<qdd")
PAUSE_SECONDS = (0.01, 0.03)
LINE_SECONDS = 30.0


class Peer(ABC):
    """Made with the URL, in a running event loop."""

    @abstractmethod
    async def install(self) -> None:
        """Make the tables, if there are any."""

    @abstractmethod
    async def connect(self) -> None:
        """Be ready to enqueue."""

    @abstractmethod
    async def enqueue(self, job: str, argument: str) -> None:
        """One job, durably, by itself."""

    @abstractmethod
    async def enqueue_many(self, job: str, count: int) -> None:
        """By the way in bulk that the peer offers; one by one where it offers none."""

    @abstractmethod
    async def work(self) -> None:
        """Until the process is ended."""


@cache
def _tally(_pid: int) -> mmap.mmap:
    """A file of this process in the folder BENCH_TALLY, where the bench reads along."""
    path = Path(os.environ["BENCH_TALLY"], str(os.getpid()))
    path.write_bytes(TALLY.pack(0, 0.0, 0.0))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), TALLY.size)


def count_call() -> None:
    """Call it first in each job that is counted; again after a fork there is another file."""
    memory, now = _tally(os.getpid()), time.time()
    count, first, _ = TALLY.unpack_from(memory)
    TALLY.pack_into(memory, 0, count + 1, first or now, now)


def noop(_argument: str) -> None:
    count_call()


def true(_argument: str) -> None:
    count_call()
    subprocess.run(["/bin/sh", "-c", "true"], check=True)


def stamp(path: str) -> None:
    """Write the time of the call, in nanoseconds since 1970, into that pipe."""
    now = time.time_ns()
    Path(path).write_text(f"{now}\n")


JOBS: dict[str, Callable[[str], None]] = {"noop": noop, "true": true, "stamp": stamp}


async def call(job: str, argument: str) -> None:
    """For peers whose jobs are coroutines: what blocks goes into a thread, and no-ops do not pay for that."""
    if job == "true":
        await asyncio.to_thread(JOBS[job], argument)
    else:
        JOBS[job](argument)


# -- Verbs -----------------------------------------------------------------------------------------


async def _install(peer: Peer) -> None:
    await peer.install()


async def _load(peer: Peer, job: str, count: str) -> None:
    await peer.connect()
    await peer.enqueue_many(job, int(count))


async def _work(peer: Peer) -> None:
    await peer.work()


async def _enqueue(peer: Peer, singles: str, bulk: str) -> None:
    await peer.connect()
    began = time.monotonic()
    for _ in range(int(singles)):
        await peer.enqueue("noop", "")
    middle = time.monotonic()
    await peer.enqueue_many("noop", int(bulk))
    ended = time.monotonic()
    _tell({"single/s": int(singles) / (middle - began), "bulk/s": int(bulk) / (ended - middle)})


async def _latency(peer: Peer, count: str, path: str) -> None:
    """From before the call to the first line of the job; the first one, which waits for a start, is left out."""
    await peer.connect()
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    waits = []
    for _ in range(int(count) + 1):
        await asyncio.sleep(random.uniform(*PAUSE_SECONDS))
        before = time.time()
        await peer.enqueue("stamp", path)
        called = time.time()
        waits.append((_read_time(descriptor) - before, called - before))
    _tell({"waits": [wait for wait, _ in waits[1:]], "calls": [call for _, call in waits[1:]]})


def _tell(found: object) -> None:
    sys.stdout.write(json.dumps(found) + "\n")


def _read_time(descriptor: int) -> float:
    text = b""
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], LINE_SECONDS)
        if not ready:
            raise TimeoutError(f"no job has begun within {LINE_SECONDS:g} s")
        text += os.read(descriptor, 100)
    return int(text) / 1e9


VERBS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "install": _install,
    "load": _load,
    "work": _work,
    "enqueue": _enqueue,
    "latency": _latency,
}


def main(make: Callable[[str], Peer]) -> None:
    verb, url, *rest = sys.argv[1:]

    async def act() -> None:
        await VERBS[verb](make(url), *rest)

    asyncio.run(act())


def keywords(url: str) -> dict[str, str]:
    """A libpq keyword string whose values need no quotes, as a dictionary."""
    return dict(pair.split("=", 1) for pair in url.split())
