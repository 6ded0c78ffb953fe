"""Plots of learning curves: episode returns, their running mean, and evaluations."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sb_dqn.checks import check_output_path
from sb_dqn.errors import ConfigurationError

Points = npt.NDArray[np.float64]
Against = Literal["steps", "time"]


@dataclass(frozen=True)
class Curve:
    """Learning curve of a run; episodes in the order in which they ended."""

    steps: Points
    """`[E]` environment steps over all lanes at the end of each episode."""
    seconds: Points
    """`[E]` seconds since the start of the run at the end of each episode."""
    returns: Points
    """`[E]` undiscounted sum of the raw rewards of each episode."""
    eval_steps: Points
    """`[V]` environment steps at each evaluation."""
    eval_returns: Points
    """`[V, n]` returns of the episodes of each evaluation."""


def read_curve(folder: Path) -> Curve:
    """Reads episodes from `*.monitor.csv`, or else their means from `progress.csv`, and evaluations from `evaluations.npz`.

    Raises:
        ConfigurationError: the folder has none of these files, or no episode has ended yet.
    """
    episodes = _from_monitors(folder)
    if not len(episodes):
        episodes = _from_progress(folder)
    eval_steps, eval_returns = _evaluations(folder)
    if not len(episodes) and not len(eval_steps):
        raise ConfigurationError(
            f"folder must have an episode in *.monitor.csv or progress.csv, or evaluations.npz, got {folder} without them. "
            f"Pass the folder of a run in which an episode has ended."
        )
    steps, seconds, returns = episodes.T
    return Curve(steps, seconds, returns, eval_steps, eval_returns)


def plot_curve(folder: Path | str, picture: Path | str, title: str = "", against: Against = "steps") -> Path:
    """Plots the learning curve of the run in `folder`; returns the path of the picture.

    Args:
        folder: folder of one run.
        picture: file to write; its ending (.png, .svg, .pdf) selects the format.
        title: title, for example algorithm, environment and seed.
        against: x-axis: environment steps or wall-clock time.

    Raises:
        ConfigurationError: there is nothing to plot, the ending of `picture` is not supported, or matplotlib is missing.
    """
    figure = new_figure(8, 4.5)
    check_output_path(Path(picture), "picture", [f".{ending}" for ending in figure.canvas.get_supported_filetypes()])
    curve = read_curve(Path(folder))
    _draw(figure.add_subplot(), curve, title, against)
    save_figure(figure, Path(picture))
    return Path(picture)


def new_figure(width: float, height: float) -> Any:
    """Creates an empty figure; width and height in inches.

    Raises:
        ConfigurationError: matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigurationError(
            "matplotlib must be installed for plots, got none. Run pip install 'sb_dqn[plots]'."
        ) from None
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)  # no window and no global state with any backend
    return figure


def save_figure(figure: Any, picture: Path) -> None:
    """Writes a figure to a file, in the format of its ending.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    try:
        figure.savefig(picture)
    except OSError as error:
        raise ConfigurationError(
            f"{picture} cannot be written: {error.strerror or error}. Choose another file."
        ) from error


def running_mean(values: Points, window: int) -> Points:
    """Returns the `[E]` mean of the last `window` values at each position; of fewer at the beginning."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    mean: Points = (sums[ends] - sums[starts]) / (ends - starts)
    return mean


def _draw(axes: Any, curve: Curve, title: str, against: Against) -> None:
    hours = len(curve.seconds) > 0 and curve.seconds[-1] > 7200
    unit = 3600.0 if hours else 60.0
    ends, eval_ends = curve.steps, curve.eval_steps
    if against == "time":
        eval_ends = np.interp(curve.eval_steps, curve.steps, curve.seconds) / unit
        ends = curve.seconds / unit
    if len(ends):
        window = int(np.clip(len(ends) // 10, 1, 100))
        axes.plot(ends, curve.returns, ".", ms=2.5, alpha=0.3, color="tab:blue", label="episodes")
        mean = running_mean(curve.returns, window)
        axes.plot(ends, mean, color="tab:blue", lw=1.8, label=f"mean of the last {window}")
    if len(eval_ends):
        mean, spread = curve.eval_returns.mean(1), curve.eval_returns.std(1)
        axes.errorbar(
            eval_ends,
            mean,
            spread,
            color="tab:orange",
            marker="o",
            ms=4,
            lw=1.2,
            capsize=2,
            label="greedy evaluation ± std",
        )
    axes.set_xlabel("environment steps" if against == "steps" else f"wall-clock time [{'h' if hours else 'min'}]")
    axes.set_ylabel("return of an episode [game score]")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(loc="best", fontsize="small")


def _from_monitors(folder: Path) -> Points:
    """Reads `[E, 3]` steps, seconds and return of each episode; merges the files of the lanes by time."""
    rows: list[tuple[float, float, float]] = []  # time, length, return
    for path in sorted(folder.glob("*monitor.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            file.readline()  # a JSON header with t_start and env_id
            rows += [(float(row["t"]), float(row["l"]), float(row["r"])) for row in csv.DictReader(file)]
    time, length, score = np.array(sorted(rows), np.float64).reshape(-1, 3).T
    return np.stack([np.cumsum(length), time, score], axis=1)


def _from_progress(folder: Path) -> Points:
    """Reads `[E, 3]` steps, seconds and mean return of each log line."""
    path = folder / "progress.csv"
    columns = ("time/total_timesteps", "time/time_elapsed", "rollout/ep_rew_mean")
    rows: list[list[float]] = []
    if path.is_file():
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if all(row.get(column) for column in columns):
                    rows.append([float(row[column]) for column in columns])
    return np.array(rows, np.float64).reshape(-1, 3)


def _evaluations(folder: Path) -> tuple[Points, Points]:
    path = folder / "evaluations.npz"
    if not path.is_file():
        return np.zeros(0), np.zeros((0, 1))
    with np.load(path, allow_pickle=False) as arrays:
        return arrays["timesteps"].astype(np.float64), arrays["results"].astype(np.float64)
