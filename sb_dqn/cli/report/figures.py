"""Charts of a report: learning curves, scores, and the quantities of the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from sb_dqn.logger.csv_sink import CLOCK
from sb_dqn.plotting.curve import Points
from sb_dqn.plotting.series import Series, learning_curve, line_with_band, running_mean, thinned, window_of
from sb_dqn.plotting.svg import Chart, draw_chart
from sb_dqn.runs.run import Run
from sb_dqn.runs.score import Score, evaluation_series, several_seeds
from sb_dqn.runs.statistics import at_common_places, mean_band

GRID = 160
"""Places at which the curves of several runs are averaged."""
SPEED_WINDOWS = 40
"""Windows over which the speed of a run is measured."""
TITLES = {
    "train/q_mean": ("Q-value", "mean of a batch"),
    "train/td_error": ("TD error", "mean absolute, of a batch"),
    "train/loss": ("Loss", "of the latest updates"),
    "train/grad_norm": ("Gradient norm", "before clipping"),
    "rollout/exploration_rate": ("Exploration rate", "epsilon"),
    "train/learning_rate": ("Learning rate", ""),
    "rollout/success_rate": ("Success rate", "of the latest episodes"),
    "eval/success_rate": ("Success rate of evaluations", ""),
    "train/entropy_loss": ("Entropy loss", ""),
    "train/ent_coef": ("Entropy coefficient", ""),
    "train/approx_kl": ("KL divergence", "of a rollout's updates"),
    "train/explained_variance": ("Explained variance", "by the critic"),
}
"""Heading and explanation of logged quantities; others have their names."""
LEFT_OUT = {"train/n_updates", "rollout/ep_rew_mean", "rollout/ep_len_mean", "eval/mean_reward", "eval/mean_ep_length"}
"""Columns that other charts show or that only count."""
MAYBE_LOG = {"train/td_error", "train/loss", "train/grad_norm", "train/critic_loss"}

Values = Callable[[Run], tuple[Points, Points]]
"""Function that returns the env steps and the values of a quantity of a run."""


def learning_chart(run: Run) -> Chart | None:
    """Draws each episode, their running mean, and the evaluations with the standard deviation of their episodes."""
    series = learning_curve(run.curve, run.curve.steps, run.curve.eval_steps)
    return draw_chart("Return of an episode", series, note="game score", wide=True, x_end=run.steps)


def evaluation_chart(groups: Sequence[Score]) -> Chart | None:
    """Draws the evaluations of each run, and their mean over seeds with its bootstrap interval."""
    several = "mean over seeds, 95 % bootstrap interval, and each seed"
    note = several if several_seeds(groups) else "one seed each, no interval"
    series = [replace(each, label="") for each in evaluation_series(groups)]  # one legend above both charts
    return draw_chart("Return of greedy evaluations", series, note=note, wide=True, x_end=_end(groups))


def training_chart(groups: Sequence[Score]) -> Chart | None:
    """Draws the mean over seeds of the running mean of the episodes, with its bootstrap interval."""

    def smoothed(run: Run) -> tuple[Points, Points]:
        return run.curve.steps, running_mean(run.curve.returns, window_of(run.curve.returns))

    grids = [on_grid(group.drawn, smoothed) for group in groups]
    series = [
        each
        for number, (steps, curves) in enumerate(grids)
        if len(curves)
        for each in line_with_band(steps, *mean_band(curves), number)
    ]
    interval = "; mean over seeds and 95 % bootstrap interval" if several_seeds(groups) else ""
    note = f"running mean of the episodes, with exploration{interval}"
    return draw_chart("Return while training", series, note=note, wide=True, x_end=_end(groups))


def log_charts(groups: Sequence[Score]) -> list[Chart]:
    """Draws episode lengths, speed, and each quantity of the log that changes; the mean over seeds and their range."""
    runs = [run for group in groups for run in group.drawn]
    present = {name for run in runs for name in run.log if name.startswith(("train/", "rollout/", "eval/"))}
    names = [name for name in TITLES if name in present] + sorted(present - TITLES.keys() - LEFT_OUT)
    quantities: dict[str, Values] = {name: _column(name) for name in names}
    first = dict(list(quantities.items())[:4])
    ordered = {**first, "length": _lengths, "speed": _speed, **quantities}
    charts = [_quantity_chart(name, values, groups) for name, values in ordered.items()]
    return [chart for chart in charts if chart is not None]


def _quantity_chart(name: str, values: Values, groups: Sequence[Score]) -> Chart | None:
    """Draws a quantity; returns None if it is constant."""
    series: list[Series] = []
    for number, group in enumerate(groups):
        steps, curves = on_grid(group.drawn, values)
        if len(curves) == 1:
            (run,) = [run for run in group.drawn if len(values(run)[0])]
            series.append(Series("line", *thinned(*values(run), GRID), color=number))
        elif len(curves):
            series += line_with_band(steps, curves.mean(axis=0), (curves.min(axis=0), curves.max(axis=0)), number)
    if not series or np.ptp(np.concatenate([each.y for each in series])) == 0:
        return None
    own = {"length": ("Episode length", "env steps"), "speed": ("Speed", "env steps/s, with evaluations")}
    part, _, quantity = name.partition("/")
    unknown = (quantity.replace("_", " ").capitalize(), "" if part == "train" else part)
    title, note = {**TITLES, **own}.get(name, unknown)
    return draw_chart(title, series, note=note, may_be_log=name in MAYBE_LOG, x_end=_end(groups))


def score_chart(returns: Points) -> Chart | None:
    """Draws the returns of the final episodes in the order of their size."""
    ordered = np.sort(returns)
    shares = (np.arange(len(ordered)) + 0.5) / max(len(ordered), 1) * 100
    series = [
        Series("line", shares, ordered, color=1, faint=True),
        Series("marks", shares, ordered, color=1, titles=[f"{value:g}" for value in ordered]),
    ]
    return draw_chart("Returns of the final episodes", series, note="in order of size", x_label="percentile")


def on_grid(runs: Sequence[Run], values: Values) -> tuple[Points, Points]:
    """Returns places `[G]` in env steps and the values `[R, G]` of the runs that have any, interpolated where all have some."""
    return at_common_places([thinned(x, y, GRID) for x, y in map(values, runs) if len(x)], GRID)


def _end(groups: Sequence[Score]) -> float:
    """Returns the env steps of the longest run."""
    return float(max(run.steps for group in groups for run in group.drawn))


def _column(name: str) -> Values:
    """Returns the function that reads a column of the log."""

    def read(run: Run) -> tuple[Points, Points]:
        clock, column = run.log.get(CLOCK), run.log.get(name)
        if clock is None or column is None:
            return np.zeros(0), np.zeros(0)
        valid = np.isfinite(clock) & np.isfinite(column)
        return clock[valid], column[valid]

    return read


def _lengths(run: Run) -> tuple[Points, Points]:
    """Returns the running mean of the lengths of the episodes."""
    if not any(run.folder.glob("*monitor.csv")):  # the steps are those of log lines
        return _column("rollout/ep_len_mean")(run)
    lengths = run.curve.lengths
    return run.curve.steps, running_mean(lengths, window_of(lengths))


def _speed(run: Run) -> tuple[Points, Points]:
    """Returns env steps per second over windows of equal duration."""
    steps, seconds = run.curve.steps, run.curve.seconds
    if len(steps) < 3 or seconds[-1] <= seconds[0]:
        return np.zeros(0), np.zeros(0)
    ends = np.linspace(seconds[0], seconds[-1], SPEED_WINDOWS + 1)
    reached = np.interp(ends, seconds, steps)
    return reached[1:], np.diff(reached) / np.diff(ends)
