"""Plots of learning curves: episode returns, their running mean, and evaluations."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sb_dqn.checks import check_output_path
from sb_dqn.errors import ConfigurationError
from sb_dqn.files import atomic_write

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
    """Reads episodes from `*.monitor.csv`, or else their means from `progress.csv`, and evaluations from `evaluations.npz`."""
    episodes = _from_monitors(folder)
    if not len(episodes):
        episodes = _from_progress(folder)
    steps, seconds, returns = episodes.T
    return Curve(steps, seconds, returns, *read_evaluations(folder))


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
    check_picture_path(Path(picture))
    figure = new_figure(8, 4.5)
    curve = read_curve(Path(folder))
    if not len(curve.steps) and not len(curve.eval_steps):
        raise ConfigurationError(
            f"folder must have an episode in *.monitor.csv or progress.csv, or evaluations.npz, got {folder} without them. "
            f"Pass the folder of a run in which an episode has ended."
        )
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


def check_picture_path(picture: Path) -> None:
    """Checks the ending and the folder of a picture to write.

    Raises:
        ConfigurationError: the ending is not supported, the folder does not exist, or matplotlib is missing.
    """
    endings = new_figure(1, 1).canvas.get_supported_filetypes()
    check_output_path(picture, "picture", [f".{ending}" for ending in endings])


def save_figure(figure: Any, picture: Path) -> None:
    """Writes a figure to a file atomically, in the format of its ending.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    try:
        with atomic_write(picture) as file:
            figure.savefig(file, format=picture.suffix.lower().removeprefix("."))
    except OSError as error:
        raise ConfigurationError(error.strerror or str(error)) from error


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
        header = 1  # a JSON line with t_start and env_id
        rows += [(float(row["t"]), float(row["l"]), float(row["r"])) for row in _complete_rows(path, header)]
    time, length, score = np.array(sorted(rows), np.float64).reshape(-1, 3).T
    return np.stack([np.cumsum(length), time, score], axis=1)


def _from_progress(folder: Path) -> Points:
    """Reads `[E, 3]` steps, seconds and mean return of each log line."""
    log = read_log(folder)
    columns = ("time/total_timesteps", "time/time_elapsed", "rollout/ep_rew_mean")
    if not log.keys() >= set(columns):
        return np.zeros((0, 3))
    rows = np.stack([log[column] for column in columns], axis=1)
    complete: Points = rows[~np.isnan(rows).any(axis=1)]
    return complete


def read_log(folder: Path) -> dict[str, Points]:
    """Reads the numeric columns of `progress.csv`, each `[L]`, with NaN where a line has no number; empty without the file.

    The last line of a run that goes on or was killed may be incomplete; it is left out.
    """
    path = folder / "progress.csv"
    rows = list(_complete_rows(path)) if path.is_file() else []
    names = list(rows[0]) if rows else []
    columns = {name: np.array([_number(row[name]) for row in rows], np.float64) for name in names}
    return {name: column for name, column in columns.items() if not np.isnan(column).all()}


def _complete_rows(path: Path, skipped: int = 0) -> Iterator[dict[str, str]]:
    """Yields the rows of a CSV file by column, after `skipped` lines; without rows that a killed process cut off."""
    text = path.read_text(encoding="utf-8", errors="replace").replace("\0", "")
    lines = io.StringIO(text[: text.rfind("\n") + 1], newline="")
    for _ in range(skipped):
        lines.readline()
    reader = csv.reader(lines)
    names = next(reader, [])
    for row in reader:
        if len(row) == len(names):
            yield dict(zip(names, row, strict=True))


def _number(text: str) -> float:
    """Returns the number in a cell, or NaN."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def read_evaluations(folder: Path) -> tuple[Points, Points]:
    """Reads env steps `[V]` and returns `[V, n]` of the evaluations; empty arrays if there is no `evaluations.npz`.

    Raises:
        ValueError: the arrays do not fit each other.
    """
    path = folder / "evaluations.npz"
    if not path.is_file():
        return np.zeros(0), np.zeros((0, 1))
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        steps, returns = arrays["timesteps"].astype(np.float64), arrays["results"].astype(np.float64)
    if returns.ndim != 2 or len(returns) != len(steps):
        raise ValueError(f"unexpected shape of evaluations {returns.shape}")
    return steps, returns
