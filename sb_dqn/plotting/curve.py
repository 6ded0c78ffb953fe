"""Learning curve of a run, read from the files in its folder."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """Learning curve of a run; episodes in the order in which they ended."""

    steps: Points
    """`[E]` environment steps over all lanes at the end of each episode."""
    seconds: Points
    """`[E]` seconds since the start of the run at the end of each episode."""
    returns: Points
    """`[E]` undiscounted sum of the raw rewards of each episode."""
    lengths: Points
    """`[E]` environment steps of each episode."""
    eval_steps: Points
    """`[V]` environment steps at each evaluation."""
    eval_returns: Points
    """`[V, n]` returns of the episodes of each evaluation."""


def read_curve(folder: Path) -> Curve:
    """Reads episodes from `*.monitor.csv`, or else their means from `progress.csv`, and evaluations from `evaluations.npz`."""
    episodes = _from_monitors(folder)
    if not len(episodes):
        episodes = _from_progress(folder)
    steps, seconds, returns, lengths = episodes.T
    return Curve(steps, seconds, returns, lengths, *read_evaluations(folder))


def _from_monitors(folder: Path) -> Points:
    """Reads `[E, 4]` steps, seconds, return and length of each episode; merges the files of the lanes by time."""
    rows: list[tuple[float, float, float, float]] = []  # time, steps, length, return
    for path in sorted(folder.glob("*monitor.csv")):
        header = 1  # a JSON line with t_start and env_id
        for row in _complete_rows(path, header):
            rows.append((float(row["t"]), float(row.get("steps", 0)), float(row["l"]), float(row["r"])))
    time, steps, length, score = np.array(sorted(rows), np.float64).reshape(-1, 4).T
    if not steps.all():  # other logs: close to it, without the steps of episodes that had not ended
        steps = np.cumsum(length)
    return np.stack([steps, time, score, length], axis=1)


def _from_progress(folder: Path) -> Points:
    """Reads `[E, 4]` steps, seconds, mean return and mean length of each log line."""
    log = read_log(folder)
    columns = ("time/total_timesteps", "time/time_elapsed", "rollout/ep_rew_mean")
    if not log.keys() >= set(columns):
        return np.zeros((0, 4))
    lengths = log.get("rollout/ep_len_mean", np.full(len(log[columns[0]]), np.nan))
    rows = np.stack([*(log[column] for column in columns), lengths], axis=1)
    complete: Points = rows[~np.isnan(rows[:, :3]).any(axis=1)]
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


def read_evaluations(folder: str | Path) -> tuple[Points, Points]:
    """Reads env steps `[V]` and returns `[V, n]` of the evaluations; empty arrays if there is no `evaluations.npz`.

    Raises:
        ValueError: the arrays do not fit each other.
    """
    path = Path(folder) / "evaluations.npz"
    if not path.is_file():
        return np.zeros(0), np.zeros((0, 1))
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        steps, returns = arrays["timesteps"].astype(np.float64), arrays["results"].astype(np.float64)
    if returns.ndim != 2 or len(returns) != len(steps):
        raise ValueError(f"unexpected shape of evaluations {returns.shape}")
    return steps, returns
