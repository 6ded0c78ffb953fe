"""Games of a few steps for tests of whole algorithms: every observation kind, faults on demand, known values."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sb_dqn.algorithms import ALGORITHMS, DQN, R2D2, SAC
from sb_dqn.algorithms.r2d2 import REPLACED_ARGUMENTS
from sb_dqn.core.actor_critic_algorithm import ActorCriticAlgorithm
from sb_dqn.core.arguments import constructor_arguments

SMALL_CNN: dict[str, Any] = {"features_dim": 16, "channels": (4, 8), "kernels": (4, 3), "strides": (2, 1)}
PLACE = spaces.Box(-np.inf, np.inf, (2,), np.float32)
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "vector": PLACE,
    "matrix": spaces.Box(-1, 1, (2, 3), np.float64),
    "image": spaces.Box(0, 255, (1, 12, 12), np.uint8),
    "hwc": spaces.Box(0, 255, (12, 14, 3), np.uint8),
    "discrete": spaces.Discrete(4, start=-1),
    "multi discrete": spaces.MultiDiscrete([3, 2]),
    "multi binary": spaces.MultiBinary(3),
    "dict": spaces.Dict(
        {"place": PLACE, "inner": spaces.Dict({"mode": spaces.Discrete(3), "bits": spaces.MultiBinary(2)})}
    ),
    "dict with image": spaces.Dict({"place": PLACE, "camera": spaces.Box(0, 255, (1, 36, 36), np.uint8)}),
}


def small_policy(kind: str) -> tuple[str, dict[str, Any]]:
    """The alias of the policy for a kind of observation, a vector unless it is of `OBSERVATIONS`, and keywords of a small net."""
    if kind in ("image", "hwc"):
        return "CnnPolicy", {"net_arch": [8], "features_extractor_kwargs": SMALL_CNN}
    if kind == "dict with image":
        return "MultiInputPolicy", {"net_arch": [8], "features_extractor_kwargs": {"cnn_output_dim": 8}}
    return "MultiInputPolicy" if kind == "dict" else "MlpPolicy", {"net_arch": [8]}


class Tiny(gymnasium.Env[Any, Any]):
    """Random observations of a kind; action `start` is worth 1, the others 0; an episode has `length` steps.

    Args:
        kind: of `OBSERVATIONS`.
        length: steps until it ends.
        start: of the action space.
        truncates: the end is a time limit, not a termination.
    """

    def __init__(self, kind: str = "vector", length: int = 5, start: int = 0, truncates: bool = False) -> None:
        self.observation_space = OBSERVATIONS[kind]
        self.action_space = spaces.Discrete(3, start=start)
        self.length, self.start, self.truncates = length, start, truncates
        self.actions: list[int] = []
        self.seeds: list[int | None] = []
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        if seed is not None:
            self.observation_space = own_copy(self.observation_space, seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.actions.append(int(action))
        self.t += 1
        over = self.t >= self.length
        reward = float(action == self.start)
        return (
            self.observation_space.sample(),
            reward,
            over and not self.truncates,
            over and self.truncates,
            {"t": self.t},
        )


def own_copy(space: spaces.Space[Any], seed: int) -> spaces.Space[Any]:
    """The same space with a sampler of its own."""
    own = copy.deepcopy(space)
    own.seed(seed)
    return own


class Faulty(Tiny):
    """Misbehaves once, at the step `at` of its life."""

    def __init__(self, what: str, at: int, length: int = 10_000) -> None:
        super().__init__(length=length)
        self.what, self.at, self.age = what, at, 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        self.age += 1
        if self.age == self.at:
            if self.what == "raise":
                raise ZeroDivisionError("the pole broke")
            if self.what == "nan reward":
                reward = float("nan")
            if self.what == "nan observation":
                observation = np.array([0.0, np.nan], np.float32)
        return observation, reward, terminated, truncated, info


def lanes(
    count: int, make: Callable[[], gymnasium.Env[Any, Any]] = Tiny
) -> list[Callable[[], gymnasium.Env[Any, Any]]]:
    """As many factories, each of a game of its own."""
    return [make] * count


QUICK: dict[str, Any] = {
    "buffer_size": 400,
    "learning_starts": 10,
    "batch_size": 8,
    "episodes_per_update": 2,
    "learning_rate": 1e-3,
    "target_update_interval": 20,
    "policy_kwargs": {"net_arch": [8]},
    "seed": 0,
    "device": "cpu",
}
"""Settings of runs that are over in a moment."""
QUICK_SEQUENCES: dict[str, Any] = {
    "batch_T": 4,
    "batch_B": 4,
    "warmup_T": 2,
    "store_rnn_state_interval": 2,
    "replay_ratio": 4,
    "n_steps": 2,
    "policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 6, "encoder_arch": [5]},
}
"""What a recurrent agent has instead of a batch size and a frequency."""


ACTOR_CRITICS = {name: kind for name, kind in ALGORITHMS.items() if issubclass(kind, ActorCriticAlgorithm)}
POLICY_LEARNERS = {**ACTOR_CRITICS, "SAC": SAC}
Q_AGENTS = {name: kind for name, kind in ALGORITHMS.items() if name not in POLICY_LEARNERS}


def quick(env: Any = None, policy: Any = "MlpPolicy", algorithm: Any = DQN, **kwargs: Any) -> DQN:
    """A small model; of the quick settings those that its class takes."""
    taken = constructor_arguments(algorithm)
    settings = {name: value for name, value in QUICK.items() if name in taken}
    if issubclass(algorithm, R2D2):
        settings = {**{name: settings[name] for name in settings.keys() - REPLACED_ARGUMENTS.keys()}, **QUICK_SEQUENCES}
        policy = (
            policy.replace("Policy", "LstmPolicy")
            if policy in ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")
            else policy
        )
    return algorithm(policy, Tiny() if env is None else env, **{**settings, **kwargs})
