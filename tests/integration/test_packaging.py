"""What is built from the tree, installed into fresh environments, finds its files and starts."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from forgeflow import __version__

CHECKOUT = Path(__file__).parents[2]
LAUNCHERS = ("forgeflow", "forgeflow-master", "forgeflow-web")
# Neither history nor what tools have left behind.
IGNORED = shutil.ignore_patterns(
    ".git", ".venv", ".state", "__pycache__", "*.egg-info", "build", "dist", ".hypothesis", ".*_cache"
)


def run(*command: str | Path, cwd: Path) -> str:
    """Output of a program, in an environment that names neither this checkout nor a configuration."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def copy_checkout(to: Path) -> Path:
    shutil.copytree(CHECKOUT, to, symlinks=True, ignore=IGNORED)
    return to


@dataclass(frozen=True, slots=True)
class Built:
    sdist: Path
    wheel_of_sdist: Path
    wheel_of_checkout: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    place = tmp_path_factory.mktemp("built")
    build = (sys.executable, "-m", "build", "--no-isolation")
    run(*build, "--outdir", place / "both", cwd=copy_checkout(place / "first"))
    run(*build, "--wheel", "--outdir", place / "wheel", cwd=copy_checkout(place / "second"))
    (sdist,) = (place / "both").glob("*.tar.gz")
    (wheel_of_sdist,) = (place / "both").glob("*.whl")
    (wheel_of_checkout,) = (place / "wheel").glob("*.whl")
    return Built(sdist, wheel_of_sdist, wheel_of_checkout)


def wheel_files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def sdist_files(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive if not member.isdir()}


def files_below(folder: str, pattern: str) -> set[str]:
    return {str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / folder).rglob(pattern)}


CONTRIB = {name for name in files_below("contrib", "*") if (CHECKOUT / name).is_file()}


def test_wheel_of_sdist_is_wheel_of_checkout(built: Built) -> None:
    assert wheel_files(built.wheel_of_sdist) == wheel_files(built.wheel_of_checkout)


def test_wheel_has_the_package_and_nothing_else(built: Built) -> None:
    found = wheel_files(built.wheel_of_checkout)
    assert {name.partition("/")[0] for name in found} == {
        "forgeflow",
        f"forgeflow-{__version__}.data",
        f"forgeflow-{__version__}.dist-info",
    }
    linked = {f"forgeflow/{name}" for name in files_below("sql", "*.sql") | files_below("conf", "*.ini") | CONTRIB}
    wanted = linked | files_below("forgeflow", "*.py") | files_below("forgeflow/web", "*.html")
    wanted |= {name for name in files_below("forgeflow/web/static", "*") if (CHECKOUT / name).is_file()}
    package = {name for name in found if name.startswith("forgeflow/")}
    assert package == wanted | {"forgeflow/py.typed"}


def test_sdist_has_what_a_packager_needs(built: Built) -> None:
    found = sdist_files(built.sdist)
    papers = {"LICENSE", "README.md", "CHANGELOG.md", "ARCHITECTURE.md", "Makefile", "setup.cfg", "pyproject.toml"}
    assert papers <= found
    assert {f"bin/{name}" for name in LAUNCHERS} | {"conf/forgeflow.ini"} | files_below(
        "sql", "*.sql"
    ) | CONTRIB <= found
    assert not [name for name in found if "__pycache__" in name or name.startswith((".venv", ".git/"))]


# Installed into an environment of its own

LOOK = """
import importlib.metadata, importlib.resources, json, sys
import forgeflow
from forgeflow.store.schema import migrations
from forgeflow.config import Config, load_config

root = importlib.resources.files("forgeflow")
names = json.loads(sys.argv[1])
print(json.dumps({
    "missing": [name for name in names if not root.joinpath(*name.split("/")).is_file()],
    "first": migrations()[0].name,
    "shipped is default": load_config(str(root / "conf" / "forgeflow.ini"), environ={}) == Config(),
    "version": importlib.metadata.version("forgeflow"),
    "license": importlib.metadata.metadata("forgeflow")["License-Expression"],
    "where": forgeflow.__file__,
}))
"""


def make_environment(place: Path) -> Path:
    """A virtual environment that sees the dependencies of ours, but not our ForgeFlow; its python."""
    run(sys.executable, "-m", "venv", "--without-pip", place, cwd=place.parent)
    (packages,) = place.glob("lib/python*/site-packages")
    # A folder named in a .pth file is searched, but the .pth files in it, say of our editable install, are not read.
    packages.joinpath("dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin" / "python"


def install(python: Path, *what: str | Path, cwd: Path) -> None:
    offline = ("--no-index", "--no-deps", "--no-build-isolation", "--ignore-installed", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *offline, *what, cwd=cwd)


# What an sdist installs is the wheel that is built of it, which is held against ours; and an editable install runs all
# the other tests.
@pytest.fixture(
    scope="module", params=["wheel", *(pytest.param(form, marks=pytest.mark.proof) for form in ("sdist", "editable"))]
)
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, built: Built) -> Path:
    place = tmp_path_factory.mktemp(request.param)
    python = make_environment(place / "venv")
    match request.param:
        case "wheel":
            install(python, built.wheel_of_checkout, cwd=place)
        case "sdist":
            install(python, built.sdist, cwd=place)
        case "editable":
            install(python, "--editable", copy_checkout(place / "copy"), cwd=place)
    return python


def test_installed_package_finds_its_files(installed: Path, tmp_path: Path) -> None:
    names = [
        "sql/schema/0001_jobs_and_runs.sql",
        "sql/runs/claim_runs.sql",
        "conf/forgeflow.ini",
        "contrib/systemd/forgeflow-master.service",
        "contrib/systemd/forgeflow-master.service.d/run-as.conf",
        "web/templates/index.html",
        "web/static/forgeflow.css",
        "py.typed",
    ]
    found = json.loads(run(installed, "-c", LOOK, json.dumps(names), cwd=tmp_path))
    assert Path(found.pop("where")).is_relative_to(installed.parents[2])
    assert found == {
        "missing": [],
        "first": "jobs_and_runs",
        "shipped is default": True,
        "version": __version__,
        "license": "MIT",
    }


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_launchers_import_call_and_exit(installed: Path, tmp_path: Path, launcher: str) -> None:
    program = installed.with_name(launcher)
    assert run(program, "--version", cwd=tmp_path) == f"{launcher} {__version__}\n"
    assert run(program, "--help", cwd=tmp_path).startswith(f"Usage: {launcher} [OPTIONS]")
