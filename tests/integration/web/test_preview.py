"""POST /api/schedule/preview and GET /api/jobs/{id}/next."""

import pytest

TO_DO = pytest.mark.xfail(reason="not built yet", raises=NotImplementedError)


@TO_DO
def test_preview_shows_fires_words_and_warnings() -> None:
    raise NotImplementedError


@TO_DO
def test_preview_follows_the_clock_when_no_time_is_given() -> None:
    raise NotImplementedError


@TO_DO
def test_preview_stores_nothing_and_needs_no_database() -> None:
    raise NotImplementedError


@TO_DO
def test_every_bad_field_of_a_preview_is_named() -> None:
    raise NotImplementedError


@TO_DO
def test_a_near_spelling_is_suggested() -> None:
    raise NotImplementedError


@TO_DO
def test_next_of_a_cron_job_begins_with_its_next_run() -> None:
    raise NotImplementedError


@TO_DO
def test_next_of_a_job_that_will_not_run_says_why() -> None:
    raise NotImplementedError


@TO_DO
def test_next_of_a_one_off_job_is_its_time() -> None:
    raise NotImplementedError


@TO_DO
def test_next_of_a_job_whose_schedule_is_no_longer_read_says_so() -> None:
    raise NotImplementedError


@TO_DO
def test_bad_count_is_named() -> None:
    raise NotImplementedError


@TO_DO
def test_next_of_an_unknown_job_is_not_found() -> None:
    raise NotImplementedError
