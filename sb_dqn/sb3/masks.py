"""Action masks of sb3_contrib's environments as entries of their infos."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from sb_dqn.errors import ConfigurationError

METHOD = "action_masks"


class VecActionMasks(VecEnvWrapper):
    """Adds `action_mask` to each info: the legal actions at the observation that was returned.

    Args:
        venv: vector environment whose lanes have a method `action_masks()`.
    """

    masked = True
    """False: all actions are legal."""

    @classmethod
    def around(cls, env: Any) -> Any:
        """Returns the wrapped environment; a stream, a blueprint or None unchanged."""
        return env if not isinstance(env, VecEnv) or isinstance(env, cls) else cls(env)

    def use(self, masked: bool) -> None:
        """Sets whether the next episodes have the masks of the environment.

        Raises:
            ConfigurationError: they must, and an environment has no method for them.
        """
        if masked and not self.venv.has_attr(METHOD):
            raise ConfigurationError(
                "the environment must have a method action_masks() for MaskablePPO, got none. Wrap it in "
                "sb_dqn.sb3.common.wrappers.ActionMasker, or call learn(use_masking=False)."
            )
        self.masked = masked

    def _masks(self) -> Any:
        if self.masked:
            return np.stack(self.venv.env_method(METHOD))
        return np.ones((self.num_envs, _width(self.action_space)), np.bool_)

    def reset(self) -> Any:
        obs = self.venv.reset()
        for info, mask in zip(self.venv.reset_infos, self._masks(), strict=True):
            info["action_mask"] = mask
        self.reset_infos = self.venv.reset_infos
        return obs

    def step_wait(self) -> Any:
        obs, rewards, dones, infos = self.venv.step_wait()
        for lane, (done, mask) in enumerate(zip(dones, self._masks(), strict=True)):
            infos[lane]["action_mask"] = np.ones_like(mask) if done else mask
            if done:  # the observation is that of the next episode
                self.venv.reset_infos[lane]["action_mask"] = mask
        return obs, rewards, dones, infos


def _width(space: Any) -> int:
    """Returns the number of entries in a mask of contrib: one for each value of each choice."""
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return 2 * int(np.prod(space.shape)) if isinstance(space, spaces.MultiBinary) else int(space.n)
