"""What is seen of a run while it goes on: a piece of its output each second, and how far it has come.

Best effort: what the database does not take is left out, which its readers see. Nothing of it keeps a run waiting, or
the reading of what it prints; only at its end the last piece is written before the result.
"""

import structlog

from forgeflow.errors import ConfigError, StoreError
from forgeflow.store.output import append_piece
from forgeflow.store.session import open_session
from forgeflow.worker.attempt import named
from forgeflow.worker.turn import Worker

log = structlog.get_logger()


def show(worker: Worker) -> bool:
    """Write what is new of the run that goes on; False when the database refuses.  Called holding `talk`.

    A connection that was lost is made anew, for nothing was being claimed over it.
    """
    try:
        if worker.connection.closed:
            worker.connection = open_session(worker.config, worker.role)
        _append(worker, is_last=False)
    except (StoreError, ConfigError) as error:
        _complain(worker, error)
        return False
    return True


def show_rest(worker: Worker) -> None:
    """The last piece of a run that has been seen, before its end is reported: who follows it misses nothing."""
    if not worker.is_seen or worker.connection.closed:
        return
    with worker.talk:
        try:
            _append(worker, is_last=True)
        except StoreError as error:
            _complain(worker, error)


def _append(worker: Worker, *, is_last: bool) -> None:
    run, keeper = worker.orders.begun, worker.keeper
    if run is None or keeper is None:
        return
    progress = keeper.progress
    has_progress = progress is not None and progress != worker.seen_progress
    piece = keeper.take_piece(is_last=is_last)
    if piece is None and not has_progress:
        return
    percent, note = progress or (None, None)
    first, text = (piece.first, piece.text) if piece else (0, "")
    append_piece(
        worker.connection,
        run_id=run.id,
        attempt=run.attempt,
        boot_id=worker.owner.boot_id,
        child=worker.owner.child,
        first=first,
        piece=text,
        has_progress=has_progress,
        progress=percent,
        progress_note=note,
        limit=worker.config.executor_shell.output_limit,
    )
    worker.seen_progress = progress
    worker.is_seen = worker.is_seen or piece is not None


def _complain(worker: Worker, error: Exception) -> None:
    """Once for each run."""
    run = worker.orders.begun
    if run and not worker.is_unseen_told:
        worker.is_unseen_told = True
        log.warning("output cannot be shown meanwhile", **named(run), reason=str(error))
