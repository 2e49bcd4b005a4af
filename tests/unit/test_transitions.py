"""The table of transitions is complete and keeps what is final."""

from itertools import product

from forgeflow.domain.run import RunStatus
from forgeflow.domain.transitions import (
    JOB_TRANSITIONS,
    RUN_TRANSITIONS,
    JobEvent,
    JobStatus,
    RunEvent,
    next_job_status,
)


def test_every_status_answers_every_event() -> None:
    assert set(RUN_TRANSITIONS) == set(product(RunStatus, RunEvent))
    assert set(JOB_TRANSITIONS) == set(product(JobStatus, JobEvent))


def test_final_statuses_never_change() -> None:
    for status in (RunStatus.SUCCEEDED, RunStatus.DEAD, RunStatus.CANCELLED):
        assert {RUN_TRANSITIONS[status, event] for event in RunEvent} == {None}


def test_running_run_is_cancelled_only_by_its_worker() -> None:
    assert RUN_TRANSITIONS[RunStatus.RUNNING, RunEvent.CANCEL] is None


def test_cancelled_job_stays_cancelled() -> None:
    assert next_job_status(JobStatus.CANCELLED, JobEvent.RESUME) is None
    assert next_job_status(JobStatus.CANCELLED, JobEvent.PAUSE) is None
    assert next_job_status(JobStatus.CANCELLED, JobEvent.CANCEL) is JobStatus.CANCELLED
