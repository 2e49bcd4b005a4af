"""Nodes with other time zone data."""

import pytest

TODO = pytest.mark.xfail(raises=NotImplementedError, reason="to be built")


@TODO
def test_leader_with_new_zone_data_moves_what_is_to_come() -> None:
    raise NotImplementedError
