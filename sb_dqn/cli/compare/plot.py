"""Comparison plot: learning curves with confidence intervals, and the interquartile mean of each algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sb_dqn.cli.plots.figures import line_style
from sb_dqn.plotting import new_figure, read_curve, save_figure
from sb_dqn.runs.statistics import Estimate, Points, mean_band


def eval_curves(folders: Sequence[Path]) -> tuple[Points, Points]:
    """Returns the mean return of each evaluation of each run, `[R, V]`, and the env steps of the evaluations, `[V]`.

    Runs with several lanes evaluate at slightly different steps, so the curves are interpolated at the steps of the run
    with the fewest evaluations. Without evaluations V is 0.
    """
    curves = [read_curve(folder) for folder in folders]
    steps = min((curve.eval_steps for curve in curves), key=len)
    if not len(steps):
        return np.zeros((len(folders), 0)), steps
    means = [np.interp(steps, curve.eval_steps, curve.eval_returns.mean(axis=1)) for curve in curves]
    return np.stack(means), steps


def draw(
    path: Path, title: str, runs: Mapping[str, Sequence[Path]], estimates: Mapping[str, Estimate], unit: str
) -> None:
    """Draws the comparison and writes it to `path`.

    Args:
        path: .png, .svg or .pdf file to write.
        title: title of the left axes, such as the environment.
        runs: folders of the runs, by algorithm.
        estimates: final interquartile mean, by algorithm.
        unit: episodes of an evaluation during training, such as "5 greedy episodes".

    Raises:
        ConfigurationError: matplotlib is missing, or the file cannot be written.
    """
    figure = new_figure(11, 4.8)
    left, right = figure.subplots(1, 2, width_ratios=[2.2, 1])
    for number, (label, folders) in enumerate(runs.items()):
        _draw_curve(left, label, line_style(number), folders)
    left.set_xlabel("environment steps")
    left.set_ylabel(f"mean return, {unit} [game score]")
    several_seeds = any(len(folders) > 1 for folders in runs.values())
    interval = "mean and 95 % bootstrap interval over seeds" if several_seeds else "one seed, no interval"
    left.set_title(f"{title}: {interval}")
    left.grid(alpha=0.3)
    if left.lines:
        left.legend(loc="best", fontsize="small")
    heights = np.arange(len(estimates))[::-1]
    for number, (height, estimate) in enumerate(zip(heights, estimates.values(), strict=True)):
        color = line_style(number)["color"]
        if estimate.interval is not None:
            right.plot(estimate.interval, [height, height], color=color, lw=6, alpha=0.35, solid_capstyle="butt")
        right.plot(estimate.value, height, "o", color=color, ms=6)
    right.set_yticks(heights, list(estimates))
    right.set_xlabel("interquartile mean at the end")
    right.grid(axis="x", alpha=0.3)
    save_figure(figure, path)


def _draw_curve(axes: Any, label: str, looks: Mapping[str, str], folders: Sequence[Path]) -> None:
    curves, steps = eval_curves(folders)
    if not len(steps):
        return
    mean, low, high = mean_band(curves, np.random.default_rng(0))
    axes.plot(steps, mean, lw=1.8, label=f"{label} ({len(folders)})", **looks)
    if len(folders) > 1:
        axes.fill_between(steps, low, high, color=looks["color"], alpha=0.18, lw=0)
