"""Overlap with real workers."""

import pytest

TODO = pytest.mark.xfail(raises=NotImplementedError, reason="to be built")


@TODO
def test_crash_frees_the_queued_run() -> None:
    raise NotImplementedError


@TODO
def test_running_job_is_stopped_and_replaced() -> None:
    raise NotImplementedError
