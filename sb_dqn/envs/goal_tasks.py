"""A small goal-conditioned environment, registered with gymnasium as `sb_dqn/BitFlip-v0`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.registration import register

from sb_dqn.checks import check_int
from sb_dqn.types import Info, Kwargs

BIT_FLIP = "sb_dqn/BitFlip-v0"
Bits = npt.NDArray[np.float32]


class BitFlip(gymnasium.Env[dict[str, Bits], int]):
    """Row of bits in which each action flips one, until it equals a row that is shown as the goal (arXiv 1707.01495, section 3.1).

    Start and goal are drawn at each reset. The reward is 0 for the goal, which ends the episode, else -1; after `bits` steps the
    episode is truncated. Without hindsight a reward other than -1 is met by chance only, in about one of 2**bits states.

    Args:
        bits: number of bits, >= 1.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  # as gymnasium declares it

    def __init__(self, bits: int = 10) -> None:
        self.bits = check_int("bits", bits, 1)
        row = spaces.Box(0.0, 1.0, (bits,), np.float32)
        self.observation_space: Any = spaces.Dict(observation=row, achieved_goal=row, desired_goal=row)
        self.action_space: Any = spaces.Discrete(bits)
        self.state = self.goal = np.zeros(bits, np.float32)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Kwargs | None = None) -> tuple[dict[str, Bits], Info]:
        super().reset(seed=seed)
        self.steps = 0
        self.state, self.goal = self.np_random.integers(0, 2, (2, self.bits)).astype(np.float32)
        while (self.state == self.goal).all():
            self.goal = self.np_random.integers(0, 2, self.bits).astype(np.float32)
        return self._observe(), {}

    def step(self, action: int) -> tuple[dict[str, Bits], float, bool, bool, Info]:
        self.steps += 1
        self.state = self.state.copy()
        self.state[action] = 1 - self.state[action]
        reward = float(self.compute_reward(self.state, self.goal, {}))
        reached, out_of_time = reward == 0.0, self.steps >= self.bits
        info = {"is_success": reached} if reached or out_of_time else {}
        return self._observe(), reward, reached, out_of_time and not reached, info

    def compute_reward(self, achieved_goal: Bits, desired_goal: Bits, info: object) -> Any:
        """Returns 0 where all bits are equal, else -1, for one pair of rows or `[n, bits]` of them."""
        return (achieved_goal == desired_goal).all(-1).astype(np.float32) - 1

    def _observe(self) -> dict[str, Bits]:
        return {"observation": self.state.copy(), "achieved_goal": self.state.copy(), "desired_goal": self.goal.copy()}


ENTRY: Any = BitFlip
register(BIT_FLIP, ENTRY)
