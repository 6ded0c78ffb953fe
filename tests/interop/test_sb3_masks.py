"""Action masks in vector environments of Stable-Baselines3, under `sb_dqn.sb3` and without it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import sb3_contrib
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor

from sb_dqn import DQN
from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.streams.open import open_stream
from tests.marks import SLOW

room: Any = import_module("sb_dqn.sb3")


class Turns(gymnasium.Env[Any, Any]):
    """Episodes of three steps; action 0 is legal in the first one, 1 in the second, 0 in the third, and so on."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space: spaces.Space[Any] = spaces.Discrete(2)
    episode = -1

    def action_masks(self) -> Any:
        return np.arange(2) == self.episode % 2

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t, self.episode = 0, self.episode + 1
        return np.zeros(1, np.float32), {"action_mask": self.action_masks()}

    def step(self, action: Any) -> Any:
        if action != self.episode % 2:
            raise ValueError(f"action {action} in episode {self.episode}")
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t == 3, False, {"action_mask": self.action_masks()}


class Lives(gymnasium.Env[Any, Any]):
    """A game that begins with three lives and loses one in the first step."""

    observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {"lives": 3}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 1.0, False, False, {"lives": 2}


class NewInfos(DummyVecEnv):
    """Makes a new list of infos in each step, as `SubprocVecEnv` does."""

    def step_wait(self) -> Any:
        result = super().step_wait()
        self.reset_infos = [dict(info) for info in self.reset_infos]
        return result


@pytest.mark.parametrize("kind", [NewInfos, pytest.param(SubprocVecEnv, marks=SLOW)])
def test_masks_after_a_reset_are_those_of_the_new_episode(kind: Any) -> None:
    env = kind([Turns, Turns])
    model = room.MaskablePPO("MlpPolicy", env, n_steps=12, batch_size=12, n_epochs=1, seed=0).learn(24)
    assert model.num_timesteps == 24
    env.close()


class OwnClass(room.MaskablePPO):  # type: ignore[misc]  # a class at run time
    """A class of the user."""


@pytest.mark.parametrize("cls", [room.MaskablePPO, OwnClass])
def test_a_loaded_model_of_theirs_learns_with_masks(cls: Any, tmp_path: Path) -> None:
    sb3_contrib.MaskablePPO("MlpPolicy", Turns(), n_steps=12, batch_size=12, n_epochs=1).save(tmp_path / "theirs.zip")
    model = cls.load(tmp_path / "theirs.zip", env=Turns())
    assert type(model) is cls
    assert model.action_mask == "info"
    assert model.learn(24).num_timesteps == 24


class Branches(Turns):
    """Actions of two branches, of which the second has three choices."""

    action_space = spaces.MultiDiscrete([2, 3])

    def action_masks(self) -> Any:
        return np.ones(5, bool)


@pytest.mark.parametrize("as_tensors", [False, True])
@pytest.mark.parametrize(("env", "count"), [(Turns(), 2), (Branches(), 5)])
def test_a_policy_takes_masks_as_theirs(env: Any, count: int, as_tensors: bool) -> None:
    model = room.MaskablePPO("MlpPolicy", env, n_steps=8, seed=0)
    masks = np.ones((4, count), bool)
    masks[:3, 1] = False  # so that action 0 is the only one, in the first branch
    masks[3, 0] = False
    obs, actions = torch.zeros(4, 1), torch.zeros(4, *env.action_space.shape)
    passed = torch.from_numpy(masks) if as_tensors else masks
    found = model.policy.get_distribution(obs, action_masks=passed)
    log_prob = model.policy.evaluate_actions(obs, actions, action_masks=passed)[1]
    torch.testing.assert_close(log_prob[:3], found.log_prob(actions)[:3])
    assert log_prob[3] < -1e6  # action 0 is illegal
    first = found.distributions[0] if count == 5 else found.distribution
    assert first.probs.tolist() == [[1.0, 0.0]] * 3 + [[0.0, 1.0]]


class Pictures(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Turns with images whose channels are last, which the constructors of `sb_dqn.sb3` put first by a wrapper."""

    def __init__(self) -> None:
        super().__init__(Turns())
        self.observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)

    def observation(self, observation: Any) -> Any:
        return np.zeros((36, 36, 1), np.uint8)


def test_infos_of_resets_are_read_through_wrappers() -> None:
    env = VecMonitor(DummyVecEnv([Turns, Turns]))
    model = DQN("MlpPolicy", env, action_mask="info", buffer_size=50, learning_starts=100, seed=0)
    assert model.learn(16).num_timesteps == 16
    images = room.PPO("CnnPolicy", Pictures(), action_mask="info", n_steps=8, batch_size=8, n_epochs=1, seed=0)
    assert images.learn(8).num_timesteps == 8


def test_lives_after_a_reset_are_read_through_wrappers() -> None:
    env = VecMonitor(DummyVecEnv([Lives]))
    stream = open_stream(env, options=StreamOptions(terminal_on_life_loss=True))
    stream.begin(0)
    ends = [bool(stream.step(np.zeros(1, np.int64)).slots[-1].terminal[0]) for _ in range(2)]
    assert ends == [True, False]
