"""The delay of a run by a hash of its job and its tick."""

import pytest

TODO = pytest.mark.xfail(raises=NotImplementedError, reason="to be built")


@TODO
def test_delay_lies_between_nothing_and_the_jitter() -> None:
    raise NotImplementedError


@TODO
def test_delay_is_the_same_for_the_same_tick_everywhere() -> None:
    raise NotImplementedError


@TODO
def test_delays_are_spread() -> None:
    raise NotImplementedError
