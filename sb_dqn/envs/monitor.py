"""Monitor files in the format of Stable-Baselines3 (a JSON header, then return, length and time of each episode), and their arrays."""

from __future__ import annotations

import contextlib
import csv
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from sb_dqn.checks import check_names
from sb_dqn.errors import ConfigurationError, explained
from sb_dqn.types import Env, Info, ResetResult, State, StepResult

EXTENSION = "monitor.csv"


class ResultsWriter:
    """Writer of a `*.monitor.csv` file, flushed after every episode.

    Args:
        filename: a folder, or a file name; `.monitor.csv` is added if missing.
        header: content of the first line (`t_start` in seconds since 1970, `env_id`).
        extra_keys: columns after r, l and t.
        override_existing: True starts a new file, False appends to an existing one.

    Attributes:
        header: content of the file's first line.

    Raises:
        ConfigurationError: the file cannot be written, or is no monitor file to append to.
    """

    def __init__(
        self,
        filename: str,
        header: Mapping[str, float | str],
        extra_keys: tuple[str, ...] = (),
        override_existing: bool = True,
    ) -> None:
        path = _path_of(filename)
        fresh = override_existing or not path.exists()
        columns = ("r", "l", "t", *extra_keys)
        self.header = dict(header) if fresh else read_header(path)
        if not fresh and (present := _columns(path)) != columns:
            raise ConfigurationError(
                f"columns must be those of the monitor file to append to, {present}, got {columns}. Pass the same keywords, or "
                f"another file name."
            )
        with explained(f"the monitor file {path}", "in a writable folder", "Choose another folder."):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w" if fresh else "a", newline="\n")
            self._writer = csv.DictWriter(self._file, fieldnames=columns)
            if fresh:
                self._file.write(f"#{json.dumps(dict(header))}\n")
                self._writer.writeheader()
            self._file.flush()
        self.path = path

    def write_row(self, row: Mapping[str, object]) -> None:
        """Writes one episode."""
        self._writer.writerow(row)
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _columns(path: Path) -> tuple[str, ...]:
    """Returns the names of the columns of a monitor file."""
    with path.open(newline="") as lines:
        lines.readline()
        return tuple(next(csv.reader(lines), ()))


def _path_of(filename: str) -> Path:
    path = Path(filename)
    if path.name.endswith(EXTENSION):
        return path
    return path / EXTENSION if path.is_dir() else path.with_name(f"{path.name}.{EXTENSION}")


@contextlib.contextmanager
def replaced_monitor_files(filenames: Iterable[str]) -> Iterator[None]:
    """Renames existing files of these names, so that writers start new ones; restores them if the block raises."""
    backups: dict[Path, Path] = {}
    for filename in filenames:
        path = _path_of(filename)
        with contextlib.suppress(OSError):  # the writer raises a clear error
            backups[path] = path.replace(path.with_name(f"{path.name}.before"))
    try:
        yield
    except BaseException:
        for path, backup in backups.items():
            backup.replace(path)
        raise
    for backup in backups.values():
        backup.unlink()


def read_header(path: Path) -> dict[str, Any]:
    """Returns the header in the first line of a monitor file.

    Raises:
        ConfigurationError: the file is no monitor file.
    """
    with path.open(newline="") as lines:
        try:
            header: dict[str, Any] = json.loads(lines.readline().removeprefix("#"))
            return {**header, "t_start": float(header["t_start"])}
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"the first line of a monitor file must be #{{json}} with t_start, got {error!r} in {path}. Delete or move the file."
            ) from error


