"""Atari games for Stable-Baselines3 on a machine without OpenCV, which its own wrapper of frames needs."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv


class Game(gymnasium.Env[Any, Any]):
    """A game of ale_py's C++ environment, which scales the frames itself."""

    def __init__(self, env_id: str) -> None:
        name = env_id.removesuffix("NoFrameskip-v4").lower()
        self.games = AtariVectorEnv(name, 1, num_threads=1, stack_num=1, noop_max=30, repeat_action_probability=0.0)
        self.observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 1), np.uint8)
        self.action_space = self.games.single_action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        frames, _ = self.games.reset(seed=seed)
        return frames[0].reshape(84, 84, 1), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        frames, rewards, terminated, truncated, _ = self.games.step(np.array([action]))
        return frames[0].reshape(84, 84, 1), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}
