"""Series: the marks of a figure, which `picture` draws with matplotlib and `svg` draws into a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sb_dqn.plotting.curve import Curve, Points

MAX_POINTS = 500
"""Points of a line in a page; a longer one is averaged in blocks."""


@dataclass(frozen=True)
class Series:
    """Points of one kind of mark."""

    kind: Literal["line", "cloud", "marks", "band", "bars"]
    x: Points
    y: Points
    """Values; the lower ones of a band or of bars."""
    high: Points | None = None
    """Upper values of a band or of bars."""
    color: int = 0
    faint: bool = False
    label: str = ""
    """Text in the legend; empty: no entry."""
    titles: Sequence[str] = ()
    """Tooltips of `marks` in a page."""


def line_with_band(
    x: Points, y: Points, interval: tuple[Points, Points] | None, color: int, label: str = ""
) -> list[Series]:
    """Returns a line, on the band between the bounds of its interval if there is one."""
    band = [] if interval is None else [Series("band", x, *interval, color)]
    return [*band, Series("line", x, y, color=color, label=label)]


def learning_curve(curve: Curve, ends: Points, eval_ends: Points) -> list[Series]:
    """Returns each episode, their running mean, and the evaluations with the standard deviation of their episodes.

    Args:
        curve: episodes and evaluations.
        ends: `[E]` places of the episodes on the x-axis.
        eval_ends: `[V]` places of the evaluations.
    """
    window = window_of(curve.returns)
    mean, spread = curve.eval_returns.mean(1), curve.eval_returns.std(1)
    number = curve.eval_returns.shape[1]
    titles = [
        f"step {step:,.0f}: {value:.1f} ± {sd:.1f}"
        for step, value, sd in zip(curve.eval_steps, mean, spread, strict=True)
    ]
    label = f"greedy evaluation, mean ± sd of {number} episode{'s' * (number > 1)}" if len(mean) else ""
    return [
        Series("cloud", ends, curve.returns, label="episodes of training"),
        Series("line", ends, running_mean(curve.returns, window), label=f"mean of the last {window}"),
        Series("bars", eval_ends, mean - spread, mean + spread, color=1),
        Series("line", eval_ends, mean, color=1, label=label),
        Series("marks", eval_ends, mean, color=1, titles=titles),
    ]


def window_of(episodes: Points) -> int:
    """Returns the number of episodes of a running mean: a tenth of all, within 3 to 100."""
    return int(np.clip(len(episodes) // 10, 3, 100))


def running_mean(values: Points, window: int) -> Points:
    """Returns the `[E]` mean of the last `window` values at each position; of fewer at the beginning."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    mean: Points = (sums[ends] - sums[starts]) / (ends - starts)
    return mean


def thinned(x: Points, y: Points, count: int = MAX_POINTS) -> tuple[Points, Points]:
    """Returns the points averaged in at most `count` blocks of equal size."""
    if len(x) <= count:
        return x, y
    starts = np.linspace(0, len(x), count + 1).astype(np.int64)[:-1]
    sizes = np.diff(np.append(starts, len(x)))
    return np.add.reduceat(x, starts) / sizes, np.add.reduceat(y, starts) / sizes
