"""What all policies with a memory have in common, whatever they answer with."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sb_dqn.nn.layers.recurrent import RecurrentConfig
from sb_dqn.policies.base import Policy
from sb_dqn.spaces import actions_of


class Remembering(Policy):
    """Put before a family: it answers step by step, from a state and what led to it."""

    recurrent: ClassVar[bool] = True
    memory: RecurrentConfig

    @property
    def state_size(self) -> int:
        """Numbers of the state of one lane, P."""
        return self.memory.state_size

    @property
    def reads_reward(self) -> bool:
        """Whether the last reward is an input."""
        return self.memory.previous_reward

    def no_action(self, rows: int) -> npt.NDArray[Any]:
        """`[rows, ...]`, what stands for the last action where an episode begins: -1, of a Box zeros."""
        actions = actions_of(self.action_space)
        none = np.int64(-1) if actions.num_actions else np.float32(0)
        return np.full((rows, *actions.shape), none)
