"""Every expected tick has one outcome that can be asked for."""

import pytest

TODO = pytest.mark.xfail(raises=NotImplementedError, reason="to be built")


@TODO
def test_tick_that_ran_names_its_run() -> None:
    raise NotImplementedError


@TODO
def test_tick_that_ran_late_says_how_late() -> None:
    raise NotImplementedError


@TODO
def test_missed_and_caught_up_ticks_say_so() -> None:
    raise NotImplementedError


@TODO
def test_coalesced_tick_says_so() -> None:
    raise NotImplementedError


@TODO
def test_tick_skipped_for_overlap_names_the_run_in_its_way() -> None:
    raise NotImplementedError


@TODO
def test_tick_of_a_pause_says_so_with_its_reason() -> None:
    raise NotImplementedError


@TODO
def test_tick_after_a_cancel_says_so() -> None:
    raise NotImplementedError


@TODO
def test_tick_that_was_skipped_by_hand_says_so() -> None:
    raise NotImplementedError


@TODO
def test_tick_owed_at_an_edit_says_so() -> None:
    raise NotImplementedError


@TODO
def test_instants_outside_of_the_window_say_so() -> None:
    raise NotImplementedError


@TODO
def test_instant_that_is_no_tick_names_its_neighbours() -> None:
    raise NotImplementedError


@TODO
def test_instant_is_judged_by_the_schedule_of_its_time() -> None:
    raise NotImplementedError


@TODO
def test_instant_before_the_job_existed_says_so() -> None:
    raise NotImplementedError


@TODO
def test_tick_to_come_is_planned() -> None:
    raise NotImplementedError


@TODO
def test_tick_that_is_due_says_who_leads() -> None:
    raise NotImplementedError


@TODO
def test_run_at_is_explained_like_a_tick() -> None:
    raise NotImplementedError


@TODO
def test_random_lives_leave_no_tick_without_an_outcome() -> None:
    raise NotImplementedError
