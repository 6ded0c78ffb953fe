"""Episode statistics: returns and lengths per lane, from rows. Scores are raw, and a lost life does not end an episode."""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

import numpy as np

from sb_dqn.checks import check_int
from sb_dqn.errors import CheckpointError
from sb_dqn.types import Rows, Slot, State, any_true


class Episode(NamedTuple):
    """Finished episode."""

    return_: float
    """Undiscounted sum of raw scores."""
    length: int
    """Number of env steps, without reset rows."""
    time: float
    """Seconds since the start of the statistics."""
    lane: int
    """Number of its lane, from 0."""


class EpisodeStatistics:
    """Counters of env steps and episodes, with the results of the last `window` episodes.

    Args:
        num_envs: number of lanes B, >= 1.
        window: number of episodes in the means, >= 1.
    """

    def __init__(self, num_envs: int, window: int = 100) -> None:
        self.num_envs = check_int("num_envs", num_envs, 1)
        self.window = check_int("window", window, 1)
        self.returns = np.zeros(num_envs, np.float64)
        self.lengths = np.zeros(num_envs, np.int64)
        self.ep_info_buffer: deque[dict[str, float]] = deque(maxlen=window)
        """Dicts with `r`, `l` and `t`, as in Stable-Baselines3."""
        self.ep_success_buffer: deque[float] = deque(maxlen=window)
        self.finished: list[Episode] = []
        """Episodes that ended in the latest tick."""
        self.num_steps = 0
        self.num_episodes = 0
        self._start_time = time.time()

    def update(self, rows: Rows) -> list[Episode]:
        """Counts one tick and returns the episodes that ended in it."""
        self.finished = []
        restarted = rows.restarted()
        if restarted is not None:  # the episodes under way are dropped
            self.returns[restarted] = 0
            self.lengths[restarted] = 0
        self.num_steps += rows.steps
        self.lengths += rows.stepped  # `rows.steps` are those of all learners
        for slot in rows.slots:
            self.returns += slot.score if slot.full else np.where(slot.valid, slot.score, 0.0)
            if any_true(slot.last):
                self._finish(slot)
        if self.finished:
            self._record(rows)
            self._successes(rows)
        return self.finished

    def _finish(self, slot: Slot) -> None:
        now = round(time.time() - self._start_time, 6)
        # a lane that is restarted at its reset ends an episode without a step, which does not count
        for lane in np.flatnonzero(slot.last & slot.valid & (self.lengths > 0)).tolist():
            episode = Episode(float(self.returns[lane]), int(self.lengths[lane]), now, lane)
            self.finished.append(episode)
            self.num_episodes += 1
            self.returns[lane] = 0
            self.lengths[lane] = 0

    def _record(self, rows: Rows) -> None:
        """Adds the finished episodes to the window."""
        self.ep_info_buffer.extend(
            {"r": round(episode.return_, 6), "l": episode.length, "t": episode.time} for episode in self.finished
        )

    def _successes(self, rows: Rows) -> None:
        infos = rows.make_infos()
        for episode in self.finished:
            success = infos[episode.lane].get("is_success") if infos else None
            if success is not None:
                self.ep_success_buffer.append(float(success))

    @property
    def mean_return(self) -> float:
        """Mean return over the window; NaN before the first episode."""
        return _mean([info["r"] for info in self.ep_info_buffer])

    @property
    def mean_length(self) -> float:
        """Mean length over the window; NaN before the first episode."""
        return _mean([info["l"] for info in self.ep_info_buffer])

    @property
    def success_rate(self) -> float:
        """Fraction of successes over the window; NaN if no info has `is_success`."""
        return _mean(list(self.ep_success_buffer))

    def state_dict(self) -> State:
        """Returns all counters as plain data."""
        return {
            "returns": self.returns.tolist(),
            "lengths": self.lengths.tolist(),
            "ep_info_buffer": [dict(info) for info in self.ep_info_buffer],
            "ep_success_buffer": list(self.ep_success_buffer),
            "num_steps": self.num_steps,
            "num_episodes": self.num_episodes,
            "elapsed": time.time() - self._start_time,
        }

    def load_state_dict(self, state: State) -> None:
        """Restores a `state_dict`; with another number of lanes the episodes under way are dropped.

        Raises:
            CheckpointError: an entry is missing.
        """
        missing = self.state_dict().keys() - state.keys()
        if missing:
            raise CheckpointError(
                f"episode statistics must have the keys of state_dict(), got none for {sorted(missing)}. Use a state "
                f"from state_dict()."
            )
        same = len(state["returns"]) == self.num_envs
        self.returns[:] = state["returns"] if same else 0.0
        self.lengths[:] = state["lengths"] if same else 0
        self.ep_info_buffer = deque((dict(info) for info in state["ep_info_buffer"]), maxlen=self.ep_info_buffer.maxlen)
        self.ep_success_buffer = deque(state["ep_success_buffer"], maxlen=self.ep_success_buffer.maxlen)
        self.num_steps = int(state["num_steps"])
        self.num_episodes = int(state["num_episodes"])
        self._start_time = time.time() - float(state["elapsed"])
        self.finished = []


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
