"""Statistics of a comparison: interquartile mean, bootstrap confidence intervals, and a Markdown table.

With few runs a mean alone is unreliable. Agarwal et al. 2021 (arXiv:2108.13264) recommend the interquartile mean with a
stratified bootstrap interval: strata are tasks, and whole runs are resampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sb_dqn.cli.train.result_file import read_result

Points = npt.NDArray[np.float64]
RESAMPLES = 10_000
"""Number of bootstrap resamples."""
LEVEL = 0.95
"""Confidence level of the intervals."""


@dataclass(frozen=True)
class Score:
    """Results of one algorithm on one environment over R runs."""

    label: str
    means: Points
    """`[R]` mean return of the final greedy episodes of each run (one run per seed)."""
    steps: int
    """Env steps of each run."""
    seconds: Points
    """`[R]` training time in seconds, intermediate evaluations included."""


def score_of(label: str, folders: Sequence[Path]) -> Score:
    """Reads the score of an algorithm from the folders of its finished runs, one per seed."""
    results = [read_result(folder) for folder in folders]
    means = np.array([np.mean(result.returns) for result in results])
    return Score(label, means, results[0].steps, np.array([result.seconds for result in results]))


@dataclass(frozen=True)
class Estimate:
    """Point estimate with its 95 % confidence interval."""

    value: float
    interval: tuple[float, float] | None
    """Lower and upper bound; None for a single run."""


def interquartile_mean(scores: Points, axis: int = -1) -> Points:
    """Returns the mean without the lowest and the highest quarter of the values, each rounded down.

    Equals `scipy.stats.trim_mean(scores, 0.25, axis)`. For up to three values it is their mean.
    """
    ordered = np.sort(scores, axis=axis)
    count = ordered.shape[axis]
    mean: Points = np.take(ordered, np.arange(count // 4, count - count // 4), axis=axis).mean(axis=axis)
    return mean


def resample(scores: Points, rng: np.random.Generator, count: int = RESAMPLES) -> Points:
    """Returns `[count, R, M]` stratified bootstrap samples of `scores` `[R, M]`: R runs per task, drawn with replacement."""
    runs, tasks = scores.shape
    chosen = rng.integers(runs, size=(count, runs, tasks))
    drawn: Points = scores[chosen, np.arange(tasks)]
    return drawn


def percentiles(estimates: Points) -> tuple[Points, Points]:
    """Returns the bounds, each `[...]`, of the 95 % percentile interval of bootstrap estimates `[count, ...]`."""
    low, high = np.quantile(estimates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low, high


def mean_band(curves: Points, rng: np.random.Generator) -> tuple[Points, Points, Points]:
    """Returns the mean curve of `curves` `[R, V]` and its bootstrap bounds, each `[V]`; whole runs are resampled."""
    drawn = rng.integers(len(curves), size=(RESAMPLES, len(curves)))
    counts = np.stack([(drawn == run).sum(axis=1) for run in range(len(curves))], axis=1)  # [count, R]
    low, high = percentiles(counts @ curves / len(curves))
    return curves.mean(axis=0), low, high


def estimate_iqm(means: Points) -> Estimate:
    """Returns the interquartile mean of the runs `[R]` with its interval, by `rliable` if installed, else by NumPy.

    The NumPy version is deterministic. rliable always draws from NumPy's global generator.
    """
    scores = means[:, None]  # one task
    if len(means) < 2:
        return Estimate(float(interquartile_mean(means)), None)
    value, low, high = (_by_rliable if has_rliable() else _by_numpy)(scores)
    return Estimate(value, (low, high))


def has_rliable() -> bool:
    """Returns True if the package `rliable` (extra `compare`) is installed."""
    return find_spec("rliable") is not None


def _by_rliable(scores: Points) -> tuple[float, float, float]:
    from rliable import library, metrics

    function: Callable[[Points], Points] = lambda drawn: np.array([metrics.aggregate_iqm(drawn)])  # noqa: E731
    values, intervals = library.get_interval_estimates({"it": scores}, function, reps=RESAMPLES)
    return float(values["it"][0]), float(intervals["it"][0, 0]), float(intervals["it"][1, 0])


def _by_numpy(scores: Points) -> tuple[float, float, float]:
    drawn = resample(scores, np.random.default_rng(0)).reshape(RESAMPLES, -1)
    low, high = percentiles(interquartile_mean(drawn))
    return float(interquartile_mean(scores.reshape(-1))), float(low), float(high)


def as_table(env_id: str, scores: Sequence[Score], estimates: Sequence[Estimate]) -> str:
    """Returns a Markdown table with one row per algorithm."""
    several = any(estimate.interval for estimate in estimates)
    columns = "mean ± sd | IQM [95 % interval]" if several else "mean | IQM"
    lines = [
        f"| {env_id} | {columns} | seeds | env steps | wall-clock |",
        "|---|---|---|---|---|---|",
    ]
    for score, estimate in zip(scores, estimates, strict=True):
        spread = f" ± {score.means.std(ddof=1):.1f}" if len(score.means) > 1 else ""
        interval = f" [{estimate.interval[0]:.1f}, {estimate.interval[1]:.1f}]" if estimate.interval else ""
        lines.append(
            f"| {score.label} | {score.means.mean():.1f}{spread} | {estimate.value:.1f}{interval} "
            f"| {len(score.means)} | {score.steps:,} | {score.seconds.mean():,.0f} s |"
        )
    return "\n".join(lines)


def caption(jobs: int | None, several: bool = True) -> str:
    """Returns the explanation of the columns.

    Args:
        jobs: number of runs that trained at a time; None if unknown.
        several: True if an algorithm has several seeds.
    """
    source = f"rliable {metadata.version('rliable')}" if has_rliable() else "built in"
    parallel = f", {jobs} at a time" if jobs is not None and jobs > 1 else ""
    spread = (
        f"Mean and sd (n - 1) over the seeds; interquartile mean with 95 % percentile bootstrap interval ({source}). For fewer "
        f"than four seeds the interquartile mean is the mean."
        if several
        else "With one seed no interval can be computed."
    )
    return (
        f"The score of a seed is the mean return of its greedy episodes after training. {spread} Wall-clock is the training "
        f"time of one run{parallel}, with the evaluations during training, without the final episodes and the start and end of "
        f"its process."
    )
