"""Time zone data that change under stored ticks."""

import shutil
import zoneinfo
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tzdata  # type: ignore[import-untyped]

from forgeflow.scheduler.zones import read_version

TODO = pytest.mark.xfail(raises=NotImplementedError, reason="to be built")


@TODO
def test_first_leader_records_the_version() -> None:
    raise NotImplementedError


@TODO
def test_same_version_moves_nothing() -> None:
    raise NotImplementedError


@TODO
def test_other_version_moves_future_ticks_and_tells_which() -> None:
    raise NotImplementedError


@TODO
def test_tick_that_is_due_is_not_moved() -> None:
    raise NotImplementedError


@TODO
def test_paused_and_cancelled_jobs_are_left_alone() -> None:
    raise NotImplementedError


@TODO
def test_recomputation_that_is_cut_off_begins_anew() -> None:
    raise NotImplementedError


# Which version is in use


@pytest.fixture
def search_zones_in() -> Iterator[Callable[..., None]]:
    """Have zoneinfo look for zones in these folders."""
    before = zoneinfo.TZPATH
    yield lambda *folders: zoneinfo.reset_tzpath([str(folder) for folder in folders])
    zoneinfo.reset_tzpath(before)


def copy_zones(folder: Path, *, version: str | None) -> Path:
    """All zones of the package, under another version or without one."""
    shutil.copytree(Path(tzdata.__file__).parent / "zoneinfo", folder)
    (folder / "tzdata.zi").unlink()
    if version:
        (folder / "tzdata.zi").write_text(f"# version {version}\n# This zic input file is in the public domain.\n")
    return folder


def test_version_is_that_of_the_first_folder_that_has_zones(
    tmp_path: Path, search_zones_in: Callable[..., None]
) -> None:
    first, other = copy_zones(tmp_path / "first", version="2099a"), copy_zones(tmp_path / "other", version="2099b")
    (tmp_path / "empty").mkdir()
    search_zones_in(tmp_path / "none", tmp_path / "empty", first, other)
    assert read_version() == "2099a"


def test_version_is_that_of_the_package_where_no_folder_has_zones(search_zones_in: Callable[..., None]) -> None:
    search_zones_in()
    assert read_version() == tzdata.IANA_VERSION


def test_version_names_both_where_zones_come_from_two(tmp_path: Path, search_zones_in: Callable[..., None]) -> None:
    folder = copy_zones(tmp_path / "some", version="2099a")
    shutil.rmtree(folder / "US")
    search_zones_in(folder)
    assert read_version() == f"2099a + {tzdata.IANA_VERSION}"


def test_folder_without_a_version_is_told_by_its_zones(tmp_path: Path, search_zones_in: Callable[..., None]) -> None:
    """Whatever else is in it, and wherever it is."""
    one, same = copy_zones(tmp_path / "one", version=None), copy_zones(tmp_path / "same", version=None)
    (same / "localtime").write_bytes((same / "Asia/Tokyo").read_bytes())
    (same / "README").write_text("not a zone")
    found = []
    for folder in (one, same):
        search_zones_in(folder)
        found.append(read_version())
    (same / "Europe/Berlin").write_bytes((same / "Asia/Tokyo").read_bytes())
    assert found[0] == found[1] != read_version()
    assert found[0].startswith("sha256:")
