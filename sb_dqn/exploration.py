"""Exploration: who acts greedily and who at random, drawn for each lane by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sb_dqn.schedules import Schedule
from sb_dqn.types import IntArray


class EpsilonGreedy:
    """With probability epsilon a lane acts uniformly at random, else greedily.

    Epsilon never rises again: after a load, or in a second `learn`, it goes on where it was.

    Args:
        schedule: epsilon over env steps.
        num_actions: A.
        num_lanes: B.
        rng: draws of this part alone.
    """

    def __init__(self, schedule: Schedule, num_actions: int, num_lanes: int, rng: np.random.Generator) -> None:
        self.schedule = schedule
        self.num_actions = num_actions
        self.num_lanes = num_lanes
        self.rng = rng
        self.epsilon = schedule(0, 1)

    def advance(self, step: int, horizon: int) -> None:
        self.epsilon = min(self.epsilon, self.schedule(step, horizon))

    def uniform(self) -> IntArray:
        """`[B]` actions at random."""
        return self.rng.integers(self.num_actions, size=self.num_lanes)

    def select(self, greedy: Callable[[], IntArray]) -> IntArray:
        """`[B]` actions; `greedy` is asked only if some lane needs it."""
        explores = self.rng.random(self.num_lanes) < self.epsilon
        explorers = np.count_nonzero(explores)
        if explorers == self.num_lanes:
            return self.uniform()
        best = greedy()
        return np.where(explores, self.uniform(), best) if explorers else best

    def state_dict(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epsilon = state["epsilon"]
