"""Episode log of a training run: `monitor.csv` in the format of Stable-Baselines3's Monitor."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

from sb_dqn.callbacks.base import BaseCallback
from sb_dqn.envs.monitor import ResultsWriter
from sb_dqn.files import write_text
from sb_dqn.types import State

HEADER = 2
"""Number of lines before the first episode."""
STEPS = "steps"
"""Column with the env steps over all lanes at the end of the episode."""


class EpisodeLog(BaseCallback):
    """Callback that logs raw return, length, end time and env steps so far of each episode of all lanes, as they end.

    A log of an earlier version goes on without the steps.
    """

    def __init__(self, folder: Path, env_id: str) -> None:
        super().__init__()
        self.path = folder / "monitor.csv"
        self.env_id = env_id
        self._open()

    def _open(self) -> None:
        self._earlier_seconds, self.rows = _logged_so_far(self.path)
        header: dict[str, float | str] = {"t_start": time.time(), "env_id": self.env_id}
        self._extra = _extra_columns(self.path)
        self._writer = ResultsWriter(str(self.path), header, self._extra, override_existing=False)

    def _on_step(self) -> bool:
        model: Any = self.model
        for episode in model.statistics.finished:
            row = {
                "r": round(episode.return_, 6),
                "l": episode.length,
                "t": round(self._earlier_seconds + episode.time, 6),
                **dict.fromkeys(self._extra, model.num_timesteps),
            }
            with self._training_continues("monitor.csv"):
                self._writer.write_row(row)
            self.rows += 1
        return True

    def _close(self) -> None:
        with self._training_continues("monitor.csv"):
            self._writer.close()

    def state_dict(self) -> State:
        return {**super().state_dict(), "rows": self.rows, "before": self._earlier_seconds}

    def load_state_dict(self, state: State) -> None:
        """Truncates the log to the episodes of the state; later ones of a killed run are played again."""
        super().load_state_dict(state)
        self._writer.close()
        write_text(self.path, "".join(_lines(self.path)[: HEADER + int(state["rows"])]))
        self._open()
        self._earlier_seconds = float(state["before"])


def drop_episodes(path: Path, steps: int) -> None:
    """Drops the episodes of `monitor.csv` that ended after `steps` env steps; by the sum of lengths in an old log without steps."""
    if not path.is_file():
        return
    lines = _lines(path)
    kept, total = lines[:HEADER], 0
    known = bool(_extra_columns(path))
    for line in lines[HEADER:]:
        if not line.endswith("\n"):
            break
        total = int(line.split(",")[3]) if known else total + int(line.split(",")[1])
        if total > steps:
            break
        kept.append(line)
    write_text(path, "".join(kept))


def _extra_columns(path: Path) -> tuple[str, ...]:
    """Returns the names of the columns after those of every monitor file."""
    lines = _lines(path) if path.is_file() else []
    return tuple(lines[HEADER - 1].strip().split(",")[3:]) if len(lines) >= HEADER else (STEPS,)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines(keepends=True)


def _logged_so_far(path: Path) -> tuple[float, int]:
    """Returns the end time of the last logged episode in seconds, and the number of logged episodes."""
    if not path.is_file():
        return 0.0, 0
    with path.open(encoding="utf-8", newline="") as file:
        file.readline()
        times = [float(row["t"] or 0) for row in csv.DictReader(file)]
    return max(times, default=0.0), len(times)
