"""An environment whose state is restored goes on as the one whose state was read."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import sb_dqn.envs.make  # noqa: F401  # registers `sb_dqn/...`
from sb_dqn.envs.vector.env_state import layers_state, load_layers_state

NAMES = (
    "Acrobot", "CartPole", "MountainCar", "MountainCarContinuous", "Pendulum", "CliffWalking", "FrozenLake", "Taxi", "sb_dqn/BitFlip",
    "sb_dqn/CartPoleNoVelocity", "sb_dqn/ScaledRewards", "sb_dqn/TMaze",
)  # fmt: skip


def played(env: Any, actions: list[Any]) -> list[Any]:
    """The observations and results of the actions; an episode that ends is followed by the next."""
    found = []
    for action in actions:
        observation, *results, _ = env.step(action)
        found.append((observation, results))
        if any(results[1:]):
            found.append((env.reset()[0], []))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_restored_environment_goes_on_alike(name: str) -> None:
    env_id = max(
        known for known in gymnasium.registry if known.startswith(f"{name}-v")
    )  # versions differ between gymnasiums
    kwargs: dict[str, Any] = {"env_id": "CartPole-v1", "factor": 2} if "Scaled" in name else {}
    one, other = (gymnasium.make(env_id, **kwargs) for _ in range(2))
    one.action_space.seed(0)
    actions = [one.action_space.sample() for _ in range(90)]
    one.reset(seed=1)
    other.reset(seed=2)
    played(one, actions[:30])
    load_layers_state(other, layers_state(one))
    np.testing.assert_equal(played(other, actions[30:]), played(one, actions[30:]))