class Monitor(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that records return, length and time of each episode and adds them as `info["episode"]`.

    Args:
        env: environment to record.
        filename: name of the `*.monitor.csv` file; None writes none.
        allow_early_resets: True allows `reset` in mid-episode.
        reset_keywords: recorded keyword arguments of `reset`.
        info_keywords: recorded entries of an episode's last info.
        override_existing: True starts a new file, False appends to an existing one.

    Raises:
        ConfigurationError: keywords that are no list of names, or a file that cannot be written.
    """

    def __init__(
        self,
        env: Env,
        filename: str | None = None,
        allow_early_resets: bool = True,
        reset_keywords: Sequence[str] = (),
        info_keywords: Sequence[str] = (),
        override_existing: bool = True,
    ) -> None:
        super().__init__(env)
        self.t_start = time.time()
        self.allow_early_resets = allow_early_resets
        self.reset_keywords = check_names("reset_keywords", reset_keywords)
        self.info_keywords = check_names("info_keywords", info_keywords)
        self.results_writer: ResultsWriter | None = None
        if filename is not None:
            header: dict[str, float | str] = {
                "t_start": self.t_start,
                "env_id": str(env.spec.id if env.spec is not None else None),
            }
            self.results_writer = ResultsWriter(
                filename, header, self.reset_keywords + self.info_keywords, override_existing
            )
            self.t_start = float(self.results_writer.header["t_start"])  # one time origin per file
        self.rewards: list[float] = []
        self.needs_reset = True
        self.total_steps = 0
        self._episodes: list[tuple[float, int, float]] = []
        self._reset_info: Info = {}

    def reset(self, **kwargs: Any) -> ResetResult:
        """Starts an episode.

        Raises:
            RuntimeError: in mid-episode without `allow_early_resets`.
            ConfigurationError: a keyword of `reset_keywords` is missing.
        """
        if not self.allow_early_resets and not self.needs_reset:
            raise RuntimeError(
                "reset() must follow the end of an episode, got it in mid-episode. Finish the episode, or make the Monitor with "
                "allow_early_resets=True."
            )
        self.rewards = []
        self.needs_reset = False
        for key in self.reset_keywords:
            if kwargs.get(key) is None:
                raise ConfigurationError(
                    f"arguments of reset() must include reset_keywords={self.reset_keywords}, got none for {key!r}. Pass it, or "
                    f"remove it from reset_keywords."
                )
            self._reset_info[key] = kwargs[key]
        return self.env.reset(**kwargs)

    def step(self, action: object) -> StepResult:
        """Takes one step.

        Raises:
            RuntimeError: the episode is over.
        """
        if self.needs_reset:
            raise RuntimeError(
                "step() must follow reset(), got step() after the end of an episode. Call reset() first."
            )
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.rewards.append(float(reward))
        self.total_steps += 1
        if terminated or truncated:
            self.needs_reset = True
            info["episode"] = self._finish(info)
        return observation, reward, terminated, truncated, info

    def _finish(self, info: Info) -> Info:
        return_, length, elapsed = sum(self.rewards), len(self.rewards), time.time() - self.t_start
        self._episodes.append((return_, length, elapsed))
        row: dict[str, Any] = {"r": round(return_, 6), "l": length, "t": round(elapsed, 6)}
        for key in self.info_keywords:
            if key not in info:
                raise ConfigurationError(
                    f"info_keywords must be keys of an episode's last info, {sorted(info)}, got {key!r}. Remove it."
                )
            row[key] = info[key]
        row.update(self._reset_info)
        if self.results_writer is not None:
            self.results_writer.write_row(row)
        return row

    def close(self) -> None:
        """Closes env and file."""
        super().close()
        if self.results_writer is not None:
            self.results_writer.close()

    def state_dict(self) -> State:
        """Returns the state of the episode under way."""
        return {"rewards": np.array(self.rewards), "needs_reset": self.needs_reset, "total_steps": self.total_steps}

    def load_state_dict(self, state: State) -> None:
        """Restores the episode under way; the file is not changed."""
        self.rewards = np.asarray(state["rewards"]).tolist()
        self.needs_reset = bool(state["needs_reset"])
        self.total_steps = int(state["total_steps"])

    def get_total_steps(self) -> int:
        """Returns the number of steps of all episodes."""
        return self.total_steps

    def get_episode_rewards(self) -> list[float]:
        """Returns the undiscounted returns of all finished episodes."""
        return [episode[0] for episode in self._episodes]

    def get_episode_lengths(self) -> list[int]:
        """Returns the lengths of all finished episodes."""
        return [episode[1] for episode in self._episodes]

    def get_episode_times(self) -> list[float]:
        """Returns the seconds from the start of the file to the end of each finished episode."""
        return [episode[2] for episode in self._episodes]


Results = dict[str, npt.NDArray[np.float64]]
FLAGS = {"True": 1.0, "False": 0.0}


def load_results(path: str | Path) -> Results:
    """Loads all `*monitor.csv` files of a folder as columns, in the order in which the episodes ended.

    Args:
        path: the folder.

    Returns:
        `r` (return), `l` (length in env steps), `t` (seconds since the start of the first file), each `[episodes]`, and the
        other numeric columns that every file has, with 1 for True and 0 for False. `pandas.DataFrame(load_results(path))` is what
        Stable-Baselines3 returns.

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
        return np.array([FLAGS.get(entry, entry) for entry in column], np.float64)
    except ValueError:
        return None
