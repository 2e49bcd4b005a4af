"""The next fires of a schedule, with notes and warnings."""

import pytest

TO_DO = pytest.mark.xfail(reason="not built yet", raises=NotImplementedError)


@TO_DO
def test_fires_have_their_local_reading_their_offset_and_utc() -> None:
    raise NotImplementedError


@TO_DO
def test_fires_are_those_of_the_schedule() -> None:
    raise NotImplementedError


@TO_DO
def test_a_note_says_what_a_change_of_offset_does() -> None:
    raise NotImplementedError


@TO_DO
def test_a_change_is_told_once() -> None:
    raise NotImplementedError


@TO_DO
def test_no_change_no_note() -> None:
    raise NotImplementedError


@TO_DO
def test_days_that_some_months_lack_are_warned_of() -> None:
    raise NotImplementedError


@TO_DO
def test_two_restricted_day_fields_are_warned_of() -> None:
    raise NotImplementedError


@TO_DO
def test_clock_changes_within_two_years_are_warned_of() -> None:
    raise NotImplementedError


@TO_DO
def test_clock_changes_that_move_nothing_are_not_warned_of() -> None:
    raise NotImplementedError


@TO_DO
def test_more_than_one_a_minute_is_warned_of() -> None:
    raise NotImplementedError


@TO_DO
def test_an_ordinary_schedule_has_no_warnings() -> None:
    raise NotImplementedError


@TO_DO
def test_a_schedule_that_ends_has_fewer_fires() -> None:
    raise NotImplementedError


@TO_DO
def test_count_out_of_range_is_refused() -> None:
    raise NotImplementedError


@TO_DO
def test_a_preview_is_made_soon() -> None:
    raise NotImplementedError
