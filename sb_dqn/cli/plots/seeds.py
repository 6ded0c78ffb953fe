"""Curves of agents over their seeds, mean with bootstrap interval: for the pages of `report`, and the picture of `compare`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from sb_dqn.plotting.picture import STYLES, draw_curves, draw_rows, new_figure, save_figure, styled
from sb_dqn.plotting.series import Series, line_with_band
from sb_dqn.runs.score import Score, several_seeds
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


def draw_seeds(path: Path, title: str, scores: Sequence[Score], unit: str) -> None:
    """Draws the comparison and writes it to `path`: the curves, and the interquartile mean of each agent.

    Args:
        path: .png, .svg or .pdf file to write.
        title: title of the left axes, such as the environment.
        scores: runs of each agent.
        unit: episodes of an evaluation during training, such as "5 greedy episodes".

    Raises:
        ConfigurationError: matplotlib is missing, or the file cannot be written.
    """
    with styled(STYLES["screen"]):
        figure = new_figure(11, 4.8)
        left, right = figure.subplots(1, 2, width_ratios=[2.2, 1])
        interval = "mean and 95 % bootstrap interval over seeds" if several_seeds(scores) else "one seed, no interval"
        left.set_title(f"{title}: {interval}", loc="left")
        left.set(xlabel="environment steps", ylabel=f"mean return, {unit} [game score]")
        draw_rows(right, {score.label: score.estimate for score in scores}, range(len(scores)))
        right.set_xlabel("interquartile mean at the end")
        draw_curves(figure, left, evaluation_series(scores))
        save_figure(figure, path)
