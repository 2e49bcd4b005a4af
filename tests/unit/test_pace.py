"""How many runs a worker claims at once, and from where in the queue it looks."""

import pytest


@pytest.mark.xfail(strict=True, reason="to be built")
@pytest.mark.parametrize(
    "behaviour",
    [
        "first_claim_is_for_one_run",
        "quick_runs_are_claimed_by_as_many_as_fit_into_fifty_milliseconds",
        "one_slow_run_brings_the_size_back_to_one",
        "size_is_never_more_than_the_configured_batch",
        "claim_after_a_full_one_looks_behind_what_was_claimed",
        "claim_after_a_short_one_looks_at_the_whole_queue",
        "every_half_second_a_claim_looks_at_the_whole_queue",
        "priorities_have_watermarks_of_their_own",
    ],
)
def test_to_be_built(behaviour: str) -> None:
    raise NotImplementedError(behaviour)
