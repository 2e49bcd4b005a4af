"""Claims of many runs, their watermark and their share; what is handed back, and what nobody can know."""

import pytest


@pytest.mark.xfail(strict=True, reason="to be built")
@pytest.mark.parametrize(
    "behaviour",
    [
        "claim_takes_no_more_than_a_fair_share_of_what_is_due",
        "claim_of_one_takes_one_whatever_its_share_is",
        "watermark_hides_what_lies_before_it_and_nothing_else",
        "watermark_of_one_priority_leaves_the_others_alone",
        "claim_behind_a_watermark_reads_no_dead_entries_before_it",
        "claim_reads_no_delayed_runs_of_better_priorities",
        "finish_and_claim_go_by_their_indexes_under_any_plan",
        "run_handed_back_unbegun_keeps_its_place_and_costs_nothing",
        "run_of_a_paused_job_that_is_handed_back_is_cancelled",
        "run_that_shall_be_cancelled_and_is_handed_back_is_cancelled",
        "batch_of_a_dead_node_is_handed_back_uncharged_once",
        "single_run_of_a_dead_node_is_charged",
        "suspect_is_claimed_alone_and_charged_the_next_time",
        "runs_before_a_suspect_are_claimed_without_it",
        "turn_of_a_full_batch_is_one_round_trip",
    ],
)
def test_to_be_built(behaviour: str) -> None:
    raise NotImplementedError(behaviour)
