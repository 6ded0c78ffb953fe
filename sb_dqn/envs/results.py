"""`load_results`: monitor files as arrays, for plots and tables."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sb_dqn.envs.monitor import EXTENSION, read_header
from sb_dqn.errors import ConfigurationError

Results = dict[str, npt.NDArray[np.float64]]


def load_results(path: str | Path) -> Results:
    """Loads all `*monitor.csv` files of a folder as columns, in the order in which the episodes ended.

    Args:
        path: the folder.

    Returns:
        `r` (return), `l` (length in env steps), `t` (seconds since the start of the first file), each `[episodes]`, and the
        other numeric columns that every file has. `pandas.DataFrame(load_results(path))` is what Stable-Baselines3 returns.

    Raises:
        ConfigurationError: the folder has no monitor file, or a file with another content.
    """
    files = sorted(Path(path).glob(f"*{EXTENSION}"))
    if not files:
        raise ConfigurationError(
            f"path must be a folder with *{EXTENSION} files, got {path}. Pass the monitor_dir of the run."
        )
    tables = [_read(file) for file in files]
    first_start = min(start for start, _ in tables)
    nonempty = [(start, columns) for start, columns in tables if len(columns["r"])] or tables[:1]
    common = [key for key in nonempty[0][1] if all(key in columns for _, columns in nonempty)]
    joined = {
        key: np.concatenate([columns[key] + (start - first_start if key == "t" else 0) for start, columns in nonempty])
        for key in common
    }
    order = np.argsort(joined["t"], kind="stable")
    return {key: column[order] for key, column in joined.items()}


def _read(file: Path) -> tuple[float, Results]:
    """Returns the start time of a file in seconds since 1970, and its numeric columns."""
    start = float(read_header(file)["t_start"])
    with file.open(newline="") as lines:
        lines.readline()
        try:
            rows = list(csv.DictReader(lines))
            columns = {key: [row[key] for row in rows] for key in (rows[0] if rows else ("r", "l", "t"))}
            basic = {key: np.array(columns[key], np.float64) for key in ("r", "l", "t")}
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"a monitor file must have the numeric columns r, l and t, got {error!r} in {file}. Delete or move the file."
            ) from error
    others = {key: _numbers(column) for key, column in columns.items() if key not in basic}
    return start, basic | {key: column for key, column in others.items() if column is not None}


def _numbers(column: list[str]) -> npt.NDArray[np.float64] | None:
    try:
        return np.array(column, np.float64)
    except ValueError:
        return None
