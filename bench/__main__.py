"""`make bench`: this version against a bare loop of the same statements, and against the targets.

One scenario is a few cells that are measured in turns, in a new order each round; what is printed are medians over
the rounds, and ratios are medians of the rounds' own ratios. Read the ratios: they hold on another machine.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from bench import drain, pace
from bench.lab import Lab, open_lab
from bench.peers.contest import Contest
from bench.peers.environments import PACKAGES, prepare
from bench.rounds import Cell, Results, run_rounds
from bench.table import scenario_lines, target_lines
from bench.work import NOOP, TRUE

WORK = {"noop": NOOP, "true": TRUE}


@dataclass(frozen=True, slots=True)
class Scenario:
    """Our cells and the peers', made when it is its turn."""

    cells: Callable[[], list[Cell]]
    peers: Callable[[Contest], list[Cell]] = lambda _contest: []


def scenarios(lab: Lab, job: str, scale: float) -> Mapping[str, Scenario]:
    """Every scenario by its name, in the order of the table."""
    work = WORK[job]
    idle_seconds = 20.0 * scale

    def many(count: int) -> int:
        return max(10, round(count * scale))

    drained, deep, shells, stamps, singles = many(20_000), many(100_000), many(2_000), many(100), many(1_000)
    return {
        "drain": Scenario(lambda: drain.drain_cells(lab, work, drained), lambda peers: peers.drain_cells(drained)),
        "shell": Scenario(lambda: drain.shell_cells(lab, shells), lambda peers: peers.shell_cells(shells)),
        "latency": Scenario(lambda: pace.latency_cells(lab, work, stamps), lambda peers: peers.latency_cells(stamps)),
        "enqueue": Scenario(
            lambda: pace.enqueue_cells(lab, work, singles, drained),
            lambda peers: peers.enqueue_cells(singles, drained),
        ),
        "idle": Scenario(lambda: pace.idle_cells(lab, idle_seconds), lambda peers: peers.idle_cells(idle_seconds)),
        "memory": Scenario(lambda: pace.memory_cells(lab, work, shells), lambda peers: peers.memory_cells(shells)),
        "history": Scenario(lambda: drain.history_cells(lab, work, drained, many(1_000_000))),
        "delayed": Scenario(lambda: drain.delayed_cells(lab, work, drained, deep)),
        "snapshot": Scenario(lambda: drain.snapshot_cells(lab, work, deep), lambda peers: peers.snapshot_cells(deep)),
        "workers": Scenario(lambda: drain.worker_cells(lab, work, drained)),
        "nodes": Scenario(lambda: drain.node_cells(lab, work, drained)),
    }


NAMES = ["drain", "shell", "latency", "enqueue", "idle", "memory", "history", "delayed", "snapshot", "workers", "nodes"]


def some_of(names: Sequence[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """An option that is a list of these names; `all` for all of them."""

    def read(_context: click.Context, _option: click.Parameter, value: str) -> list[str]:
        chosen = value.replace(",", " ").split()
        if unknown := [name for name in chosen if name not in (*names, "all")]:
            raise click.BadParameter(f"{unknown[0]} is not one of {' '.join(names)}")
        return list(names) if "all" in chosen else chosen

    return read


@click.command(help=__doc__)
@click.option("--only", default="all", callback=some_of(NAMES), help=f"Scenarios: {' '.join(NAMES)}.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--scale", default=1.0, show_default=True, help="Of all sizes: 0.1 for a short run.")
@click.option("--job", default="noop", show_default=True, type=click.Choice(list(WORK)), help="What our runs do.")
@click.option(
    "--peers", default="", callback=some_of(list(PACKAGES)), help=f"Peers beside us: {' '.join(PACKAGES)}, all."
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path, resolve_path=True),
    help="Folder of the peers' environments; else a new one.",
)
def main(only: list[str], rounds: int, scale: float, job: str, peers: list[str], cache: Path | None) -> None:
    for name in [name for name in os.environ if name.startswith("FORGEFLOW_")]:
        del os.environ[name]
    # The server and whatever else was started must be stopped, whoever ends us.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    found: dict[str, Results] = {}
    try:
        with open_lab() as lab:
            contest = Contest(lab, prepare(peers, cache or lab.folder / "peers"))
            every = scenarios(lab, job, scale)
            say(f"{lab.describe()}; {rounds} rounds, sizes x {scale:g}, our runs: {job}", "")
            for name in only:
                cells = [*every[name].cells(), *every[name].peers(contest)]
                found[name] = run_rounds(name, cells, rounds)
                say(*scenario_lines(name, found[name]))
    finally:
        say(*target_lines(found), "", f"{time.monotonic() - began:.0f} s")


def say(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
