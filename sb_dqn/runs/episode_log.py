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


class EpisodeLog(BaseCallback):
    """Callback that logs raw return, length and end time of each episode of all lanes, in the order in which they end."""

    def __init__(self, folder: Path, env_id: str) -> None:
        super().__init__()
        self.path = folder / "monitor.csv"
        self.env_id = env_id
        self._open()

    def _open(self) -> None:
        self._earlier_seconds, self.rows = _logged_so_far(self.path)
        header: dict[str, float | str] = {"t_start": time.time(), "env_id": self.env_id}
        self._writer = ResultsWriter(str(self.path), header, override_existing=False)

    def _on_step(self) -> bool:
        model: Any = self.model
        for episode in model.statistics.finished:
            row = {
                "r": round(episode.return_, 6),
                "l": episode.length,
                "t": round(self._earlier_seconds + episode.time, 6),
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
    """Drops the last episodes of `monitor.csv`, so that the others have at most `steps` env steps in total."""
    if not path.is_file():
        return
    lines = _lines(path)
    kept = lines[:HEADER]
    for line in lines[HEADER:]:
        if not line.endswith("\n") or (steps := steps - int(line.split(",")[1])) < 0:
            break
        kept.append(line)
    write_text(path, "".join(kept))


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
