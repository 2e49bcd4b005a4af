"""Sees to it that nothing waits for long behind a run that goes on, and that it is seen what that one prints.

The thread that executes is inside of somebody's function, or waits for a command. When its batch has lasted a window
and is not over, this one reports what has ended and hands back what has not been begun; a second later, and then each
second, it shows what the run has printed. Code that holds the interpreter keeps it from that; such runs are slow, and
are claimed one by one.
"""

import threading
from collections.abc import Callable
from contextvars import copy_context

import structlog

from forgeflow.domain.pace import WINDOW_SECONDS
from forgeflow.process.clock import boottime

log = structlog.get_logger()

_AGAIN_SECONDS = 0.5
SHOW_SECONDS = 1.0
_SHOW_AGAIN_SECONDS = 2.0


class BatchWatch:
    """One thread, started with the first batch; it sleeps while there is none.

    `relieve` is called by the thread, holding `talk`; and again, a little later, while it says that it could not. Then
    `show` is, in the same way, for as long as the batch lasts.
    """

    def __init__(
        self,
        talk: threading.RLock,
        relieve: Callable[[], bool],
        show: Callable[[], bool],
        *,
        show_seconds: float = SHOW_SECONDS,
    ) -> None:
        self._talk = talk
        self._relieve = relieve
        self._show = show
        self._show_seconds = show_seconds
        self._changed = threading.Condition()
        self._due_at: float | None = None
        self._show_at = 0.0
        self._is_relieved = False
        self._wakes_at = float("-inf")  # by itself; in the past while it is awake
        self._thread: threading.Thread | None = None

    def begin(self, *, is_alone: bool) -> None:
        """A batch begins now; `is_alone`: it is one run, so there is nobody to relieve."""
        end = boottime() + WINDOW_SECONDS
        self._show_at = end + self._show_seconds
        self._is_relieved = is_alone
        due_at = self._due_at = self._show_at if is_alone else end
        if self._thread is None:
            named = copy_context().run  # what the log says of this process
            self._thread = threading.Thread(target=named, args=(self._watch,), name="batch watch", daemon=True)
            self._thread.start()
        elif due_at < self._wakes_at:
            with self._changed:
                self._changed.notify()

    def end(self) -> None:
        """The batch is over: waits for a relief or a show that has begun, and none begins after this."""
        with self._talk:
            self._due_at = None

    def _watch(self) -> None:
        while True:
            due_at = self._due_at
            seconds = None if due_at is None else due_at - boottime()
            if seconds is None or seconds > 0:
                self._sleep(due_at, seconds)
                continue
            with self._talk:
                if self._due_at == due_at:
                    self._due_at = self._look()

    def _sleep(self, due_at: float | None, seconds: float | None) -> None:
        """Through the batches that are over sooner than this: a word for each would cost more than they do."""
        with self._changed:
            # Said before the look: whoever begins a batch changes what is looked at, and reads this afterwards.
            self._wakes_at = float("inf") if due_at is None else due_at
            if self._due_at == due_at:
                self._changed.wait(seconds)
            self._wakes_at = float("-inf")

    def _look(self) -> float | None:
        """Relieve, or show; when to look again."""
        try:
            if self._is_relieved:
                return boottime() + (self._show_seconds if self._show() else _SHOW_AGAIN_SECONDS)
            self._is_relieved = self._relieve()
        except Exception:
            log.exception("batch is not watched any more")
            return None
        return self._show_at if self._is_relieved else boottime() + _AGAIN_SECONDS
