"""Workers that hold more than one run: who is charged, what goes back, and when results are out."""

import pytest


@pytest.mark.xfail(strict=True, reason="to be built")
@pytest.mark.parametrize(
    "behaviour",
    [
        "killed_worker_is_charged_for_the_run_that_was_going_on_alone",
        "results_of_a_batch_are_out_while_a_long_run_goes_on",
        "runs_behind_a_long_one_are_executed_elsewhere",
        "long_function_keeps_neither_results_nor_runs",
        "fenced_worker_begins_nothing_more_of_its_batch",
        "drained_worker_hands_back_what_it_has_not_begun",
        "cancelled_run_of_a_batch_is_never_begun",
        "result_that_is_refused_costs_its_own_run_alone",
        "lost_connection_in_a_batch_loses_no_result_and_repeats_nothing",
        "frozen_worker_with_a_batch_is_fenced_as_with_one_run",
    ],
)
def test_to_be_built(behaviour: str) -> None:
    raise NotImplementedError(behaviour)
