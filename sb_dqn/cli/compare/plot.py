"""Picture of a comparison: learning curves with confidence intervals, and the interquartile mean of each algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sb_dqn.cli.plots.seeds import evaluation_series
from sb_dqn.plotting.picture import STYLES, draw_curves, draw_rows, new_figure, save_figure, styled
from sb_dqn.runs.score import Score, several_seeds


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
