"""A game whose rows tell which episode and step they belong to, with faults on demand and a state for checkpoints."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTHS = (3, 7, 1, 12, 5)
FAULTS: dict[str, Callable[[], None]] = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "raises": lambda: (_ for _ in ()).throw(ValueError("the door is locked")),
    "hangs": lambda: time.sleep(1000),
}


class Ledger(gymnasium.Env[Any, Any]):
    """Observations `(episode's number drawn at its reset, step)`; the reward of an action is `action + 10 * step`.

    Args:
        fault: what happens at step `at` of a lane, once for each file name in `marker` that does not exist yet.
        marker: file that notes that it has happened; None: it happens each time.
        pause: seconds per step.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self, fault: str = "", at: int = 20, marker: str | None = None, pause: float = 0.0) -> None:
        self.action_space = spaces.Discrete(3)
        self.fault, self.at, self.marker, self.pause = fault, at, marker, pause
        self.steps = 0
        if fault == "memory" and self._first_time():
            raise MemoryError("no room for another environment")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode = int(self.np_random.integers(1_000_000))
        self.t = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self.steps += 1
        if self.pause:
            time.sleep(self.pause)
        if self.fault in FAULTS and self.steps == self.at and self._first_time():
            FAULTS[self.fault]()
        ended = self.t >= LENGTHS[self.episode % len(LENGTHS)]
        truncated = ended and self.episode % 2 == 0
        info = {"is_success": self.episode % 3 == 0} if ended else {}
        return self._observation(), float(action) + 10.0 * self.t, ended and not truncated, truncated, info

    def _first_time(self) -> bool:
        if self.marker is None:
            return True
        try:
            Path(self.marker).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _observation(self) -> Any:
        return np.array([self.episode, self.t], np.float32)

    def state_dict(self) -> dict[str, Any]:
        return {"episode": self.episode, "t": self.t, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.episode, self.t, self.steps = state["episode"], state["t"], state["steps"]


class Masked(Ledger):
    """The same game with two branches of actions, of which one choice is illegal at each step."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**info, "action_mask": self._mask()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self._mask()[action[0]]
        assert self._mask()[3 + action[1]]
        observation, reward, terminated, truncated, info = super().step(action[0] + action[1])
        return observation, reward, terminated, truncated, {**info, "action_mask": self._mask()}

    def _mask(self) -> Any:
        legal = np.ones(5, np.int8)
        legal[(self.t + self.episode) % 5] = 0
        return legal


def check_rows(ring: Any) -> tuple[int, int]:
    """Reads every stored row of every lane against the rules of the game; returns rows and truncated rows that no rule asks for."""
    cuts = count = 0
    columns = {name: column.numpy() for name, column in ring.columns.items()}
    for lane in range(ring.num_lanes):
        stored = min(int(ring.cursor[lane]), ring.rows)
        cells = [
            row % ring.rows * ring.num_lanes + lane for row in range(ring.cursor[lane] - stored, ring.cursor[lane])
        ]
        for before, after in pairwise(cells):
            episode, step = columns["obs/obs"][before]
            ended = step >= LENGTHS[int(episode) % len(LENGTHS)]
            if columns["last"][before]:
                assert columns["obs/obs"][after][1] == 0.0
                assert columns["reward"][after] == 0.0
                assert columns["terminal"][before] == (ended and episode % 2 == 1)
                cuts += not ended
            else:
                assert not ended
                assert columns["obs/obs"][after].tolist() == [episode, step + 1]
                assert columns["reward"][after] == columns["action"][before] + 10.0 * (step + 1)
            count += 1
    return count, cuts
