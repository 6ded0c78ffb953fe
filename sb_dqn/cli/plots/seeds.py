"""Curves of agents over their seeds: mean with bootstrap interval, for the pictures of `compare` and the pages of `report`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sb_dqn.plotting.curve import Points
from sb_dqn.plotting.series import Series, line_with_band
from sb_dqn.runs.score import Score
from sb_dqn.runs.statistics import mean_band


def evaluation_series(scores: Iterable[Score]) -> list[Series]:
    """Returns the evaluations of each seed, and their mean over the seeds with its interval."""
    series: list[Series] = []
    for number, score in enumerate(scores):
        steps, curves = score.evaluations
        if not len(steps):
            continue
        line = mean_line(steps, curves, number, f"{score.label} ({len(curves)})")
        faint = [
            Series("line", steps, curve, color=number, faint=True)
            for curve in curves[: len(curves) * (len(curves) > 1)]
        ]
        mean = line[-1].y
        titles = [f"{score.label}, step {step:,.0f}: {value:.1f}" for step, value in zip(steps, mean, strict=True)]
        series += [*line[:-1], *faint, line[-1], Series("marks", steps, mean, color=number, titles=titles)]
    return series


def mean_line(places: Points, curves: Points, number: int, label: str = "") -> list[Series]:
    """Returns the mean of `curves` `[R, V]`, on its interval if there are several."""
    mean, low, high = mean_band(curves, np.random.default_rng(0))
    several = len(curves) > 1
    return line_with_band(places, mean, low if several else None, high if several else None, number, label)
