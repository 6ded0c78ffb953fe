"""Rewards in another unit: values by classification with the automatic range learn the same, regression does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sb_dqn
from sb_dqn import make_vec_env
from tests.marks import SLOW

REPLAY: dict[str, Any] = {"learning_starts": 20, "train_freq": 1, "batch_size": 16}
SYMLOG = {"kind": "two_hot", "transform": "symlog"}


def weights(algorithm: str, factor: float, settings: dict[str, Any]) -> torch.Tensor:
    """Returns the weights after 400 env steps of CartPole with rewards of `factor`."""
    env = make_vec_env("sb_dqn/ScaledRewards-v0", 1, env_kwargs={"env_id": "CartPole-v1", "factor": factor})
    model = getattr(sb_dqn, algorithm)("MlpPolicy", env, seed=0, device="cpu", **settings)
    model.learn(400)
    return torch.cat([parameter.detach().flatten() for parameter in model.policy.parameters()])


@SLOW
@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("DQN", {"value_loss": "hl_gauss", **REPLAY}),
        ("DQN", {"value_loss": SYMLOG, **REPLAY}),
        ("CategoricalDQN", {"v_min": None, "v_max": None, **REPLAY}),
        ("PPO", {"value_loss": True, "n_steps": 64}),
        ("PQN", {"value_loss": True, "n_steps": 32}),
    ],
)
def test_classification_learns_the_same_in_any_unit(algorithm: str, settings: dict[str, Any]) -> None:
    """A power of two changes no digit of a number, so that only the epsilon under the root of the variance differs."""
    torch.testing.assert_close(
        weights(algorithm, 1024.0, settings), weights(algorithm, 1.0, settings), atol=1e-5, rtol=0
    )


@SLOW
def test_regression_learns_something_else_in_another_unit() -> None:
    assert (weights("DQN", 1024.0, REPLAY) - weights("DQN", 1.0, REPLAY)).abs().max() > 0.01
