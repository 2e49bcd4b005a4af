"""Where the offset of a zone changes."""

import pytest

TO_DO = pytest.mark.xfail(reason="not built yet", raises=NotImplementedError)


@TO_DO
def test_changes_of_offset_are_found_to_the_second() -> None:
    raise NotImplementedError


@TO_DO
def test_the_latest_change_is_found() -> None:
    raise NotImplementedError


@TO_DO
def test_zones_without_changes_have_none() -> None:
    raise NotImplementedError


@TO_DO
def test_the_ends_of_the_calendar_are_served() -> None:
    raise NotImplementedError
