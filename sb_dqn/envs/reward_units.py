"""Environments with rewards in another unit, registered with gymnasium as `sb_dqn/ScaledRewards-v0`."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.envs.registration import register
from gymnasium.wrappers import TransformReward

from sb_dqn.types import Env

SCALED_REWARDS = "sb_dqn/ScaledRewards-v0"


def make_scaled_rewards(env_id: str, factor: float, **kwargs: Any) -> Env:
    """Makes the environment `env_id` with its other keywords, whose rewards are multiplied by `factor`."""
    return TransformReward(gymnasium.make(env_id, **kwargs), lambda reward: factor * float(reward))


register(SCALED_REWARDS, f"{__name__}:{make_scaled_rewards.__name__}")
