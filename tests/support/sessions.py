"""Two sessions, step by step, in every order.

Each side is a transaction: begin, act, commit. A step that waits for the other side's lock is left waiting while the
other side goes on, as it would be.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from itertools import combinations

from forgeflow.config import Config
from forgeflow.errors import StoreBusy
from forgeflow.store.connection import Connection, connect
from tests.support.waiting import wait_for

Act = Callable[[Connection], object]

STEPS = ("begin", "act", "commit")
# Which of the six steps are the first side's.
ORDERS = ["".join("A" if i in taken else "B" for i in range(6)) for taken in combinations(range(6), 3)]


class Side:
    """One session in a thread of its own; `result` is what its act gave."""

    def __init__(self, config: Config, act: Act) -> None:
        self.connection = connect(config, "side")
        self._act = act
        self._steps: queue.Queue[str | None] = queue.Queue()
        self.result: object = None
        self.is_undone = False
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while step := self._steps.get():
            try:
                if not self.is_undone:
                    self._do(step)
            except StoreBusy:
                self.is_undone = True
                self.connection.execute("ROLLBACK")
            finally:
                self._steps.task_done()

    def _do(self, step: str) -> None:
        match step:
            case "begin":
                self.connection.execute("BEGIN")
            case "act":
                self.result = self._act(self.connection)
            case "commit":
                self.connection.execute("COMMIT")

    def ask(self, step: str) -> None:
        self._steps.put(step)

    def is_done(self) -> bool:
        return self._steps.unfinished_tasks == 0

    def finish(self) -> None:
        """Do what is left; an act that was undone for the other's sake is done again, alone, as real callers do."""
        self._steps.put(None)
        self._thread.join(20)
        assert not self._thread.is_alive()
        if self.is_undone:
            self.result = self._act(self.connection)
        self.connection.close()


def play(config: Config, observer: Connection, order: str, first: Act, second: Act) -> Iterator[object]:
    """Both acts, their steps in that order; gives their two results."""
    sides = {"A": Side(config, first), "B": Side(config, second)}
    progress = {"A": 0, "B": 0}
    for name in order:
        side = sides[name]
        side.ask(STEPS[progress[name]])
        progress[name] += 1
        wait_for(lambda side=side: side.is_done() or is_blocked(observer, side))  # type: ignore[misc]
    for side in sides.values():
        side.finish()
    return iter((sides["A"].result, sides["B"].result))


def is_blocked(observer: Connection, side: Side) -> bool:
    row = observer.execute("SELECT pg_blocking_pids(%s) <> '{}'", [side.connection.info.backend_pid]).fetchone()
    return bool(row and row[0])
