"""A game of a few steps with continuous actions, and quick models of SAC."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from sb_dqn.algorithms import SAC
from tests.tiny import Tiny

QUICK_SAC: dict[str, Any] = {
    "buffer_size": 400,
    "learning_starts": 10,
    "batch_size": 8,
    "learning_rate": 1e-3,
    "policy_kwargs": {"net_arch": [8]},
    "seed": 0,
    "device": "cpu",
}


class Reach(Tiny):
    """Random observations of a kind; the reward is minus the squared distance of the action from a corner of its box."""

    def __init__(
        self, kind: str = "vector", length: int = 5, dtype: Any = np.float32, shape: tuple[int, ...] = (2,)
    ) -> None:
        super().__init__(kind, length)
        low = np.linspace(-3.0, 0.1, int(np.prod(shape))).reshape(shape).astype(dtype)
        self.actions: list[Any] = []
        self.action_space: Any = spaces.Box(
            low, (low + np.arange(1, low.size + 1).reshape(shape)).astype(dtype), dtype=dtype
        )

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(np.asarray(action, self.action_space.dtype)), action
        self.actions.append(np.array(action))
        self.t += 1
        reward = -float(np.square(action - self.action_space.high).sum())
        return self.observation_space.sample(), reward, self.t >= self.length, False, {}


def quick_sac(env: Any = None, policy: Any = "MlpPolicy", **settings: Any) -> SAC:
    """A small model."""
    return SAC(policy, Reach() if env is None else env, **{**QUICK_SAC, **settings})
