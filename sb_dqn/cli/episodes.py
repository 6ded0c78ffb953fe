"""Every episode of a training run, written to the run's `monitor.csv` as Stable-Baselines3's Monitor writes it."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

from sb_dqn.callbacks.base import BaseCallback
from sb_dqn.envs.monitor import ResultsWriter


class EpisodeLog(BaseCallback):
    """Return, length and time of each episode of all lanes, in the order in which they end; the score is the raw one.

    Args:
        folder: of the run.
        env_id: for the header.
    """

    def __init__(self, folder: Path, env_id: str) -> None:
        super().__init__()
        path = folder / "monitor.csv"
        self._before = _latest_time(path)
        self._writer = ResultsWriter(str(path), {"t_start": time.time(), "env_id": env_id}, override_existing=False)

    def _on_step(self) -> bool:
        model: Any = self.model
        for episode in model.statistics.finished:
            self._writer.write_row(
                {"r": round(episode.return_, 6), "l": episode.length, "t": round(self._before + episode.time, 6)}
            )
        return True

    def _close(self) -> None:
        self._writer.close()


def _latest_time(path: Path) -> float:
    """Seconds at which the last episode of an earlier part of the run ended; 0 where there is none."""
    if not path.is_file():
        return 0.0
    with path.open(encoding="utf-8", newline="") as file:
        file.readline()
        return max((float(row["t"]) for row in csv.DictReader(file)), default=0.0)
