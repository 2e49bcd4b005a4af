"""The net under recovery: runs whose owner has no row any more."""

import structlog

from forgeflow.config import Config
from forgeflow.domain.run import Verdict
from forgeflow.errors import SchemaMismatch, StoreError, StoreUnavailable
from forgeflow.store import runs
from forgeflow.store.connection import Connection

log = structlog.get_logger()

_UNREGISTERED = Verdict("lost", "its worker is not registered", charged=True, all_begun=True)


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
