"""Sees to it that nothing waits for long behind a run that goes on.

The thread that executes is inside of somebody's function, or waits for a command. When its batch has lasted a window
and is not over, this one reports what has ended and hands back what has not been begun. Code that holds the
interpreter keeps it from that; such runs are slow, and are claimed one by one.
"""

import threading
import time
from collections.abc import Callable
from contextvars import copy_context

import structlog

from forgeflow.domain.pace import WINDOW_SECONDS
from forgeflow.process.clock import boottime

log = structlog.get_logger()

_AGAIN_SECONDS = 0.5


class BatchWatch:
    """One thread, started with the first batch of more than one run; it sleeps while there is none.

    `relieve` is called by the thread, holding `talk`; and again, a little later, while it says that it could not.
    """

    def __init__(self, talk: threading.RLock, relieve: Callable[[], bool]) -> None:
        self._talk = talk
        self._relieve = relieve
        self._changed = threading.Condition()
        self._is_asleep = True
        self._due_at: float | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """A batch begins now."""
        self._due_at = boottime() + WINDOW_SECONDS
        if self._thread is None:
            named = copy_context().run  # what the log says of this process
            self._thread = threading.Thread(target=named, args=(self._watch,), name="batch watch", daemon=True)
            self._thread.start()
        elif self._is_asleep:
            with self._changed:
                self._changed.notify()

    def end(self) -> None:
        """The batch is over: waits for a relief that has begun, and none begins after this."""
        with self._talk:
            self._due_at = None

    def _watch(self) -> None:
        while True:
            due_at = self._due_at
            if due_at is None:
                with self._changed:
                    self._is_asleep = True
                    while self._due_at is None:
                        self._changed.wait()
                    self._is_asleep = False
            elif (left := due_at - boottime()) > 0:
                # Through the batches that are over sooner than this; a word for each would cost more than they do.
                time.sleep(left)
            else:
                with self._talk:
                    if self._due_at == due_at:
                        self._due_at = None if self._try() else boottime() + _AGAIN_SECONDS

    def _try(self) -> bool:
        try:
            return self._relieve()
        except Exception:
            log.exception("batch could not be relieved")
            return True
