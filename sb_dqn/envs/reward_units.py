"""Environments with rewards in another unit, registered with gymnasium as `sb_dqn/ScaledRewards-v0`."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.envs.registration import register

from sb_dqn.types import Env

SCALED_REWARDS = "sb_dqn/ScaledRewards-v0"


class ScaledRewards(gymnasium.RewardWrapper[Any, Any]):
    """Multiplies rewards by a factor, which changes the unit of the returns and not what is best to do.

    Args:
        env: environment.
        factor: factor of the rewards, > 0.
    """

    def __init__(self, env: Env, factor: float) -> None:
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> float:
        return float(reward) * self.factor


def make_scaled_rewards(env_id: str, factor: float, **kwargs: Any) -> Env:
    """Makes the environment `env_id` with its other keywords, whose rewards are multiplied by `factor`."""
    return ScaledRewards(gymnasium.make(env_id, **kwargs), factor)


if SCALED_REWARDS not in gymnasium.registry:
    register(SCALED_REWARDS, f"{__name__}:{make_scaled_rewards.__name__}")
