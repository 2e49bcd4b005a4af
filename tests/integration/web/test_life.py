"""The life of a job over HTTP."""

import pytest

TODO = pytest.mark.xfail(raises=NotImplementedError, reason="to be built")


@TODO
def test_pause_takes_an_end_and_a_reason() -> None:
    raise NotImplementedError


@TODO
def test_pause_refuses_an_end_that_has_passed() -> None:
    raise NotImplementedError


@TODO
def test_patch_changes_what_it_names_and_nothing_else() -> None:
    raise NotImplementedError


@TODO
def test_patch_names_every_bad_field() -> None:
    raise NotImplementedError


@TODO
def test_patch_of_another_version_is_refused() -> None:
    raise NotImplementedError


@TODO
def test_patch_that_changes_nothing_keeps_the_version() -> None:
    raise NotImplementedError


@TODO
def test_patch_of_a_cancelled_job_is_refused() -> None:
    raise NotImplementedError


@TODO
def test_patch_refuses_a_time_that_has_passed() -> None:
    raise NotImplementedError


@TODO
def test_window_and_jitter_are_checked_together() -> None:
    raise NotImplementedError


@TODO
def test_window_without_a_tick_is_refused() -> None:
    raise NotImplementedError


@TODO
def test_skip_next_moves_the_clock_by_one_tick() -> None:
    raise NotImplementedError


@TODO
def test_skip_next_of_a_named_tick_is_done_once() -> None:
    raise NotImplementedError


@TODO
def test_skip_next_without_a_tick_is_refused() -> None:
    raise NotImplementedError


@TODO
def test_trigger_takes_a_payload_of_its_own() -> None:
    raise NotImplementedError


@TODO
def test_trigger_that_overlaps_is_refused_by_skip() -> None:
    raise NotImplementedError


@TODO
def test_explain_answers_from_the_ledger() -> None:
    raise NotImplementedError


@TODO
def test_explain_refuses_what_is_no_time() -> None:
    raise NotImplementedError


@TODO
def test_job_says_its_schedule_in_words() -> None:
    raise NotImplementedError


@TODO
def test_next_respects_window_pause_and_skips() -> None:
    raise NotImplementedError
