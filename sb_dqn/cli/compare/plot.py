"""A comparison as a picture: learning curves with intervals, and the interquartile mean of each algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sb_dqn.cli.compare.statistics import Estimate, Points, mean_band
from sb_dqn.plotting import new_figure, read_curve, save_figure

COLOURS = [f"C{number}" for number in range(10)]


def eval_curves(folders: Sequence[Path]) -> tuple[Points, Points]:
    """Mean return at each evaluation of each run, `[R, V]`, and the env steps `[V]` at which they were played.

    Runs of several lanes cross a multiple of the interval at slightly different steps, so they are read at the steps of
    the run with the fewest evaluations. Without evaluations V is 0.
    """
    curves = [read_curve(folder) for folder in folders]
    steps = min((curve.eval_steps for curve in curves), key=len)
    if not len(steps):
        return np.zeros((len(folders), 0)), steps
    means = [np.interp(steps, curve.eval_steps, curve.eval_returns.mean(axis=1)) for curve in curves]
    return np.stack(means), steps


def draw(
    picture: Path, title: str, runs: Mapping[str, Sequence[Path]], estimates: Mapping[str, Estimate], what: str
) -> None:
    """Write the picture; its ending (.png, .svg, .pdf) says the format.

    Args:
        picture: file to write.
        title: for instance environment and seeds.
        runs: by algorithm the folders of its runs.
        estimates: by algorithm the interquartile mean at the end.
        what: how many episodes an evaluation on the way has.

    Raises:
        ConfigurationError: matplotlib is missing, or the file cannot be written.
    """
    figure = new_figure(11, 4.8)
    left, right = figure.subplots(1, 2, width_ratios=[2.2, 1])
    for number, (label, folders) in enumerate(runs.items()):
        _draw_curve(left, label, COLOURS[number % len(COLOURS)], "-" if number < len(COLOURS) else "--", folders)
    left.set_xlabel("environment steps")
    left.set_ylabel(f"mean return, {what} [game score]")
    spread = any(len(folders) > 1 for folders in runs.values())
    left.set_title(f"{title}: {'mean and 95 % bootstrap interval over seeds' if spread else 'one seed, no interval'}")
    left.grid(alpha=0.3)
    if left.lines:
        left.legend(loc="best", fontsize="small")
    places = np.arange(len(estimates))[::-1]
    for number, (place, estimate) in enumerate(zip(places, estimates.values(), strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        if estimate.interval is not None:
            right.plot(estimate.interval, [place, place], color=colour, lw=6, alpha=0.35, solid_capstyle="butt")
        right.plot(estimate.value, place, "o", color=colour, ms=6)
    right.set_yticks(places, list(estimates))
    right.set_xlabel("interquartile mean at the end")
    right.grid(axis="x", alpha=0.3)
    save_figure(figure, picture)


def _draw_curve(axes: Any, label: str, colour: str, line: str, folders: Sequence[Path]) -> None:
    curves, steps = eval_curves(folders)
    if not len(steps):
        return
    mean, low, high = mean_band(curves, np.random.default_rng(0))
    axes.plot(steps, mean, line, color=colour, lw=1.8, label=f"{label} ({len(folders)})")
    if len(folders) > 1:
        axes.fill_between(steps, low, high, color=colour, alpha=0.18, lw=0)
