"""What the leader clears up: runs whose owner has no row any more, the net under recovery; old pieces of output."""

import structlog

from forgeflow.config import Config
from forgeflow.domain.run import Verdict
from forgeflow.errors import SchemaMismatch, StoreError, StoreUnavailable
from forgeflow.store import output, runs
from forgeflow.store.connection import Connection

log = structlog.get_logger()

_UNREGISTERED = Verdict("lost", "its worker is not registered", charged=True, all_begun=True)


_MAX_PIECES = 2000


def sweep_output(connection: Connection) -> bool:
    """Delete what ended attempts showed while they went on, but for the last ten minutes; whether there is more.

    Raises StoreUnavailable, SchemaMismatch.
    """
    try:
        return output.delete_old_pieces(connection, max_rows=_MAX_PIECES) == _MAX_PIECES
    except (StoreUnavailable, SchemaMismatch):
        raise
    except StoreError as error:
        log.error("old output not deleted; it is tried again", reason=str(error))
        return False


def sweep_orphans(connection: Connection, config: Config) -> int:
    """Hand back every run whose owner is not registered, and release those that are held behind none.

    Returns how many were handed back.  Raises StoreUnavailable, SchemaMismatch.

    Recovery leaves none behind; a bug, or an operator who deleted a row by hand, would. One that the database refuses
    is logged, and tried again in the next sweep.
    """
    recovered = 0
    for owner in runs.orphaned_owners(connection):
        try:
            handed_back = runs.recover_worker(
                connection,
                owner,
                _UNREGISTERED,
                only_expired=False,
                retry_base=config.retry.base,
                retry_cap=config.retry.cap,
            )
        except (StoreUnavailable, SchemaMismatch):
            raise
        except StoreError as error:
            log.error("recovery refused; it is tried again", boot_id=str(owner.boot_id), reason=str(error))
            continue
        recovered += len(handed_back)
        log.error("orphaned runs recovered", boot_id=str(owner.boot_id), child=owner.child, runs=len(handed_back))
    released = runs.release_stuck_runs(connection)
    if released:
        log.error("runs were held behind none", runs=[str(row.id) for row in released])
    if recovered or released:
        runs.announce_due(connection)
    return recovered
