"""Every episode of a training run, written to the run's `monitor.csv` as Stable-Baselines3's Monitor writes it."""

from __future__ import annotations

import csv
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sb_dqn.callbacks.base import BaseCallback
from sb_dqn.envs.monitor import ResultsWriter

HEADER = 2
"""Lines before the first episode."""


class EpisodeLog(BaseCallback):
    """Return, length and time of each episode of all lanes, in the order in which they end; the score is the raw one.

    Args:
        folder: of the run.
        env_id: for the header.
    """

    def __init__(self, folder: Path, env_id: str) -> None:
        super().__init__()
        self.path, self.env_id = folder / "monitor.csv", env_id
        self._open()

    def _open(self) -> None:
        self._before, self.rows = _earlier(self.path)
        header: dict[str, float | str] = {"t_start": time.time(), "env_id": self.env_id}
        self._writer = ResultsWriter(str(self.path), header, override_existing=False)

    def _on_step(self) -> bool:
        model: Any = self.model
        for episode in model.statistics.finished:
            self._writer.write_row(
                {"r": round(episode.return_, 6), "l": episode.length, "t": round(self._before + episode.time, 6)}
            )
            self.rows += 1
        return True

    def _close(self) -> None:
        self._writer.close()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "rows": self.rows, "before": self._before}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on after as many episodes as there were; those that a run wrote before it was killed come again."""
        super().load_state_dict(state)
        self._writer.close()
        _write(self.path, _lines(self.path)[: HEADER + int(state["rows"])])
        self._open()
        self._before = float(state["before"])


def drop_episodes(path: Path, steps: int) -> None:
    """Drops the last episodes of `monitor.csv`, so that those that stay have `steps` env steps together, or fewer."""
    if not path.is_file():
        return
    lines = _lines(path)
    kept = lines[:HEADER]
    for line in lines[HEADER:]:
        if not line.endswith("\n") or (steps := steps - int(line.split(",")[1])) < 0:
            break
        kept.append(line)
    _write(path, kept)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines(keepends=True)


def _write(path: Path, lines: list[str]) -> None:
    shorter = path.with_name(f"{path.name}.new")
    shorter.write_text("".join(lines), encoding="utf-8")
    shorter.replace(path)


def _earlier(path: Path) -> tuple[float, int]:
    """Of the earlier parts of the run: seconds at which the last episode ended, and the number of episodes."""
    if not path.is_file():
        return 0.0, 0
    with path.open(encoding="utf-8", newline="") as file:
        file.readline()
        times = [float(row["t"] or 0) for row in csv.DictReader(file)]
    return max(times, default=0.0), len(times)
