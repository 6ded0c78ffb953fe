"""Head of soft actor-critic for a Box: squashed Gaussian whose mean and deviation depend on the observation."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from sb_dqn.nn.heads.policy_heads import ActionHead
from sb_dqn.nn.heads.squashed_gaussian import SquashedGaussian, to_bounds
from sb_dqn.spaces import BoxActions
from sb_dqn.types import FloatArray

LOG_STD = (-20.0, 2.0)
"""Bounds of the log standard deviation, as in Haarnoja's code."""


class SoftHead(ActionHead):
    """Head for a Box: mean and log standard deviation of u per observation; actions are tanh(u) scaled to the bounds.

    Args:
        in_features: H.
        actions: shape and bounds of the action space.
    """

    low: Tensor
    high: Tensor

    def __init__(self, in_features: int, actions: BoxActions) -> None:
        count = actions.low.size
        super().__init__(nn.Linear(in_features, 2 * count), count, {"u": (count,)})
        self.count = count
        self.shape = actions.shape
        for name in ("low", "high"):
            self.register_buffer(name, torch.as_tensor(getattr(actions, name)).flatten(), persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> SquashedGaussian:
        mean, log_std = self.outputs(x.float()).split(self.count, -1)
        return SquashedGaussian(mean, log_std.clamp(*LOG_STD))

    def draw(self, rng: np.random.Generator, rows: int) -> FloatArray:
        return rng.standard_normal((rows, self.width), dtype=np.float32)

    def to_action(self, sample: Tensor) -> Tensor:
        return to_bounds(sample, self.low, self.high).view(-1, *self.shape)

    def to_unit(self, action: Tensor) -> Tensor:
        """Returns actions `[N, *shape]` of the environment scaled to bounds of -1 and 1, `[N, D]`: the critics' input."""
        return 2.0 * (action.reshape(-1, self.low.numel()) - self.low) / (self.high - self.low) - 1.0
