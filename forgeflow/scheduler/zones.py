"""Time zone data: which version is in use, and the ticks to come computed again when it is another one.

A tick is stored as an instant, so new rules for a zone do not reach it by themselves.
"""

import hashlib
import re
import zoneinfo
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

import structlog
import tzdata  # type: ignore[import-untyped] # data, and a constant

from forgeflow.domain.schedule import Schedule
from forgeflow.domain.timetable import Timetable
from forgeflow.errors import CronError, SchemaMismatch, StoreError, StoreUnavailable
from forgeflow.store import ticks
from forgeflow.store.connection import Connection
from forgeflow.store.ticks import FutureTick

log = structlog.get_logger()

# So many schedules are read between two passes: about 0.1 s, by which the ticks of others may be late.
_BATCH_JOBS = 100

_VERSION_LINE = re.compile(r"# version ([\w.+-]{1,32})\s")
# In a folder, but another zone on each machine: no schedule may name them, and they tell nothing of the data.
_LOCAL_NAMES = {"localtime", "posixrules"}


def read_version() -> str:
    """The version of the time zone data that `zoneinfo` reads: `2025b`; `2025b + 2026f` where it reads two.

    A zone comes from the first folder of TZPATH that has it, else from the package tzdata; Debian, for one, keeps old
    names in a package that may not be installed, and then these come from ours. Costs about 60 ms; ask once, and
    before the first zone is loaded: a process keeps the zones that it has loaded, and one that read the version later
    would record data which it does not use. The other way round, ticks are computed once for nothing.
    """
    left = zoneinfo.available_timezones() - _LOCAL_NAMES
    versions = []
    for folder in map(Path, zoneinfo.TZPATH):
        held = {name for name in left if (folder / name).is_file()}
        if held:
            versions.append(_folder_version(folder, held))
        left -= held
    if left or not versions:
        versions.append(tzdata.IANA_VERSION)
    return " + ".join(dict.fromkeys(versions))


def _folder_version(folder: Path, names: Iterable[str]) -> str:
    with suppress(OSError), (folder / "tzdata.zi").open(encoding="utf-8", errors="replace") as file:
        if match := _VERSION_LINE.match(file.readline(200)):
            return match[1]
    return _digest(folder, names)


def _digest(folder: Path, names: Iterable[str]) -> str:
    """For a folder that does not tell its version, as on Alpine: the same for the same zones on every machine.

    Over all zones, not those that jobs have: a job in a zone that is new to us is no change of the data. 1.3 MB,
    0.07 s.
    """
    digest = hashlib.sha256()
    for name in sorted(names):
        with suppress(OSError):  # whoever needs that zone is told
            content = (folder / name).read_bytes()
            digest.update(f"{name} {len(content)} ".encode() + content)
    return f"sha256:{digest.hexdigest()[:12]}"


def begin_recomputation(
    connection: Connection, *, version: str, term: int, go_on: Callable[[], bool] = lambda: True
) -> "Recomputation | None":
    """What a leader whose data are of that version has to do first; None when the stored ticks are of the same.

    The first leader ever has nothing to compare with, and only records its version. On nodes whose data differ each
    change of leadership between them begins one.  Raises StoreUnavailable.
    """
    recorded = ticks.find_zone_version(connection)
    if recorded == version:
        return None
    if recorded is None:
        ticks.record_zone_version(connection, version=version, term=term)
        log.info("time zone data recorded", version=version)
        return None
    log.warning("time zone data differ from those of the stored ticks", version=version, recorded=recorded)
    # From now on the ticks are of both. A leader with the old data that took over half way would else find its own
    # version recorded, and leave what was moved.
    complete = recorded.partition(", ")[0]
    ticks.record_zone_version(connection, version=f"{complete}, partly {version}", term=term)
    return Recomputation(connection, version=version, recorded=recorded, term=term, go_on=go_on)


@dataclass(frozen=True, slots=True)
class _Move:
    job: FutureTick
    to_at: datetime | None


