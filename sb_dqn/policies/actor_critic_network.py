"""The nets of an actor-critic: features, a tower for the policy and one for the value, and their heads."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sb_dqn.nn.heads.policy_heads import ActionHead
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.parameters.fraction_optimizer import FractionOptimizer
from sb_dqn.nn.torsos.mlp import HiddenLayers


class ActorCriticOutput(NamedTuple):
    """What the nets say of N observations."""

    policy: Any
    """Distribution over actions."""
    value: Tensor
    """`[N]` float32."""


@dataclass(frozen=True)
class Towers:
    """Hidden layers between features and heads.

    Args:
        pi, vf: widths of the policy's layers and of the value's.
        activation_fn: after each.
        layer_norm: before each activation.
    """

    pi: list[int]
    vf: list[int]
    activation_fn: type[nn.Module] = nn.Tanh
    layer_norm: bool = False


class ActorCriticNet(nn.Module):
    """Policy and value of the same observation.

    Args:
        features: from observations to a row of numbers.
        value_features: the value's own; None: it shares those of the policy.
        towers: hidden layers.
        make_head: from the width of the last layer to the policy's head.
        ortho_init: orthogonal weights, biases 0: gain sqrt(2) below the heads, 0.01 for the policy's, 1 for the value's.
    """

    def __init__(
        self, features: Any, value_features: Any | None, towers: Towers, make_head: Any, ortho_init: bool
    ) -> None:
        super().__init__()
        self.features, self.value_features = features, value_features
        hidden = partial(HiddenLayers, activation_fn=towers.activation_fn, layer_norm=towers.layer_norm)
        self.policy_tower = hidden(features.features_dim, towers.pi)
        self.value_tower = hidden((value_features or features).features_dim, towers.vf)
        # last: a twin in low precision shares them, and its other parameters come first
        self.action_head: ActionHead = make_head(self.policy_tower.out_features)
        self.value_head = nn.Linear(self.value_tower.out_features, 1)
        if ortho_init:
            below = [features, value_features, self.policy_tower, self.value_tower]
            gains = [*((part, math.sqrt(2.0)) for part in below), (self.action_head, 0.01), (self.value_head, 1.0)]
            for part, gain in gains:
                if part is not None:
                    make_orthogonal(part, gain)

    def forward(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> ActorCriticOutput:
        """Distribution and value for a flat dict of `[N, *shape]`.

        Args:
            obs: observations.
            mask: `[N, (D,) A]` bool, legal actions; None: all.
        """
        features = self.features(obs)
        of_value = features if self.value_features is None else self.value_features(obs)
        policy = self.action_head(self.policy_tower(features), mask)
        return ActorCriticOutput(policy, self._value(of_value))

    def policy(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> Any:
        """The distribution alone."""
        return self.action_head(self.policy_tower(self.features(obs)), mask)

    def value(self, obs: dict[str, Tensor]) -> Tensor:
        """`[N]` float32, the value alone."""
        return self._value((self.value_features or self.features)(obs))

    def _value(self, features: Tensor) -> Tensor:
        return self.value_head(self.value_tower(features).float()).squeeze(-1)  # type: ignore[no-any-return]  # nn.Module

    def learning_noise(self, rows: int, as_target: bool) -> Noise | None:
        """None: these nets draw no random numbers while learning."""
        return None

    def make_apart(self, flat: Tensor) -> FractionOptimizer | None:
        """None: all parameters have one optimiser."""
        return None

    def twin(self, dtype: torch.dtype) -> ActorCriticNet:
        """A copy whose features and towers compute in `dtype`; the heads are shared and stay float32."""
        twin = copy.deepcopy(self).to(dtype)
        for part in (twin.features, twin.value_features):
            if part is not None:
                part.dtype = dtype
        twin.action_head, twin.value_head = self.action_head, self.value_head
        return twin


def make_orthogonal(part: nn.Module, gain: float) -> None:
    """Orthogonal weights and biases of 0 in all linear layers and convolutions of a part."""
    for module in part.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            nn.init.orthogonal_(module.weight, gain)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
