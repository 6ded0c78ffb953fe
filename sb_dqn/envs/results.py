"""Reading monitor files back, for plots and tables."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sb_dqn.envs.monitor import EXTENSION, read_header
from sb_dqn.errors import ConfigurationError

Results = dict[str, npt.NDArray[np.float64]]


def load_results(path: str | Path) -> Results:
    """All `*monitor.csv` files of a folder as columns, in the order in which the episodes ended.

    Args:
        path: the folder.

    Returns:
        `r` (return), `l` (length in env steps), `t` (seconds since the first file was begun), each `[episodes]`;
        and the further columns that every file has, if numbers. `pandas.DataFrame(load_results(path))` is what
        Stable-Baselines3 returns.

    Raises:
        ConfigurationError: no monitor file there, or one that is none.
    """
    files = sorted(Path(path).glob(f"*{EXTENSION}"))
    if not files:
        raise ConfigurationError(f"no file *{EXTENSION} in {path}; give the folder that was monitor_dir")
    read = [_read(file) for file in files]
    start = min(began for began, _ in read)
    full = [(began, columns) for began, columns in read if len(columns["r"])] or read[:1]
    common = [key for key in full[0][1] if all(key in columns for _, columns in full)]
    joined = {
        key: np.concatenate([columns[key] + (began - start if key == "t" else 0) for began, columns in full])
        for key in common
    }
    order = np.argsort(joined["t"], kind="stable")
    return {key: column[order] for key, column in joined.items()}


def _read(file: Path) -> tuple[float, Results]:
    """When a file was begun, and its columns of numbers."""
    began = float(read_header(file)["t_start"])
    with file.open(newline="") as lines:
        lines.readline()
        try:
            rows = list(csv.DictReader(lines))
            columns = {key: [row[key] for row in rows] for key in (rows[0] if rows else ("r", "l", "t"))}
            basic = {key: np.array(columns[key], np.float64) for key in ("r", "l", "t")}
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{file} is not a monitor file ({error!r}); it lacks r, l or t") from error
    others = {key: _numbers(column) for key, column in columns.items() if key not in basic}
    return began, basic | {key: column for key, column in others.items() if column is not None}


def _numbers(column: list[str]) -> npt.NDArray[np.float64] | None:
    try:
        return np.array(column, np.float64)
    except ValueError:
        return None
