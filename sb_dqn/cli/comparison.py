"""What several seeds of several algorithms say: interquartile mean, bootstrap intervals, and a Markdown table.

With few runs a mean alone says little. What is reported here is what Agarwal et al. 2021 (arXiv:2108.13264) ask for:
the interquartile mean with the interval of a stratified bootstrap, strata being tasks and the unit drawn being a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sb_dqn.cli.results import read_result

Points = npt.NDArray[np.float64]
RESAMPLES = 10_000
LEVEL = 0.95


@dataclass(frozen=True)
class Score:
    """One algorithm on one environment."""

    label: str
    means: Points
    """`[R]` by run, i.e. seed: the mean return of its greedy episodes at the end."""
    steps: int
    """Environment steps of each run."""
    seconds: Points
    """`[R]` of training, evaluations on the way included."""


def score_of(label: str, folders: Sequence[Path]) -> Score:
    """Read off the folders of finished runs, one for each seed."""
    results = [read_result(folder) for folder in folders]
    means = np.array([np.mean(result.returns) for result in results])
    return Score(label, means, results[0].steps, np.array([result.seconds for result in results]))


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval."""

    value: float
    interval: tuple[float, float] | None
    """None of a single run, which says nothing of the spread."""


def interquartile_mean(scores: Points, axis: int = -1) -> Points:
    """Mean of what is left when a quarter of the values, rounded down, is cut off at either end.

    So of up to three values it is their mean; it is `scipy.stats.trim_mean(scores, 0.25, axis)`.
    """
    ordered = np.sort(scores, axis=axis)
    count = ordered.shape[axis]
    kept: Points = np.take(ordered, np.arange(count // 4, count - count // 4), axis=axis).mean(axis=axis)
    return kept


def resample(scores: Points, rng: np.random.Generator, count: int = RESAMPLES) -> Points:
    """`[count, R, M]` stratified bootstrap of `scores` `[R, M]`: in each task (column) R runs, drawn with replacement."""
    runs, tasks = scores.shape
    chosen = rng.integers(runs, size=(count, runs, tasks))
    drawn: Points = scores[chosen, np.arange(tasks)]
    return drawn


def percentiles(estimates: Points) -> tuple[Points, Points]:
    """The ends of the 95 % percentile interval of bootstrap estimates `[count, ...]`, each `[...]`."""
    low, high = np.quantile(estimates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low, high


def mean_band(curves: Points, rng: np.random.Generator) -> tuple[Points, Points, Points]:
    """Mean over the runs of `curves` `[R, V]`, and the ends of its bootstrap interval; whole runs are drawn. Each `[V]`."""
    drawn = rng.integers(len(curves), size=(RESAMPLES, len(curves)))
    counts = np.stack([(drawn == run).sum(axis=1) for run in range(len(curves))], axis=1)  # [count, R]
    low, high = percentiles(counts @ curves / len(curves))
    return curves.mean(axis=0), low, high


def estimate_iqm(means: Points) -> Estimate:
    """The interquartile mean of the runs `[R]`, by `rliable` where that is installed, else the same by ourselves.

    Ours repeats itself to the last digit; rliable draws from numpy's global generator, whatever it is given.
    """
    scores = means[:, None]  # one task
    if len(means) < 2:
        return Estimate(float(interquartile_mean(means)), None)
    value, low, high = (_by_rliable if has_rliable() else _by_ourselves)(scores)
    return Estimate(value, (low, high))


def has_rliable() -> bool:
    return find_spec("rliable") is not None


def _by_rliable(scores: Points) -> tuple[float, float, float]:
    from rliable import library, metrics

    function: Callable[[Points], Points] = lambda drawn: np.array([metrics.aggregate_iqm(drawn)])  # noqa: E731
    values, intervals = library.get_interval_estimates({"it": scores}, function, reps=RESAMPLES)
    return float(values["it"][0]), float(intervals["it"][0, 0]), float(intervals["it"][1, 0])


def _by_ourselves(scores: Points) -> tuple[float, float, float]:
    drawn = resample(scores, np.random.default_rng(0)).reshape(RESAMPLES, -1)
    low, high = percentiles(interquartile_mean(drawn))
    return float(interquartile_mean(scores.reshape(-1))), float(low), float(high)


def as_table(env_id: str, scores: Sequence[Score], estimates: Sequence[Estimate]) -> str:
    """Markdown, a line for each algorithm."""
    several = any(estimate.interval for estimate in estimates)
    heads = "mean ± sd | IQM [95 % interval]" if several else "mean | IQM"
    lines = [
        f"| {env_id} | {heads} | seeds | env steps | wall-clock |",
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
    """What the columns mean.

    Args:
        jobs: runs that were trained at a time; None where that is not known.
        several: whether there is an algorithm with several seeds.
    """
    by = f"rliable {metadata.version('rliable')}" if has_rliable() else "our own"
    beside = f", of {jobs} at a time" if jobs is not None and jobs > 1 else ""
    told = (
        f"Mean and sd (n - 1) over the seeds; interquartile mean with 95 % percentile bootstrap interval ({by}), which of "
        f"fewer than four seeds is their mean."
        if several
        else "One seed says nothing of the spread over seeds, so no interval is given."
    )
    return (
        f"A seed's score is the mean return of its greedy episodes after training. {told} Wall-clock of one run{beside}, "
        f"evaluations on the way included; the final episodes, and the start and end of its process, come on top."
    )
