"""The net of a Q-agent, from observations to a value object."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sb_dqn.nn.heads.scalar import Distribution, Outputs, Scalar
from sb_dqn.nn.layers.linear import Linear, MakeLinear, Noisy, NoisyLinear, assign_noise
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.layers.norms import SpectralLinear
from sb_dqn.nn.parameters.fraction_optimizer import FractionOptimizer
from sb_dqn.nn.torsos.mlp import DuelingStreams, HiddenLayers
from sb_dqn.spaces import ActionShape


@dataclass(frozen=True)
class QNetworkConfig:
    """The switches of a Q-agent that change its nets.

    Args:
        distribution: what is learned of the return.
        dueling: the last hidden layer exists twice, for the state's value and for the actions' advantages.
        noisy: noise in the weights of every hidden layer and of the head; None: none.
    """

    distribution: Distribution = field(default_factory=Scalar)
    dueling: bool = False
    noisy: Noisy | None = None

    @property
    def linear(self) -> MakeLinear:
        return Linear if self.noisy is None else partial(NoisyLinear, noisy=self.noisy)


@dataclass(frozen=True)
class Torso:
    """Hidden layers between features and head.

    Args:
        widths: of the layers; the last of them is what dueling doubles.
        activation_fn: after each.
        layer_norm: before each activation.
        spectral_norm: bound the weights by their largest singular value.
        scale_trunk_gradient: with dueling, what flows back below the last layer is multiplied by 1/sqrt(2).
    """

    widths: Sequence[int]
    activation_fn: type[nn.Module] = nn.ReLU
    layer_norm: bool = False
    spectral_norm: bool = False
    scale_trunk_gradient: bool = False


class QNetwork(nn.Module):
    """Features, hidden layers, and a head.

    Args:
        features: from observations to a row of numbers of width `features_dim`.
        torso: hidden layers.
        actions: what the head answers for.
        design: dueling, noisy, distribution.
    """

    def __init__(
        self, features: Any, torso: Torso, actions: ActionShape, design: QNetworkConfig = QNetworkConfig()
    ) -> None:
        super().__init__()
        self.design = design
        self.features = features
        linear = SpectralLinear if torso.spectral_norm else design.linear
        make = partial(HiddenLayers, activation_fn=torso.activation_fn, linear=linear, layer_norm=torso.layer_norm)
        self.torso = make(features.features_dim, torso.widths[:-1])
        self.embedding = design.distribution.make_embedding(self.torso.out_features)
        last = partial(make, self.torso.out_features, torso.widths[-1:])
        scale = 1.0 / math.sqrt(2.0) if torso.scale_trunk_gradient else 1.0
        self.last: nn.Module = DuelingStreams(last(), last(), scale) if design.dueling else last()
        width = torso.widths[-1] if torso.widths else features.features_dim
        outputs = partial(
            Outputs, design.linear, width, branches=actions.branches, branched=actions.branched, dueling=design.dueling
        )
        even = min(actions.branches) == max(actions.branches)
        self.head: Any = design.distribution.make_head(
            lambda depth: outputs(depth=depth), None if even else torch.as_tensor(actions.legal)
        )
        self.noise_width = assign_noise(self)

    def forward(
        self, obs: dict[str, Tensor], mask: Tensor | None = None, noise: Noise | None = None, acting: bool = False
    ) -> Any:
        """A value object for a flat dict of `[N, *shape]`.

        Args:
            obs: observations.
            mask: `[N, (D,) A]` bool, legal actions; None: all.
            noise: random numbers; None: mean weights and evenly spaced fractions.
            acting: choose by the attitude to risk that the distribution names, if any; learning is neutral.
        """
        x = self.torso(self.features(obs), noise)
        fractions = None
        if self.embedding is not None:
            x, fractions = self.embedding(x, noise, acting)
        return self.head(self.last(x, noise), mask, noise, fractions)

    def make_noise(self, rows: int, uniform: int, device: torch.device, per_row: bool = False) -> Noise | None:
        """Room for the random numbers of one pass; None where none are needed.

        Args:
            rows: N.
            uniform: numbers in [0, 1) for each row.
            device: where they lie.
            per_row: factorised noise of its own for each row instead of one draw for all.
        """
        if not self.noise_width and not uniform:
            return None
        factorised = self.design.noisy is None or self.design.noisy.kind == "factorised"
        draws = rows if per_row and factorised else 1
        return Noise(
            torch.zeros(draws, self.noise_width, device=device), torch.zeros(rows, uniform, device=device), factorised
        )

    def learning_noise(self, rows: int, as_target: bool) -> Noise | None:
        """Room for the random numbers of one learning pass over `rows`, of the online net or of the target."""
        distribution = self.design.distribution
        uniform = distribution.num_target if as_target else distribution.num_online
        return self.make_noise(rows, uniform, next(self.parameters()).device)

    def make_apart(self, flat: Tensor) -> FractionOptimizer | None:
        """What steps the parameters that have a rate of their own, if any; `flat` is what all are views of."""
        return self.design.distribution.make_apart(self, flat)

    def twin(self, dtype: torch.dtype) -> QNetwork:
        """A copy whose features and hidden layers compute in `dtype`.

        The head is shared and stays float32: near -1 bfloat16 knows steps of 1/256, as large as the differences between
        actions that early learning lives on.
        """
        twin = copy.deepcopy(self).to(dtype)
        twin.features.dtype = dtype
        twin.head = self.head
        return twin
