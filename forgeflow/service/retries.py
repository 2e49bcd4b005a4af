"""Retry: another run that does again what a finished one was to do."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from forgeflow.domain.transitions import JobStatus
from forgeflow.errors import Conflict, ForgeError, NotFound, RunNotFinished, StatusConflict
from forgeflow.service.lifecycle import CANCELLED, lock_job, make_room
from forgeflow.service.runs import get_run, no_run, statuses_of
from forgeflow.store import jobs, runs
from forgeflow.store.connection import Connection, repeated, transaction
from forgeflow.store.runs import FinishedRow, RetriesOf, RunRow


@dataclass(slots=True)
class Retries:
    """What came of it: the new run of each one that was retried, and why the others were not."""

    made: dict[UUID, UUID] = field(default_factory=dict)
    refused: dict[UUID, ForgeError] = field(default_factory=dict)
    is_stopping: bool = False  # others were asked to stop for them


def retry_run(connection: Connection, run_id: UUID) -> RunRow:
    """A run that does again what that one was to do, due now, also of a paused job; it goes by overlap like a trigger.

    Its payload is the run's own, where it had one, else the job's of now.  Raises NotFound, RunNotFinished,
    StatusConflict for a cancelled job, Conflict for a run that is being retried already, or one that is in its way.
    """
    retries = retry_runs(connection, [run_id])
    if run_id in retries.refused:
        raise retries.refused[run_id]
    return get_run(connection, retries.made[run_id]).run


def retry_runs(connection: Connection, run_ids: Sequence[UUID], *, only_unretried: bool = False) -> Retries:
    """Retry them all but those that are refused; `only_unretried`: those, too, that were retried before.

    One transaction, unless the caller has begun one; then nodes are told.
    """
    retries = _retry(connection, run_ids, only_unretried=only_unretried)
    left = set(run_ids) - retries.made.keys() - retries.refused.keys()
    for run_id, status in statuses_of(connection, left).items():
        unfinished = RunNotFinished(f"the run has not ended, it is {status}")
        retries.refused[run_id] = unfinished if status else no_run(run_id)
    if retries.is_stopping:
        runs.announce_cancel(connection)
    if retries.made:
        runs.announce_due(connection)
    return retries


@repeated
def _retry(connection: Connection, run_ids: Sequence[UUID], *, only_unretried: bool) -> Retries:
    """The runs are held first, so that two who retry one of them come one after the other, then their jobs."""
    retries = Retries()
    with transaction(connection):
        finished = runs.lock_finished(connection, run_ids=run_ids)
        shared_ids = {run.job_id for run in finished if run.job_overlap == "allow"}
        shared = {job.id: job for job in jobs.share_jobs(connection, job_ids=list(shared_ids))}
        others: dict[UUID, list[FinishedRow]] = {}
        at_once = []
        seen = {run.id: run for run in runs.find_retries(connection, run_ids=[run.id for run in finished])}
        for run in finished:
            job = shared.get(run.job_id)
            if problem := _problem(run, seen.get(run.id), only_unretried=only_unretried):
                retries.refused[run.id] = problem
            elif job is None or job.overlap != "allow":  # it may have been edited while we waited for it
                others.setdefault(run.job_id, []).append(run)
            elif job.status == JobStatus.CANCELLED:
                retries.refused[run.id] = StatusConflict(CANCELLED)
            else:
                at_once.append(run.id)
        for made in runs.retry_runs(connection, run_ids=at_once, is_held=False) if at_once else ():
            retries.made[made.retry_of] = made.id
        for job_id, its in sorted(others.items()):
            _retry_beside(connection, job_id, its, retries)
    return retries


def _problem(run: FinishedRow, seen: RetriesOf | None, *, only_unretried: bool) -> ForgeError | None:
    if seen is None:
        return NotFound("the job of this run is not there any more")
    if seen.unfinished_id:
        return Conflict(f"the run is being retried already, by {seen.unfinished_id}")
    if only_unretried and seen.ended_id:
        return Conflict(f"the run was retried before, by {seen.ended_id}; it can be retried alone")
    if not seen.fits:
        return Conflict(
            "the payload of this run is its own, and for another executor than its job has now; trigger the job instead"
        )
    return None


def _retry_beside(connection: Connection, job_id: UUID, its: Sequence[FinishedRow], retries: Retries) -> None:
    """Retry runs of a job that may not just run beside each other, one after the other, the oldest first."""
    job = lock_job(connection, job_id)
    if job.status == JobStatus.CANCELLED:
        retries.refused |= {run.id: StatusConflict(CANCELLED) for run in its}
        return
    if job.overlap == "replace":  # each would only be made to be replaced by the next one
        *older, newest = its
        detail = f"overlap of its job is replace, and a newer run of it is retried: {newest.id}"
        retries.refused |= {run.id: Conflict(detail) for run in older}
        its = [newest]
    for run in its:
        try:
            room = make_room(connection, job_id, job)
        except Conflict as error:
            retries.refused[run.id] = error
            continue
        (made,) = runs.retry_runs(connection, run_ids=[run.id], is_held=room.is_held)
        retries.made[run.id] = made.id
        retries.is_stopping |= room.is_stopping
