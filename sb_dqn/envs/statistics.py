"""Returns and lengths of episodes, lane by lane, from the rows alone. Scores are raw, and a lost life ends nothing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sb_dqn.envs.streams.helpers import some
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.types import Rows, Slot


class Episode(NamedTuple):
    """A finished episode."""

    return_: float
    """Undiscounted sum of raw scores."""
    length: int
    """Env steps, reset rows excluded."""
    time: float
    """Seconds since the statistics began."""
    lane: int


class EpisodeStatistics:
    """Counts env steps and episodes and keeps the last `window` of them.

    Args:
        num_envs: lanes B.
        window: episodes kept for the means.
    """

    def __init__(self, num_envs: int, window: int = 100) -> None:
        if num_envs < 1 or window < 1:
            raise ConfigurationError(f"num_envs={num_envs}, window={window}; allowed: integers of at least 1")
        self.num_envs, self.window = num_envs, window
        self.returns = np.zeros(num_envs, np.float64)
        self.lengths = np.zeros(num_envs, np.int64)
        self.ep_info_buffer: deque[dict[str, float]] = deque(maxlen=window)
        """Dicts with `r`, `l` and `t`, as in Stable-Baselines3."""
        self.ep_success_buffer: deque[float] = deque(maxlen=window)
        self.finished: list[Episode] = []
        """Episodes that ended in this tick."""
        self.num_steps = 0
        self.num_episodes = 0
        self._began = time.time()

    def update(self, rows: Rows) -> list[Episode]:
        """Counts one tick and returns the episodes that ended in it."""
        self.finished = []
        if rows.action is None:  # a stream that begins anew: what was under way has no end to be counted
            self.returns[:] = 0
            self.lengths[:] = 0
        self.num_steps += rows.steps
        self.lengths += 1 if rows.steps == self.num_envs else rows.stepped
        for slot in rows.slots:
            self.returns += slot.score if slot.full else np.where(slot.valid, slot.score, 0.0)
            if some(slot.last):
                self._finish(slot)
        if self.finished:
            self._successes(rows)
        return self.finished

    def _finish(self, slot: Slot) -> None:
        now = round(time.time() - self._began, 6)
        # a lane that is made anew when it was to be reset ends an episode that has had no step
        for lane in np.flatnonzero(slot.last & slot.valid & (self.lengths > 0)).tolist():
            episode = Episode(float(self.returns[lane]), int(self.lengths[lane]), now, lane)
            self.finished.append(episode)
            self.ep_info_buffer.append({"r": round(episode.return_, 6), "l": episode.length, "t": now})
            self.num_episodes += 1
            self.returns[lane] = self.lengths[lane] = 0

    def _successes(self, rows: Rows) -> None:
        infos = rows.make_infos()
        for episode in self.finished:
            success = infos[episode.lane].get("is_success") if infos else None
            if success is not None:
                self.ep_success_buffer.append(float(success))

    @property
    def mean_return(self) -> float:
        """Mean return over the window, NaN before the first episode."""
        return _mean([info["r"] for info in self.ep_info_buffer])

    @property
    def mean_length(self) -> float:
        """Mean length over the window, NaN before the first episode."""
        return _mean([info["l"] for info in self.ep_info_buffer])

    @property
    def success_rate(self) -> float:
        """Share of successes over the window, NaN where no env reports any."""
        return _mean(list(self.ep_success_buffer))

    def state_dict(self) -> dict[str, Any]:
        """Everything that is counted, as plain data."""
        return {
            "returns": self.returns.tolist(),
            "lengths": self.lengths.tolist(),
            "ep_info_buffer": [dict(info) for info in self.ep_info_buffer],
            "ep_success_buffer": list(self.ep_success_buffer),
            "num_steps": self.num_steps,
            "num_episodes": self.num_episodes,
            "elapsed": time.time() - self._began,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state_dict`; with another number of lanes the episodes under way are dropped.

        Raises:
            CheckpointError: an entry is missing.
        """
        missing = self.state_dict().keys() - state.keys()
        if missing:
            raise CheckpointError(f"episode statistics lack {sorted(missing)}; the state was written by something else")
        same = len(state["returns"]) == self.num_envs
        self.returns[:] = state["returns"] if same else 0.0
        self.lengths[:] = state["lengths"] if same else 0
        self.ep_info_buffer = deque((dict(info) for info in state["ep_info_buffer"]), maxlen=self.ep_info_buffer.maxlen)
        self.ep_success_buffer = deque(state["ep_success_buffer"], maxlen=self.ep_success_buffer.maxlen)
        self.num_steps, self.num_episodes = int(state["num_steps"]), int(state["num_episodes"])
        self._began = time.time() - float(state["elapsed"])
        self.finished = []


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
