"""Two states in which taking a time limit for a termination gives provably wrong values: learned Q against exact Q."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from sb_dqn.algorithms import DQN
from tests.marks import SLOW, a_few

GAMMA, LIMIT = 0.9, 5
STAY, SWITCH = 0, 1
REWARD = {0: 1.0, 1: 2.0}
"""For staying; switching is worth nothing by itself."""


class TwoStates(gymnasium.Env[Any, Any]):
    """Stay or switch; it never ends. Staying in state 1 is worth twice as much as staying in state 0."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def __init__(self, indifferent: bool = False, ends: bool = False) -> None:
        self.indifferent, self.ends = indifferent, ends

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.state = 0, int(self.np_random.integers(2))
        return self.state, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        if self.indifferent:  # state and reward go their way whatever is done
            reward, self.state = REWARD[self.state], 1 - self.state
        elif action == STAY:
            reward = REWARD[self.state]
        else:
            reward, self.state = 0.0, 1 - self.state
        return self.state, reward, self.ends and self.t == LIMIT, False, {}


# Q(1, stay) = 2 / (1 - g); Q(0, switch) = g Q(1, stay); Q(0, stay) = 1 + g Q(0, switch); Q(1, switch) = g Q(0, switch)
EXACT = np.array([[17.2, 18.0], [20.0, 16.2]])
# indifferent: Q(0) = 1 + g Q(1), Q(1) = 2 + g Q(0)
INDIFFERENT = np.array([[2.8 / 0.19] * 2, [2.9 / 0.19] * 2])


def make(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    env = TwoStates(**kwargs)
    return env if kwargs.get("ends") else TimeLimit(env, LIMIT)


def envs(kind: str, count: int, **kwargs: Any) -> Any:
    makes: list[Any] = [partial(make, **kwargs)] * count
    if kind == "lanes":
        return makes
    if kind == "VecEnv":
        from stable_baselines3.common.vec_env import DummyVecEnv

        return DummyVecEnv(makes)
    return SyncVectorEnv(makes, autoreset_mode=AutoresetMode[kind])


def learned(env: Any, **kwargs: Any) -> np.ndarray[Any, Any]:
    """Q of both states, by a linear net on one-hot observations: a table."""
    settings: dict[str, Any] = {
        "learning_rate": "linear 0.5 0.02", "buffer_size": 2000, "learning_starts": 100, "batch_size": 64, "gamma": GAMMA,
        "train_freq": 1, "target_update_interval": 12, "exploration_initial_eps": 1.0, "exploration_final_eps": 1.0,
        "max_grad_norm": None, "loss": "mse", "policy_kwargs": {"net_arch": []}, "seed": 0, "device": "cpu",
    }  # fmt: skip
    model = DQN("MlpPolicy", env, **{**settings, **kwargs})
    model.learn(1200)
    with torch.no_grad():
        q: torch.Tensor = model.policy.q_net({"obs": torch.tensor([0, 1])}).q
    return q.numpy()


def error(found: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]) -> float:
    return float(np.abs(found / exact - 1).max())


@pytest.mark.parametrize(
    ("kind", "count"),
    a_few(
        [("lanes", 1), ("lanes", 3), ("NEXT_STEP", 2), ("SAME_STEP", 2), ("VecEnv", 2)], ("lanes", 3), ("SAME_STEP", 2)
    ),
)
def test_two_actions(kind: str, count: int) -> None:
    assert error(learned(envs(kind, count)), EXACT) < 0.02


@SLOW
@pytest.mark.parametrize("double_q", a_few([False, True], True))
def test_soft_targets_and_double_q(double_q: bool) -> None:
    found = learned(envs("lanes", 1), double_q=double_q, tau=0.05, target_update_interval=1)
    assert error(found, EXACT) < 0.02


@pytest.mark.parametrize("kind", a_few(["lanes", "NEXT_STEP", "SAME_STEP", "VecEnv"], "lanes", "SAME_STEP"))
@pytest.mark.parametrize("n_steps", a_few([3, 7], 3))  # 7 is more than an episode has: every window is cut
def test_windows_that_are_cut(kind: str, n_steps: int) -> None:
    found = learned(envs(kind, 2, indifferent=True), n_steps=n_steps)
    assert error(found, INDIFFERENT) < 0.02


@SLOW
@pytest.mark.parametrize("n_steps", [1, 3])
def test_a_real_termination_is_worth_far_less(n_steps: int) -> None:
    # the same games, ended where the time limit was: at most 2 + 2g + 2g^2 + 2g^3 + 2g^4 = 8.19
    found = learned(envs("lanes", 2, indifferent=True, ends=True), n_steps=n_steps)
    assert found.max() < 8.19
    assert error(found, INDIFFERENT) > 0.4


def test_exact_values_solve_their_equations() -> None:
    best = EXACT.max(1)
    assert (
        pytest.approx(np.array([[1 + GAMMA * best[0], GAMMA * best[1]], [2 + GAMMA * best[1], GAMMA * best[0]]]))
        == EXACT
    )
    q0, q1 = INDIFFERENT[:, 0]
    assert (q0, q1) == pytest.approx((1 + GAMMA * q1, 2 + GAMMA * q0))
