"""The reward function of a goal-conditioned environment, for transitions with other goals."""

from __future__ import annotations

import os
import weakref
from typing import Any

import numpy as np

from sb_dqn.errors import ConfigurationError


class GoalRewards:
    """`compute_reward` of an environment of a stream, with rewards clipped where the stream clips them.

    It is that of lane 0 where this process steps it, else that of one more environment, which is made and reset for it. That one is
    closed by `close`, with this object, or when the process ends.

    Args:
        stream: the environments.

    Raises:
        ConfigurationError: the environment has no such method, or no further one can be made.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._function: Any = None
        self._end: Any = None
        self._open()

    def __call__(self, achieved: Any, desired: Any, infos: list[dict[str, Any]]) -> Any:
        """Returns rewards `[n]`, see `RewardFunction`."""
        if self._function is None:
            self._open()
        rewards = self._function(achieved, desired, infos)
        return np.sign(rewards) if self._stream.options.clip_reward else rewards

    def close(self) -> None:
        """Closes the environment that was made; the next call makes another one."""
        if self._end is not None:
            self._end()
            self._function = None

    def _open(self) -> None:
        env, is_made = self._stream.one_environment()
        if is_made:
            self._end = weakref.finalize(self, _close, env, os.getpid())
            env.reset(seed=0)  # the reward may read what a reset sets
        found = env.has_wrapper_attr("compute_reward")
        self._function = env.get_wrapper_attr("compute_reward") if found else None
        if self._function is None:
            raise ConfigurationError(
                f"the environment must have compute_reward(achieved_goal, desired_goal, info) with hindsight, got {env} without it. "
                f"Use a goal-conditioned environment, or remove hindsight."
            )


def _close(env: Any, pid: int) -> None:
    """Closes an environment in the process that made it, not in a fork of it that ends."""
    if os.getpid() == pid:
        env.close()
