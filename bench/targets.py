"""What the figures are held against: ratios inside of one run on one machine, and a few plain limits."""

from collections.abc import Mapping
from dataclasses import dataclass

from bench.rounds import Results

Place = tuple[str, str]  # cell, figure


@dataclass(frozen=True, slots=True)
class Target:
    """`ours` over the best of `theirs`, or `ours` alone, is at least (or at most) `bound`.

    `number` is a row of the design's table of targets.
    """

    number: int
    text: str
    scenario: str
    ours: Place
    theirs: tuple[Place, ...]
    bound: float
    stretch: float | None = None
    at_most: bool = False

    def figure(self, found: Mapping[str, Results]) -> float | None:
        """None when that has not been measured in this run."""
        results = found.get(self.scenario)
        if results is None:
            return None
        if not self.theirs:
            return results.median(*self.ours)
        ratios = [ratio for place in self.theirs if (ratio := results.ratio(self.ours, place)) is not None]
        if not ratios:
            return None
        return max(ratios) if self.at_most else min(ratios)

    def is_met(self, figure: float) -> bool:
        return figure <= self.bound if self.at_most else figure >= self.bound


def _over(
    number: int,
    text: str,
    scenario: str,
    figure: str,
    ours: str,
    theirs: str | tuple[str, ...],
    bound: float,
    stretch: float | None = None,
    *,
    at_most: bool = False,
) -> Target:
    """The same figure of two cells."""
    others = (theirs,) if isinstance(theirs, str) else theirs
    places = tuple((other, figure) for other in others)
    return Target(number, text, scenario, (ours, figure), places, bound, stretch, at_most)


def _alone(
    number: int, text: str, scenario: str, figure: str, ours: str, bound: float, stretch: float | None = None
) -> Target:
    """A plain limit."""
    return Target(number, text, scenario, (ours, figure), (), bound, stretch, at_most=True)


_RATE = "runs/s"
_STEADY = "last/first tenth"
_OURS = "forgeflow"
_PEERS = ("pgqueuer, batch 100", "pgqueuer, batch 10", "procrastinate", "celery", "oban")

TARGETS = (
    _over(1, "no-ops / pgqueuer at batch 100", "drain", _RATE, _OURS, "pgqueuer, batch 100", 1.0, 1.3),
    _over(1, "no-ops / pgqueuer at its default", "drain", _RATE, _OURS, "pgqueuer, batch 10", 2.5),
    _over(1, "no-ops / oban", "drain", _RATE, _OURS, "oban", 2.0),
    _over(1, "no-ops / celery acks_late", "drain", _RATE, _OURS, "celery", 12.0),
    _over(1, "no-ops / procrastinate", "drain", _RATE, _OURS, "procrastinate", 15.0),
    _over(2, "no-ops / limit at batch 20", "drain", _RATE, _OURS, "limit, batch 20", 0.60, 0.8),
    _over(2, "CPU of a no-op / limit at batch 20", "drain", "CPU us/run", _OURS, "limit, batch 20", 1.7, at_most=True),
    _over(3, "claim size 1 / limit at batch 1", "drain", _RATE, f"{_OURS}, batch 1", "limit, batch 1", 0.85),
    _over(4, "shell runs / limit with subprocess", "shell", _RATE, _OURS, "limit, subprocess", 0.95),
    _over(4, "shell runs / the best peer", "shell", _RATE, _OURS, _PEERS, 1.25),
    _over(4, "shell runs / bare posix_spawn", "shell", _RATE, _OURS, "posix_spawn", 0.70, 0.75),
    _over(5, "latency p50 / pgqueuer", "latency", "p50 ms", _OURS, "pgqueuer, batch 10", 0.75, at_most=True),
    _over(5, "latency p50 / celery on Redis", "latency", "p50 ms", _OURS, "celery", 1.0, at_most=True),
    Target(5, "latency p99 / own p50", "latency", (_OURS, "p99 ms"), ((_OURS, "p50 ms"),), 2.0, at_most=True),
    _over(6, "submissions, single / pgqueuer", "enqueue", "single/s", _OURS, "pgqueuer, batch 10", 1.0, 1.3),
    _over(6, "submissions, bulk / pgqueuer", "enqueue", "bulk/s", _OURS, "pgqueuer, batch 10", 1.0, 2.0),
    _alone(7, "statements a second, 4 workers", "idle", "statements/s", f"{_OURS}, 4 workers", 1.2, 0.5),
    _alone(7, "statements a second, 16 workers", "idle", "statements/s", f"{_OURS}, 16 workers", 1.2, 0.5),
    _alone(7, "CPU %, 4 workers", "idle", "CPU %", f"{_OURS}, 4 workers", 0.3),
    _alone(7, "CPU %, 16 workers", "idle", "CPU %", f"{_OURS}, 16 workers", 0.3),
    _over(8, "memory / celery -c 4", "memory", "PSS MiB", _OURS, "celery", 0.6, 0.4, at_most=True),
    _over(9, "old snapshot / without", "snapshot", _RATE, "old snapshot", "without", 0.85, 0.95),
    Target(9, "old snapshot, last tenth / first", "snapshot", ("old snapshot", _STEADY), (), 0.85, 0.95),
    _over(9, "old snapshot / pgqueuer under it", "snapshot", _RATE, "old snapshot", "pgqueuer, old snapshot", 1.5),
    _over(10, "many finished runs / without", "history", _RATE, "with history", "without", 0.90, 0.98),
    _over(10, "many delayed runs / without", "delayed", _RATE, "with delayed runs", "without", 0.90, 0.98),
    _over(12, "4 nodes / 1 node", "nodes", _RATE, "4 nodes of 1", "1 node of 4", 0.9),
)
# Of row 11, summed over all that was measured: nothing of this may be.
CLEAN = ("lost", "run twice", "complaints")
