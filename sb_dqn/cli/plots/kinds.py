"""The kinds of aggregate plots: from runs to a figure and the numbers in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sb_dqn.cli.plots.normalization import Normalization, make_normalization
from sb_dqn.cli.plots.runs import Grid, make_grid
from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.plotting.curve import Points
from sb_dqn.plotting.picture import Style, draw_curves, draw_estimates, draw_profiles, new_axes, number_text
from sb_dqn.plotting.series import Series, line_with_band
from sb_dqn.runs.run import Run
from sb_dqn.runs.statistics import (
    Band,
    aggregate_iqm,
    at_common_places,
    iqm_curve,
    performance_profile,
    probability_of_improvement,
)

if TYPE_CHECKING:
    from sb_dqn.plotting.picture import Figure


@dataclass(frozen=True)
class Request:
    """Options of an aggregate plot."""

    kind: str
    """A key of `KINDS`."""
    style: Style
    normalize: str | None = None
    """Choice of `make_normalization`."""
    baseline: str | None = None
    """Label that the others are compared with; None: the first one."""


def draw(runs: Sequence[Run], request: Request) -> tuple[Figure, list[str], list[str]]:
    """Draws an aggregate plot of runs; matplotlib's settings must be those of the style.

    Returns:
        The figure, its numbers as lines of text, and notes on the runs in it.

    Raises:
        ConfigurationError: the runs do not suffice for the plot, or the normalization does not suit the environments.
    """
    curves = request.kind == "curves"
    suffices = [len(run.evaluations[0]) > 0 if curves else run.result.mean is not None for run in runs]
    usable = [run for run, enough in zip(runs, suffices, strict=True) if enough]
    notes = [
        f"{run} is left out: it has no {'evaluation' if curves else 'result of final episodes'} yet"
        for run, enough in zip(runs, suffices, strict=True)
        if not enough
    ]
    if not usable:
        raise ConfigurationError(
            f"--kind {request.kind} must be used with runs that have {'evaluations' if curves else 'finished final episodes'}, got "
            f"{len(runs)} without. Wait for them, or train with {'--eval-freq' if curves else '--final-episodes'} above 0."
        )
    grid = make_grid(usable, f" Note: {'; '.join(notes[:3])}." if notes else "")
    figure, lines = KINDS[request.kind](grid, request)
    return figure, lines, [*notes, *_length_notes(grid, request.kind)]


def _curves(grid: Grid, request: Request) -> tuple[Figure, list[str]]:
    """Draws the interquartile mean of the evaluations over env steps, or over the share of the training."""
    normalization = _normalization(grid, request)
    budgets = [max(run.budget for run in grid.runs_on(task)) for task in range(len(grid.env_ids))]
    percent = len(set(budgets)) > 1
    curves = {}
    for label in grid.labels:
        positions, values = _interpolate(grid.runs[label], budgets, normalization)
        curves[label] = (positions * (1 if percent else budgets[0]), iqm_curve(values))
    xlabel = "share of the training steps" if percent else "environment steps"
    title = f"{_subject(grid)}: {_interval(grid)}"
    ylabel = f"IQM of the {normalization.label}"
    figure, axes = new_axes(request.style, request.style.height, title)
    draw_curves(figure, axes, _series(curves), percent)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    lines = []
    for label, (positions, band) in curves.items():
        end = f"{positions[-1]:.0%} of the training" if percent else f"{positions[-1]:,.0f} env steps"
        lines.append(f"{label}: IQM {band.at(-1).text(number_text)} after {end}")
    return figure, lines


def _interpolate(
    tasks: Sequence[Sequence[Run]], budgets: Sequence[int], normalization: Normalization
) -> tuple[Points, Points]:
    """Returns positions `[T]`, as fractions of the budget of each environment, and scores `[R, M, T]` at them."""
    curves = [
        (run.evaluations[0] / budget, normalization.apply(run.env_id, run.evaluations[1]))
        for runs, budget in zip(tasks, budgets, strict=True)
        for run in runs
    ]
    positions, scores = at_common_places(curves)
    return positions, scores.reshape(len(tasks), -1, len(positions)).transpose(1, 0, 2)


def _iqm(grid: Grid, request: Request) -> tuple[Figure, list[str]]:
    """Draws the interquartile mean of the final scores."""
    normalization = _normalization(grid, request)
    estimates = {label: aggregate_iqm(_final_scores(grid, label, normalization)) for label in grid.labels}
    title, xlabel = f"{_subject(grid)}: {_interval(grid)}", f"IQM of the final {normalization.label}"
    figure = draw_estimates(request.style, estimates, range(len(estimates)), xlabel, title)
    return figure, [f"{label}: IQM {estimate.text(number_text)}" for label, estimate in estimates.items()]


def _profile(grid: Grid, request: Request) -> tuple[Figure, list[str]]:
    """Draws the fraction of runs whose final score is above each threshold."""
    normalization = _normalization(grid, request)
    scores = {label: _final_scores(grid, label, normalization) for label in grid.labels}
    every = np.unique(
        np.concatenate([values.reshape(-1) for values in scores.values()])
    )  # where the profiles have steps
    margin = 0.02 * (every[-1] - every[0]) or 1.0
    thresholds = np.concatenate([[every[0] - margin], every, [every[-1] + margin]])
    profiles = {label: (thresholds, performance_profile(values, thresholds)) for label, values in scores.items()}
    title = f"{_subject(grid)}: {_interval(grid, '')}"
    figure = draw_profiles(request.style, _series(profiles), f"final {normalization.label}", title)
    return figure, [f"{label}: median {number_text(float(np.median(values)))}" for label, values in scores.items()]


def _improvement(grid: Grid, request: Request) -> tuple[Figure, list[str]]:
    """Draws the probability that a run scores higher than one of the baseline."""
    if len(grid.labels) < 2:
        raise ConfigurationError(
            f"--kind improvement must be used with two or more algorithms, got {grid.labels[0]} only. Pass the runs of another one."
        )
    baseline = grid.labels[0] if request.baseline is None else request.baseline
    if baseline not in grid.labels:
        raise ConfigurationError(
            f"--baseline must be one of {', '.join(grid.labels)}, got {baseline!r}. Use one of them."
            f"{nearest(baseline, grid.labels)}"
        )
    raw = Normalization("return", {})  # which of two returns is higher does not depend on their scale
    scores = {label: _final_scores(grid, label, raw) for label in grid.labels}
    estimates = {
        label: probability_of_improvement(values, scores[baseline])
        for label, values in scores.items()
        if label != baseline
    }
    title, numbers = f"{_subject(grid)}: {_interval(grid, '')}", [grid.labels.index(label) for label in estimates]
    figure = draw_estimates(request.style, estimates, numbers, f"P(score > {baseline})", title, chance=0.5)
    return figure, [f"P({label} > {baseline}) = {estimate.text(number_text)}" for label, estimate in estimates.items()]


def _series(bands: Mapping[str, tuple[Points, Band]]) -> list[Series]:
    """Returns the line of each label with its interval."""
    return [
        series
        for number, (label, (places, band)) in enumerate(bands.items())
        for series in line_with_band(places, *band, number, label)
    ]


KINDS: Mapping[str, Callable[[Grid, Request], tuple[Figure, list[str]]]] = {
    "curves": _curves,
    "iqm": _iqm,
    "profile": _profile,
    "improvement": _improvement,
}


def _normalization(grid: Grid, request: Request) -> Normalization:
    """Returns the normalization; the returns of all evaluations and final episodes define the range of minmax."""
    returns: dict[str, Points] = {}
    for task, env_id in enumerate(grid.env_ids):
        runs = grid.runs_on(task)
        finals = [run.result.mean for run in runs if run.result.returns]
        returns[env_id] = np.concatenate([*(run.evaluations[1] for run in runs), np.array(finals, np.float64)])
    return make_normalization(request.normalize, returns)


def _final_scores(grid: Grid, label: str, normalization: Normalization) -> Points:
    """Returns the normalized final scores of a label, `[R, M]`."""
    columns = [
        normalization.apply(env_id, np.array([run.result.mean for run in runs], np.float64))
        for env_id, runs in zip(grid.env_ids, grid.runs[label], strict=True)
    ]
    return np.stack(columns, axis=1)


def _length_notes(grid: Grid, kind: str) -> list[str]:
    """Returns notes on runs of different lengths, and on curves that end with an unfinished run."""
    notes = []
    for task, env_id in enumerate(grid.env_ids):
        runs = grid.runs_on(task)
        lengths = {run.budget: run for run in runs}
        if len(lengths) > 1 and kind != "curves":
            (short, one), (long, other) = min(lengths.items()), max(lengths.items())
            notes.append(
                f"the runs on {env_id} differ in length: {one.label} has {short:,} env steps, {other.label} {long:,}"
            )
        if kind == "curves":
            notes += [
                f"{run} is not finished: the curve of {run.label} ends where its shortest run ends"
                for run in runs
                if not run.result.finished
            ]
    return notes


def _subject(grid: Grid) -> str:
    """Returns the environments as text: their names, or their number if there are more than two."""
    return ", ".join(grid.env_ids) if len(grid.env_ids) <= 2 else f"{len(grid.env_ids)} environments"


def _interval(grid: Grid, statistic: str = "interquartile mean, ") -> str:
    """Returns what is drawn and from how many seeds, for the title."""
    counts = sorted({len(runs[0]) for runs in grid.runs.values()})
    seeds = f"{counts[0]} to {counts[-1]} seeds" if len(counts) > 1 else f"{counts[0]} seed{'s' * (counts[0] > 1)}"
    return f"{statistic}{seeds}, {'95 % bootstrap intervals' if counts[-1] > 1 else 'no interval'}"
