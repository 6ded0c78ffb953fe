"""Benchmark results: medians with their spread, ratios paired round by round, and a plain-text table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, NamedTuple

Round = Mapping[str, float]
"""What one round measured, by series."""
CHECKED = ("updates/step", "parameters")
"""Series whose names end so are there to be compared, and are not shown by themselves."""
How = Literal["ratio", "difference", "value"]


class Spread(NamedTuple):
    """A figure over the rounds."""

    median: float
    min: float
    max: float
    rounds: int


def spread(values: Sequence[float]) -> Spread:
    """Median, smallest and largest of at least one value."""
    return Spread(median(values), min(values), max(values), len(values))


def column(rounds: Sequence[Round], series: str) -> list[float]:
    """One series over the rounds in which it was measured."""
    return [one[series] for one in rounds if series in one]


@dataclass(frozen=True)
class Comparison:
    """What is read off a benchmark, and what it should be.

    Of several series on a side the one with the best median stands for it. A ratio says how many times better ours is:
    ours / peer where more is better, peer / ours where less is. Pairs come from the same round, so that what slows the
    whole machine down for a minute slows both.
    """

    label: str
    ours: tuple[str, ...]
    peers: tuple[str, ...] = ()
    how: How = "ratio"
    at_least: float | None = None
    at_most: float | None = None

    def without_bounds(self) -> Comparison:
        """The same, with nothing that it should come to."""
        return replace(self, at_least=None, at_most=None)

    def __post_init__(self) -> None:
        if (self.how == "value") == bool(self.peers):
            raise ValueError(f"{self.label}: a value has no peers, a {self.how} needs at least one")


@dataclass(frozen=True)
class Finding:
    """A comparison with its figures."""

    comparison: Comparison
    spread: Spread | None
    """None where a series was not measured."""
    ours: str = ""
    peer: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the median is within its bounds; None where there are none, or no figure."""
        low, high = self.comparison.at_least, self.comparison.at_most
        if self.spread is None or (low is None and high is None):
            return None
        return (low is None or self.spread.median >= low) and (high is None or self.spread.median <= high)


def compare(comparison: Comparison, rounds: Sequence[Round], less_is_better: bool = False) -> Finding:
    """The median over the rounds of the paired figure, and its spread."""
    ours = best(rounds, comparison.ours, less_is_better)
    peer = best(rounds, comparison.peers, less_is_better) if comparison.peers else ""
    if ours is None or peer is None:
        return Finding(comparison, None)
    if not peer:
        return Finding(comparison, spread(column(rounds, ours)), ours)
    pairs = [(one[ours], one[peer]) for one in rounds if ours in one and peer in one]
    if not pairs:
        return Finding(comparison, None, ours, peer)
    if comparison.how == "difference":
        figures = [a - b for a, b in pairs]
    else:
        figures = [b / a if less_is_better else a / b for a, b in pairs]
    return Finding(comparison, spread(figures), ours, peer)


def best(rounds: Sequence[Round], names: Sequence[str], less_is_better: bool) -> str | None:
    """Of the series that were measured, the one with the best median; None if none was."""
    medians = {name: median(column(rounds, name)) for name in names if column(rounds, name)}
    if not medians:
        return None
    return (min if less_is_better else max)(medians, key=lambda name: medians[name])


def number(value: float) -> str:
    """Four significant digits, thousands apart."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) < 0.1 else f"{value:.2f}"


def bounds(comparison: Comparison) -> str:
    """`>= 3.5`, or nothing."""
    parts = [
        f"{sign} {number(bound)}"
        for sign, bound in ((">=", comparison.at_least), ("<=", comparison.at_most))
        if bound is not None
    ]
    return " and ".join(parts)


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Columns apart by two blanks, the first to the left and the others to the right; the first row is the head."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) if place == 0 else cell.rjust(width) for place, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in rows)
    ]
    return "\n".join(line.rstrip() for line in [lines[0], "-" * len(lines[0]), *lines[1:]])


def report(name: str, unit: str, rounds: Sequence[Round], findings: Sequence[Finding]) -> str:
    """One benchmark: its series, then what is read off them."""
    series = [key for key in dict.fromkeys(key for one in rounds for key in one) if not key.endswith(CHECKED)]
    rows = [[f"{name} [{unit}]", "median", "min", "max", "rounds", "target", ""]]
    for key in series:
        rows.append([f"  {key}", *_cells(spread(column(rounds, key))), "", ""])
    for finding in findings:
        verdict = {True: "met", False: "MISSED", None: "" if finding.spread else "not measured"}[finding.met]
        cells = _cells(finding.spread) if finding.spread else ["-"] * 4
        rows.append([f"  = {_label(finding)}", *cells, bounds(finding.comparison), verdict])
    return format_table(rows)


def _label(finding: Finding) -> str:
    """With what was compared in the end, where there was a choice."""
    one = finding.comparison
    chosen = finding.spread is not None and (len(one.ours) > 1 or len(one.peers) > 1)
    return f"{one.label} ({finding.ours} : {finding.peer})" if chosen else one.label


def _cells(figures: Spread) -> list[str]:
    return [number(figures.median), number(figures.min), number(figures.max), str(figures.rounds)]
