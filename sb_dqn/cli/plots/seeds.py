"""Curves of agents over their seeds: mean with bootstrap interval, for the pictures of `compare` and the pages of `report`."""

from __future__ import annotations

from collections.abc import Iterable

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
        line = line_with_band(steps, *mean_band(curves), number, f"{score.label} ({len(curves)})")
        seeds = [Series("line", steps, curve, color=number, faint=True) for curve in curves]
        faint = seeds if len(seeds) > 1 else []
        mean = line[-1].y
        titles = [f"{score.label}, step {step:,.0f}: {value:.1f}" for step, value in zip(steps, mean, strict=True)]
        series += [*line[:-1], *faint, line[-1], Series("marks", steps, mean, color=number, titles=titles)]
    return series
