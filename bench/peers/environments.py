"""A virtual environment for each peer, made once with pip, of the versions that were compared with."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# oban needs Python 3.12; it is left out where there is none.
NEWER_PYTHONS = ("python3.13", "python3.12", *map(str, sorted(Path.home().glob(".pyenv/versions/3.1[23]*/bin/python"))))


@dataclass(frozen=True, slots=True)
class Package:
    requirements: tuple[str, ...]
    is_newer_python_needed: bool = False
    program: str | None = None  # of the distribution, without which it cannot be run


PACKAGES: Mapping[str, Package] = {
    "pgqueuer": Package(("pgqueuer[asyncpg]==1.6.0", "uvloop")),
    "procrastinate": Package(("procrastinate==3.10.0", "psycopg[binary]")),
    "celery": Package(("celery[redis]==5.7.0",), program="redis-server"),
    "oban": Package(("oban==0.7.0", "psycopg[binary]"), is_newer_python_needed=True),
}


def prepare(names: list[str], folder: Path) -> dict[str, Path]:
    """The Pythons of those peers that can be had here; what is missing for the others is told."""
    found = {}
    for name in names:
        package = PACKAGES[name]
        python = _newer_python() if package.is_newer_python_needed else sys.executable
        if package.program and not shutil.which(package.program):
            _tell(f"{name} is left out: it needs {package.program} (Debian: apt-get install {package.program})")
        elif python is None:
            _tell(f"{name} is left out: it needs Python 3.12")
        else:
            found[name] = _made(folder / name, python, package.requirements)
    return found


def _newer_python() -> str | None:
    """One that starts: a name may be that of a launcher which has no such version."""
    for name in NEWER_PYTHONS:
        if (found := shutil.which(name)) and not subprocess.run([found, "-V"], capture_output=True).returncode:
            return found
    return None


def _made(folder: Path, python: str, requirements: tuple[str, ...]) -> Path:
    """The stamp is written last, so one that was interrupted is made anew."""
    stamp = folder / "requirements"
    if not stamp.exists() or stamp.read_text() != "\n".join(requirements):
        _tell(f"installing {requirements[0]} in {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([python, "-m", "venv", folder], check=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
        subprocess.run([folder / "bin" / "python", *install], check=True)
        stamp.write_text("\n".join(requirements))
    return folder / "bin" / "python"


def _tell(text: str) -> None:
    sys.stderr.write(f"  {text}\n")
