"""Measurements in turns, so that a slow moment of the machine hits everybody, and medians of what they found."""

import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing to measure: a name in the table, and how it is done once."""

    name: str
    measure: Callable[[], Figures]


@dataclass(slots=True)
class Results:
    """What each cell of a scenario found, round by round; None where a round failed."""

    rounds: dict[str, list[Figures | None]] = field(default_factory=dict)

    def median(self, cell: str, figure: str) -> float | None:
        found = [each[figure] for each in self.rounds.get(cell, []) if each and figure in each]
        return statistics.median(found) if found else None

    def ratio(self, ours: tuple[str, str], theirs: tuple[str, str]) -> float | None:
        """The median of the rounds' own ratios: both sides had the same moment of the machine."""
        pairs = zip(self.rounds.get(ours[0], []), self.rounds.get(theirs[0], []), strict=False)
        found = [a[ours[1]] / b[theirs[1]] for a, b in pairs if a and b and ours[1] in a and b.get(theirs[1])]
        return statistics.median(found) if found else None

    def total(self, figure: str) -> float | None:
        found = [each[figure] for rounds in self.rounds.values() for each in rounds if each and figure in each]
        return sum(found) if found else None

    def failures(self, cell: str) -> int:
        return sum(each is None for each in self.rounds.get(cell, []))


def run_rounds(name: str, cells: Sequence[Cell], count: int) -> Results:
    """Each cell `count` times, in a new order each round.  A cell that fails is told of, and the others go on."""
    results = Results({cell.name: [] for cell in cells})
    for number in range(count):
        for cell in random.sample(cells, len(cells)):
            began = time.monotonic()
            figures: Figures | None = None
            try:
                figures = cell.measure()
            except Exception as error:  # noqa: BLE001 - the edge of a measurement
                _tell(f"{cell.name} failed: {type(error).__name__}: {error}")
            results.rounds[cell.name].append(figures)
            _tell(f"{name}, round {number + 1} of {count}: {cell.name}, {time.monotonic() - began:.1f} s")
    return results


def _tell(text: str) -> None:
    sys.stderr.write(f"  {text}\n")
