"""What a node that loses nothing must show, one name for each behaviour, until its test stands in its own file."""

import pytest

PENDING = [
    "fork_that_fails_is_tried_again",
]


@pytest.mark.xfail(strict=True, reason="issue 3: not built yet")
@pytest.mark.parametrize("behaviour", PENDING)
def test_node_loses_nothing(behaviour: str) -> None:
    pytest.fail(behaviour)
