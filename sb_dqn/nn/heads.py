"""Heads: features to a value object."""

from __future__ import annotations

from torch import Tensor, nn

from sb_dqn.nn.values import ScalarValue


class ScalarHead(nn.Module):
    """One linear layer from features of any precision to one value per action; float32 whatever the weights are.

    Args:
        in_features: width of the features.
        num_actions: A.
    """

    def __init__(self, in_features: int, num_actions: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, num_actions)

    def forward(self, features: Tensor) -> ScalarValue:
        return ScalarValue(self.linear(features.to(self.linear.weight.dtype)).float())
