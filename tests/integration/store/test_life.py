"""The life of a job, over the scheduler's passes."""

import pytest

TODO = pytest.mark.xfail(raises=NotImplementedError, reason="to be built")


@TODO
def test_pause_with_an_end_resumes_at_that_end_and_owes_nothing_before_it() -> None:
    raise NotImplementedError


@TODO
def test_ticks_after_the_end_of_a_pause_go_by_catch_up() -> None:
    raise NotImplementedError


@TODO
def test_end_of_a_pause_that_is_a_tick_runs() -> None:
    raise NotImplementedError


@TODO
def test_second_pause_replaces_end_and_reason() -> None:
    raise NotImplementedError


@TODO
def test_resume_before_the_end_is_at_once() -> None:
    raise NotImplementedError


@TODO
def test_edit_of_the_schedule_recomputes_and_fires_nothing() -> None:
    raise NotImplementedError


@TODO
def test_edit_of_anything_else_leaves_the_clock_alone() -> None:
    raise NotImplementedError


@TODO
def test_edit_of_a_paused_job_keeps_it_paused() -> None:
    raise NotImplementedError


@TODO
def test_edited_payload_is_that_of_the_next_claim() -> None:
    raise NotImplementedError


@TODO
def test_jitter_delays_the_run_and_not_its_scheduled_time() -> None:
    raise NotImplementedError


@TODO
def test_job_ends_after_its_last_tick_in_the_window() -> None:
    raise NotImplementedError


@TODO
def test_skipped_tick_stays_skipped_through_pause_and_edit() -> None:
    raise NotImplementedError


@TODO
def test_pause_and_tick_in_every_order() -> None:
    raise NotImplementedError


@TODO
def test_edit_and_tick_in_every_order() -> None:
    raise NotImplementedError


@TODO
def test_tick_and_tick_in_every_order() -> None:
    raise NotImplementedError


@TODO
def test_trigger_and_cancel_in_every_order() -> None:
    raise NotImplementedError


@TODO
def test_submissions_with_one_key_in_every_order() -> None:
    raise NotImplementedError


@TODO
def test_fifty_threads_of_commands_against_the_tick() -> None:
    raise NotImplementedError
