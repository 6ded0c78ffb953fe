"""Statistics over runs and environments: interquartile means and stratified bootstrap intervals, in NumPy.

With few runs a mean alone is unreliable. The definitions are those of Agarwal et al. 2021 (arXiv:2108.13264): scores are `[R, M]`
for R runs on each of M environments, whole runs are resampled on each environment separately, and intervals are percentiles. Seeds
are fixed, so that the same runs give the same numbers on every machine. Tests hold them against the authors' package rliable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from sb_dqn.plotting.curve import Points

RESAMPLES = 10_000
"""Bootstrap resamples of a single number."""
BAND_RESAMPLES = 2_000
"""Bootstrap resamples of a curve or profile, as rliable recommends for profiles."""
LEVEL = 0.95
"""Confidence level of the intervals."""


class Estimate(NamedTuple):
    """Point estimate with its 95 % confidence interval."""

    value: float
    interval: tuple[float, float] | None
    """Lower and upper bound; None for a single run."""

    def text(self, number: Callable[[float], str]) -> str:
        """Returns value and interval, such as "2.5 [1.0, 4.0]"; `number` writes each of the numbers."""
        bounds = f" [{', '.join(map(number, self.interval))}]" if self.interval else ""
        return f"{number(self.value)}{bounds}"


class Band(NamedTuple):
    """Curve with its pointwise 95 % interval."""

    value: Points
    """`[T]`."""
    interval: tuple[Points, Points] | None
    """Lower and upper bounds, each `[T]`; None for one run on each environment."""

    def at(self, place: int) -> Estimate:
        """Returns the estimate at one of the places."""
        bounds = self.interval and (float(self.interval[0][place]), float(self.interval[1][place]))
        return Estimate(float(self.value[place]), bounds)


def interquartile_mean(scores: Points, axis: int = -1) -> Points:
    """Returns the mean without the lowest and the highest quarter of the values, each rounded down.

    Equals `scipy.stats.trim_mean(scores, 0.25, axis)`. For up to three values it is their mean.
    """
    ordered = np.sort(scores, axis=axis)
    count = ordered.shape[axis]
    mean: Points = np.take(ordered, np.arange(count // 4, count - count // 4), axis=axis).mean(axis=axis)
    return mean


def percentiles(estimates: Points) -> tuple[Points, Points]:
    """Returns the bounds, each `[...]`, of the 95 % percentile interval of bootstrap estimates `[count, ...]`."""
    low, high = np.quantile(estimates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low, high


def at_common_places(curves: Sequence[tuple[Points, Points]], count: int | None = None) -> tuple[Points, Points]:
    """Returns places `[T]` within the range of all R curves, and the curves interpolated at them, `[R, T]`.

    Runs with several lanes evaluate at slightly different steps.

    Args:
        curves: places and values of each curve; at least one place.
        count: number of evenly spaced places; None takes those of the curve with the fewest.
    """
    if not curves:
        return np.zeros(0), np.zeros((0, 0))
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    first = min(first, last)
    wanted = min((x for x, _ in curves), key=len) if count is None else np.linspace(first, last, count)
    places = np.unique(np.clip(wanted, first, last))
    return places, np.stack([np.interp(places, x, y) for x, y in curves])


def mean_band(curves: Points) -> Band:
    """Returns the mean curve of `curves` `[R, T]`; whole runs are resampled."""
    if len(curves) < 2:
        return Band(curves.mean(axis=0), None)
    drawn = np.random.default_rng(0).integers(len(curves), size=(RESAMPLES, len(curves)))
    counts = np.stack([(drawn == run).sum(axis=1) for run in range(len(curves))], axis=1)  # [count, R]
    return Band(curves.mean(axis=0), percentiles(counts @ curves / len(curves)))


def aggregate_iqm(scores: Points) -> Estimate:
    """Returns the interquartile mean over all runs and environments of `scores` `[R, M]`."""
    return iqm_curve(scores[..., None], RESAMPLES).at(0)


def iqm_curve(curves: Points, count: int = BAND_RESAMPLES) -> Band:
    """Returns the interquartile mean of `curves` `[R, M, T]` at each of T points; whole runs are resampled."""
    runs, tasks, points = curves.shape
    value = interquartile_mean(curves.reshape(-1, points), axis=0)
    if runs < 2:
        return Band(value, None)
    drawn = np.random.default_rng(0).integers(runs, size=(count, runs, tasks))
    bounds = [
        percentiles(interquartile_mean(curves[drawn, np.arange(tasks), point].reshape(count, -1)))
        for point in range(points)
    ]
    low, high = np.array(bounds).T
    return Band(value, (low, high))


def performance_profile(scores: Points, thresholds: Points) -> Band:
    """Returns the fraction of the runs of `scores` `[R, M]` above each of T thresholds (the run-score distribution)."""
    above = (scores[..., None] > thresholds).reshape(-1, len(thresholds)).astype(np.float64)
    if len(scores) < 2:
        return Band(above.mean(axis=0), None)
    counts = _draw_counts(scores, np.random.default_rng(0), BAND_RESAMPLES)
    return Band(above.mean(axis=0), percentiles(counts.reshape(BAND_RESAMPLES, -1) @ above / scores.size))


def probability_of_improvement(first: Points, second: Points) -> Estimate:
    """Returns the probability that a run of `first` `[R, M]` scores higher than one of `second` `[S, M]` on a random environment.

    It is the mean over environments of U / (R * S) with the Mann-Whitney statistic U; a tie counts one half. The interval
    resamples the runs of both.
    """
    wins = (first[:, None] > second) + 0.5 * (first[:, None] == second)  # [R, S, M]
    value = float(wins.mean())
    if min(len(first), len(second)) < 2:
        return Estimate(value, None)
    rng = np.random.default_rng(0)
    counts, other = _draw_counts(first, rng, RESAMPLES), _draw_counts(second, rng, RESAMPLES)
    low, high = percentiles(np.einsum("crm,rsm,csm->c", counts, wins, other, optimize=True) / wins.size)
    return Estimate(value, (float(low), float(high)))


def _draw_counts(scores: Points, rng: np.random.Generator, count: int) -> Points:
    """Returns how often each run of `scores` `[R, M]` is in each of `count` stratified resamples, `[count, R, M]`."""
    runs, tasks = scores.shape
    drawn = rng.multinomial(runs, np.full(runs, 1 / runs), size=(count, tasks))
    counts: Points = drawn.transpose(0, 2, 1).astype(np.float64)
    return counts
