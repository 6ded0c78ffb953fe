"""Scores of a comparison and their Markdown table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sb_dqn.runs.result_file import read_result
from sb_dqn.runs.statistics import Estimate, Points


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
    parallel = f", {jobs} at a time" if jobs is not None and jobs > 1 else ""
    spread = (
        "Mean and sd (n - 1) over the seeds; interquartile mean with 95 % percentile bootstrap interval. For fewer than "
        "four seeds the interquartile mean is the mean."
        if several
        else "With one seed no interval can be computed."
    )
    return (
        f"The score of a seed is the mean return of its greedy episodes after training. {spread} Wall-clock is the training "
        f"time of one run{parallel}, with the evaluations during training, without the final episodes and the start and end of "
        f"its process."
    )
