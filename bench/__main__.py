"""`make bench`: this version against a bare loop of the same statements, and against the targets.

One scenario is a few cells that are measured in turns, in a new order each round; what is printed are medians over
the rounds, and ratios are medians of the rounds' own ratios. Read the ratios: they hold on another machine.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping

import click

from bench import drain, pace
from bench.lab import Lab, open_lab
from bench.rounds import Cell, Results, run_rounds
from bench.table import scenario_lines, target_lines
from bench.work import NOOP, TRUE

WORK = {"noop": NOOP, "true": TRUE}


def scenarios(lab: Lab, job: str, scale: float) -> Mapping[str, Callable[[], list[Cell]]]:
    """Every scenario by its name, in the order of the table."""
    work = WORK[job]

    def many(count: int) -> int:
        return max(10, round(count * scale))

    return {
        "drain": lambda: drain.drain_cells(lab, work, many(20_000)),
        "shell": lambda: drain.shell_cells(lab, many(2_000)),
        "latency": lambda: pace.latency_cells(lab, work, many(100)),
        "enqueue": lambda: pace.enqueue_cells(lab, work, many(1_000), many(20_000)),
        "idle": lambda: pace.idle_cells(lab, 20.0 * scale),
        "memory": lambda: pace.memory_cells(lab, work, many(2_000)),
        "history": lambda: drain.history_cells(lab, work, many(20_000), many(1_000_000)),
        "delayed": lambda: drain.delayed_cells(lab, work, many(20_000), many(100_000)),
        "snapshot": lambda: drain.snapshot_cells(lab, work, many(100_000)),
        "workers": lambda: drain.worker_cells(lab, work, many(20_000)),
        "nodes": lambda: drain.node_cells(lab, work, many(20_000)),
    }


NAMES = ["drain", "shell", "latency", "enqueue", "idle", "memory", "history", "delayed", "snapshot", "workers", "nodes"]


def chosen(_context: click.Context, _option: click.Parameter, value: str) -> list[str]:
    names = value.replace(",", " ").split()
    for name in names:
        if name not in NAMES:
            raise click.BadParameter(f"{name} is not one of {' '.join(NAMES)}")
    return names or NAMES


@click.command(help=__doc__)
@click.option("--only", default="", callback=chosen, help=f"Scenarios, of {' '.join(NAMES)}.  Default: all.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--scale", default=1.0, show_default=True, help="Of all sizes: 0.1 for a short run.")
@click.option("--job", default="noop", show_default=True, type=click.Choice(list(WORK)), help="What the runs do.")
def main(only: list[str], rounds: int, scale: float, job: str) -> None:
    for name in [name for name in os.environ if name.startswith("FORGEFLOW_")]:
        del os.environ[name]
    began = time.monotonic()
    found: dict[str, Results] = {}
    with open_lab() as lab:
        place = lab.describe()
        every = scenarios(lab, job, scale)
        for name in only:
            found[name] = run_rounds(name, every[name](), rounds)
    sys.stdout.write(f"\n{place}; {rounds} rounds, sizes x {scale:g}, runs of {job}\n\n")
    for name, results in found.items():
        sys.stdout.writelines(f"{line}\n" for line in scenario_lines(name, results))
    sys.stdout.writelines(f"{line}\n" for line in target_lines(found))
    sys.stdout.write(f"\n{time.monotonic() - began:.0f} s\n")


if __name__ == "__main__":
    main()
