"""Ticks of a schedule within a window."""

import pytest

TODO = pytest.mark.xfail(raises=NotImplementedError, reason="to be built")


@TODO
def test_ticks_begin_with_the_start_and_end_with_the_end() -> None:
    raise NotImplementedError


@TODO
def test_start_and_end_that_are_ticks_belong_to_the_window() -> None:
    raise NotImplementedError


@TODO
def test_window_without_a_tick_has_none() -> None:
    raise NotImplementedError


@TODO
def test_previous_stays_within_the_window() -> None:
    raise NotImplementedError


@TODO
def test_outage_that_reaches_over_the_end_owes_ticks_up_to_the_end() -> None:
    raise NotImplementedError