class Recomputation:
    """A walk by id over all jobs with a tick to come, a batch between two passes of the leader.

    No job is locked while its tick is computed; a tick is moved only if its job is still what it was. One that is
    locked or was changed meanwhile is looked at again, for what holds it may be a retry, which leaves the tick as it
    is, or an edit by a node with other data. The version is recorded when none of these is left.

    `go_on` is called for each job. When it says no, the batch ends with nothing moved.
    """

    def __init__(
        self, connection: Connection, *, version: str, recorded: str, term: int, go_on: Callable[[], bool]
    ) -> None:
        self._connection = connection
        self._version = version
        self._term = term
        self._go_on = go_on
        self._reason = f"time zone data {recorded} -> {version}"
        self._after: UUID | None = None
        self._is_walked = False
        self._held: list[UUID] = []
        self._jobs = self._moved = 0

    @property
    def is_waiting(self) -> bool:
        """All that is left is held by others, so the next batch may wait for the next pass's time."""
        return self._is_walked

    def run_batch(self) -> bool:
        """Look at the next jobs; whether the walk is through.  Waits for no lock.  Raises StoreUnavailable."""
        again = self._held[:_BATCH_JOBS] if self._is_walked else None
        after = None if self._is_walked else self._after
        page = ticks.future_ticks(self._connection, after=after, only=again, max_rows=_BATCH_JOBS)
        moves = []
        for job in page:
            if not self._go_on():
                return False
            if move := self._recompute(job):
                moves.append(move)
        held = self._move(moves)
        if again is None:
            self._jobs += len(page)
            self._after = page[-1].id if page else self._after
            self._is_walked = len(page) < _BATCH_JOBS
            self._held += held
            if self._is_walked and self._held:
                log.info("jobs are being changed; their ticks are computed when that is over", jobs=len(self._held))
        else:
            self._held = self._held[len(again) :] + held
        if self._is_walked and not self._held:
            self._finish()
            return True
        return False

    def _recompute(self, job: FutureTick) -> _Move | None:
        """None when its tick stays."""
        try:
            timetable = Timetable(Schedule(job.cron_expr, job.timezone), job.start_at, job.end_at)
            to_at = timetable.next_after(job.now)
            while to_at in job.skipped:
                to_at = timetable.next_after(to_at)
        except (CronError, ValueError, OverflowError) as error:  # the last near the ends of the calendar
            log.error("schedule cannot be read", job_id=str(job.id), reason=str(error))
            return None
        return None if to_at == job.next_run_at else _Move(job, to_at)

    def _move(self, moves: list[_Move]) -> list[UUID]:
        """The jobs that are held or were changed, and so were not moved.

        All together and, when the database refuses that, one by one: then only the refused ones stay.
        """
        if not moves:
            return []
        try:
            moved = ticks.move_ticks(
                self._connection,
                job_ids=[each.job.id for each in moves],
                versions=[each.job.version for each in moves],
                old=[each.job.next_run_at for each in moves],
                new=[each.to_at for each in moves],
            )
        except (StoreUnavailable, SchemaMismatch):
            raise
        except StoreError as error:
            if len(moves) > 1:
                alone = [self._move([each]) if self._go_on() else [each.job.id] for each in moves]
                return [job_id for left in alone for job_id in left]
            log.error("tick refused; it stays where it was", job_id=str(moves[0].job.id), reason=str(error))
            return []
        for each in moves:
            if each.job.id in moved:
                self._tell(each)
        self._moved += len(moved)
        return [each.job.id for each in moves if each.job.id not in moved]

    def _tell(self, move: _Move) -> None:
        log.info(
            "tick moved",
            job_id=str(move.job.id),
            job_name=move.job.name,
            from_at=move.job.next_run_at.isoformat(),
            to_at=move.to_at and move.to_at.isoformat(),
            reason=self._reason,
        )

    def _finish(self) -> None:
        ticks.record_zone_version(self._connection, version=self._version, term=self._term)
        log.info("ticks recomputed", jobs=self._jobs, moved=self._moved, reason=self._reason)
