"""Time zone data: which version is in use."""

import hashlib
import re
import zoneinfo
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import tzdata  # type: ignore[import-untyped] # data, and a constant

_VERSION_LINE = re.compile(r"# version ([\w.+-]{1,32})\s")
# In a folder, but another zone on each machine: no schedule may name them, and they tell nothing of the data.
_LOCAL_NAMES = {"localtime", "posixrules"}


def read_version() -> str:
    """The version of the time zone data that `zoneinfo` reads: `2025b`; `2025b + 2026f` where it reads two.

    A zone comes from the first folder of TZPATH that has it, else from the package tzdata; Debian, for one, keeps old
    names in a package that may not be installed, and then these come from ours. Costs about 60 ms; ask once, and
    before the first zone is loaded: a process keeps the zones that it has loaded, and one that read the version later
    would record data which it does not use. The other way round, ticks are computed once for nothing.
    """
    left = zoneinfo.available_timezones() - _LOCAL_NAMES
    versions = []
    for folder in map(Path, zoneinfo.TZPATH):
        held = {name for name in left if (folder / name).is_file()}
        if held:
            versions.append(_folder_version(folder, held))
        left -= held
    if left or not versions:
        versions.append(tzdata.IANA_VERSION)
    return " + ".join(dict.fromkeys(versions))


def _folder_version(folder: Path, names: Iterable[str]) -> str:
    with suppress(OSError), (folder / "tzdata.zi").open(encoding="utf-8", errors="replace") as file:
        if match := _VERSION_LINE.match(file.readline(200)):
            return match[1]
    return _digest(folder, names)


def _digest(folder: Path, names: Iterable[str]) -> str:
    """For a folder that does not tell its version, as on Alpine: the same for the same zones on every machine.

    Over all zones, not those that jobs have: a job in a zone that is new to us is no change of the data. 1.3 MB,
    0.07 s.
    """
    digest = hashlib.sha256()
    for name in sorted(names):
        with suppress(OSError):  # whoever needs that zone is told
            content = (folder / name).read_bytes()
            digest.update(f"{name} {len(content)} ".encode() + content)
    return f"sha256:{digest.hexdigest()[:12]}"
