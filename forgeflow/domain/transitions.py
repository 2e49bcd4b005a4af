"""The one table of what may become of a run and of a job; every status answers every event.

None means: the event does not change this status, and whoever brought it is told so. The statements in `sql/` are
this table in SQL; a test walks every row of it against a real server.
"""

from enum import StrEnum

from forgeflow.domain.run import RunStatus


class RunEvent(StrEnum):
    CLAIM = "claim"
    SUCCEED = "succeed"
    FAIL = "fail"  # tries left
    FAIL_LAST = "fail_last"  # no try left
    POSTPONE = "postpone"  # it asked to be made again later, and has not done so too often
    INTERRUPT = "interrupt"  # we stopped it, or its worker's lease passed with the try not charged
    CANCEL = "cancel"
    RETRY = "retry"  # another run is made for one that has ended, which stays what it is


class JobStatus(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    CANCELLED = "cancelled"


class JobEvent(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"


_P, _R = RunStatus.PENDING, RunStatus.RUNNING
_FINAL = (RunStatus.SUCCEEDED, RunStatus.DEAD, RunStatus.CANCELLED)

RUN_TRANSITIONS: dict[tuple[RunStatus, RunEvent], RunStatus | None] = {
    (_P, RunEvent.CLAIM): RunStatus.RUNNING,
    (_P, RunEvent.SUCCEED): None,
    (_P, RunEvent.FAIL): None,
    (_P, RunEvent.FAIL_LAST): None,
    (_P, RunEvent.POSTPONE): None,
    (_P, RunEvent.INTERRUPT): None,
    (_P, RunEvent.CANCEL): RunStatus.CANCELLED,
    (_P, RunEvent.RETRY): None,
    (_R, RunEvent.CLAIM): None,
    (_R, RunEvent.SUCCEED): RunStatus.SUCCEEDED,
    (_R, RunEvent.FAIL): RunStatus.PENDING,
    (_R, RunEvent.FAIL_LAST): RunStatus.DEAD,
    (_R, RunEvent.POSTPONE): RunStatus.PENDING,
    (_R, RunEvent.INTERRUPT): RunStatus.PENDING,
    (_R, RunEvent.CANCEL): None,  # only asked for: the worker ends it, as whatever it then is
    (_R, RunEvent.RETRY): None,
    **{(final, event): None for final in _FINAL for event in RunEvent},
}

# A status that already is what the event asks for is an answer, not a conflict.
JOB_TRANSITIONS: dict[tuple[JobStatus, JobEvent], JobStatus | None] = {
    (JobStatus.ACTIVE, JobEvent.PAUSE): JobStatus.PAUSED,
    (JobStatus.ACTIVE, JobEvent.RESUME): JobStatus.ACTIVE,
    (JobStatus.ACTIVE, JobEvent.CANCEL): JobStatus.CANCELLED,
    (JobStatus.PAUSED, JobEvent.PAUSE): JobStatus.PAUSED,
    (JobStatus.PAUSED, JobEvent.RESUME): JobStatus.ACTIVE,
    (JobStatus.PAUSED, JobEvent.CANCEL): JobStatus.CANCELLED,
    (JobStatus.CANCELLED, JobEvent.PAUSE): None,
    (JobStatus.CANCELLED, JobEvent.RESUME): None,
    (JobStatus.CANCELLED, JobEvent.CANCEL): JobStatus.CANCELLED,
}


def next_job_status(status: JobStatus, event: JobEvent) -> JobStatus | None:
    """The status after the event; None when this status refuses it."""
    return JOB_TRANSITIONS[status, event]
