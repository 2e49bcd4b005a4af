"""Instants as a person asks for them."""

import pytest

TODO = pytest.mark.xfail(raises=NotImplementedError, reason="to be built")


@TODO
def test_reading_without_an_offset_is_read_on_the_clock_of_the_job() -> None:
    raise NotImplementedError


@TODO
def test_reading_in_a_gap_is_the_first_instant_after_it() -> None:
    raise NotImplementedError


@TODO
def test_reading_that_comes_twice_is_its_first_pass() -> None:
    raise NotImplementedError
