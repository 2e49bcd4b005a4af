"""The table in the end."""

from collections.abc import Iterator, Mapping

from bench.rounds import Results
from bench.targets import CLEAN, TARGETS, Target

# No columns, but told beside a line when they are not 0.
_COUNTS = (*CLEAN, "handed back", "cut", "called wrongly")


def scenario_lines(name: str, results: Results) -> Iterator[str]:
    """A line for each cell: the medians of what it measured."""
    figures = [figure for rounds in results.rounds.values() for each in rounds if each for figure in each]
    columns = [figure for figure in dict.fromkeys(figures) if figure not in _COUNTS]
    widths = [max(len(column), 9) for column in columns]
    yield f"{name:34}" + "".join(f"  {column:>{width}}" for column, width in zip(columns, widths, strict=True))
    for cell in results.rounds:
        values = [results.median(cell, column) for column in columns]
        shown = "".join(f"  {_short(value):>{width}}" for value, width in zip(values, widths, strict=True))
        yield f"  {cell:32}{shown}{_remarks(results, cell)}"
    yield ""


def target_lines(found: Mapping[str, Results]) -> Iterator[str]:
    """Each target, with the figure of this run beside it."""
    yield f"{'':3} {'target':44} {'bound':>8} {'stretch':>8} {'here':>8}"
    for target in TARGETS:
        yield _target_line(target, target.figure(found))
    for count in CLEAN:
        totals = [total for results in found.values() if (total := results.total(count)) is not None]
        here = f"{sum(totals):.0f}" if totals else "-"
        yield f"{11:3} {count:44} {'0':>8} {'':>8} {here:>8}{'  missed' if sum(totals) else ''}"


def _target_line(target: Target, figure: float | None) -> str:
    sign = "≤" if target.at_most else "≥"
    bound, stretch = f"{sign} {target.bound:g}", "" if target.stretch is None else f"{sign} {target.stretch:g}"
    verdict = "  missed" if figure is not None and not target.is_met(figure) else ""
    return f"{target.number:3} {target.text:44} {bound:>8} {stretch:>8} {_short(figure):>8}{verdict}"


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _remarks(results: Results, cell: str) -> str:
    """Rounds that failed or were cut, and counts that are not 0."""
    remarks = [f"{results.failures(cell)} failed"] if results.failures(cell) else []
    for count in _COUNTS:
        total = sum(each.get(count, 0.0) for each in results.rounds[cell] if each)
        remarks += [f"{total:.0f} {count}"] if total else []
    return f"  ({', '.join(remarks)})" if remarks else ""
