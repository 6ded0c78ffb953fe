"""Comparison plot: learning curves with confidence intervals, and the interquartile mean of each algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sb_dqn.cli.plots.figures import line_style
from sb_dqn.plotting import new_figure, save_figure
from sb_dqn.runs.score import Score, several_seeds
from sb_dqn.runs.statistics import mean_band


def draw(path: Path, title: str, scores: Sequence[Score], unit: str) -> None:
    """Draws the comparison and writes it to `path`.

    Args:
        path: .png, .svg or .pdf file to write.
        title: title of the left axes, such as the environment.
        scores: runs of each algorithm.
        unit: episodes of an evaluation during training, such as "5 greedy episodes".

    Raises:
        ConfigurationError: matplotlib is missing, or the file cannot be written.
    """
    figure = new_figure(11, 4.8)
    left, right = figure.subplots(1, 2, width_ratios=[2.2, 1])
    for number, score in enumerate(scores):
        _draw_curve(left, score, line_style(number))
    left.set_xlabel("environment steps")
    left.set_ylabel(f"mean return, {unit} [game score]")
    interval = "mean and 95 % bootstrap interval over seeds" if several_seeds(scores) else "one seed, no interval"
    left.set_title(f"{title}: {interval}")
    left.grid(alpha=0.3)
    if left.lines:
        left.legend(loc="best", fontsize="small")
    heights = np.arange(len(scores))[::-1]
    for number, (height, score) in enumerate(zip(heights, scores, strict=True)):
        color, estimate = line_style(number)["color"], score.estimate
        if estimate.interval is not None:
            right.plot(estimate.interval, [height, height], color=color, lw=6, alpha=0.35, solid_capstyle="butt")
        right.plot(estimate.value, height, "o", color=color, ms=6)
    right.set_yticks(heights, [score.label for score in scores])
    right.set_xlabel("interquartile mean at the end")
    right.grid(axis="x", alpha=0.3)
    save_figure(figure, path)


def _draw_curve(axes: Any, score: Score, looks: Mapping[str, str]) -> None:
    steps, curves = score.evaluations
    if not len(steps):
        return
    mean, low, high = mean_band(curves, np.random.default_rng(0))
    axes.plot(steps, mean, lw=1.8, label=f"{score.label} ({len(curves)})", **looks)
    if len(curves) > 1:
        axes.fill_between(steps, low, high, color=looks["color"], alpha=0.18, lw=0)
