"""Policies that draw their actions from a distribution."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from torch import Tensor

from sb_dqn.nn.heads.policy_heads import ActionHead
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.policies.base import Policy
from sb_dqn.types import FloatArray


class StochasticPolicy(Policy):
    """A distribution over actions for each observation; no exploration is needed beside it."""

    @property
    @abstractmethod
    def action_head(self) -> ActionHead:
        """From features to the distribution, and from what is drawn to actions."""

    @abstractmethod
    def distribution(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> Any:
        """Over the actions, for a flat dict of `[N, *shape]`; `mask` as of `greedy`."""

    def greedy(self, obs: dict[str, Tensor], mask: Tensor | None = None, noise: Noise | None = None) -> Tensor:
        """The most probable choice; of a Box the mean, where it falls within the bounds."""
        return self.action_head.to_action(self.distribution(obs, mask).mode())

    def sample(self, obs: dict[str, Tensor], mask: Tensor | None, drawn: Tensor) -> Tensor:
        """Actions as while learning, 0-based, or of a Box `[N, *shape]`, by numbers that `draw` gave."""
        return self.action_head.to_action(self.distribution(obs, mask).sample(drawn))

    @property
    def answers(self) -> tuple[str, ...]:
        """Names of the outputs of `act` after the actions."""
        return ()

    def act(self, obs: dict[str, Tensor], mask: Tensor | None, drawn: Tensor) -> tuple[Tensor, ...]:
        """Returns sampled actions and the outputs that `answers` names, in that order.

        Args:
            obs: observations of N lanes.
            mask: `[N, (D,) A]` bool, legal actions; None: all.
            drawn: random numbers from `draw`.
        """
        return (self.sample(obs, mask, drawn),)

    def draw(self, rng: np.random.Generator, rows: int) -> FloatArray:
        """`[rows, W]` random numbers for `sample`."""
        return self.action_head.draw(rng, rows)
