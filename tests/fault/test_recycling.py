"""Workers that are replaced because they are old or large, without a hole."""

import pytest

pytestmark = pytest.mark.xfail(strict=True, reason="not built yet")


def test_worker_is_replaced_after_its_runs() -> None:
    raise NotImplementedError


def test_worker_is_replaced_at_its_age() -> None:
    raise NotImplementedError


def test_worker_that_grew_is_replaced() -> None:
    raise NotImplementedError


def test_workers_of_one_age_are_replaced_one_at_a_time_and_never_missed() -> None:
    raise NotImplementedError


def test_titles_tell_role_slot_generation_and_run() -> None:
    raise NotImplementedError


def test_run_that_takes_too_much_memory_is_ended_and_charged() -> None:
    raise NotImplementedError
