"""What a worker has in hand: every run is begun once, reported once or handed back."""

import pytest


@pytest.mark.xfail(strict=True, reason="to be built")
@pytest.mark.parametrize(
    "behaviour",
    [
        "begun_run_is_no_longer_handed_back",
        "what_is_handed_back_is_never_begun",
        "ending_that_comes_during_a_report_is_kept_for_the_next",
    ],
)
def test_to_be_built(behaviour: str) -> None:
    raise NotImplementedError(behaviour)
