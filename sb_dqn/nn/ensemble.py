"""Ensembles: layers of several members side by side, with fixed random functions that are added to their values."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sb_dqn.accelerate.onednn_linear import linear
from sb_dqn.checks import check_float, check_int, set_fields
from sb_dqn.nn.heads.scalar import Outputs
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.torsos.feature_extractor import Features
from sb_dqn.nn.torsos.mlp import HiddenLayers


@dataclass(frozen=True)
class Ensemble:
    """Settings of an ensemble (Osband et al. 2016, arXiv 1602.04621; with priors: 2018, arXiv 1806.03335).

    Args:
        members: number K of members, from 2.
        prior_scale: factor of the fixed random function that is added to the values of each member, from 0; 0 adds none.
        share: probability, above 0, that a member learns from a transition, drawn once for each transition and member.
    """

    members: int = 10
    prior_scale: float = 3.0
    share: float = 0.5

    def __post_init__(self) -> None:
        set_fields(
            self,
            members=check_int("ensemble['members']", self.members, 2),
            prior_scale=check_float("ensemble['prior_scale']", self.prior_scale, 0.0),
            share=check_float("ensemble['share']", self.share, 0.0, 1.0, above=True),
        )


class EnsembleLinear(nn.Module):
    """Linear layers of K members, computed as one product.

    Args:
        in_features: number of inputs.
        out_features: number of outputs of each member.
        members: K.
    """

    def __init__(self, in_features: int, out_features: int, members: int) -> None:
        super().__init__()
        self.shape = (members, out_features, in_features)
        bound = 1.0 / math.sqrt(in_features)
        self.weight = nn.Parameter(torch.empty(members * out_features, in_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members * out_features).uniform_(-bound, bound))

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        """Maps `[K, N, ..., in]`, or `[1, N, ..., in]` for the same input of all members, to `[K, N, ..., out]`."""
        members, out_features, in_features = self.shape
        if len(x) == 1:
            y = linear(x[0], self.weight, self.bias)
            return y.view(*y.shape[:-1], members, out_features).movedim(-2, 0)
        rows = x.reshape(members, -1, in_features)
        y = torch.baddbmm(self.bias.view(members, 1, -1), rows, self.weight.view(self.shape).transpose(1, 2))
        return y.view(*x.shape[:-1], out_features)


class Prior(nn.Module):
    """Fixed random functions of the observations, one for each member, with an own copy of the features extractor.

    Its weights are buffers, which no optimizer, reset or target update changes, so that the target network has the same. Those of
    the layers are normal with a variance of 1 / inputs, with biases of 0.

    Args:
        features: module from observations to `[N, features_dim]`, which is copied.
        widths: widths of the hidden layers.
        activation_fn: class of the activation.
        outputs: number P of outputs.
        ensemble: number of members, and the factor of the outputs.
    """

    def __init__(
        self,
        features: Features,
        widths: Sequence[int],
        activation_fn: type[nn.Module],
        outputs: int,
        ensemble: Ensemble,
    ) -> None:
        super().__init__()
        self.ensemble = ensemble
        self.features: Any = copy.deepcopy(features)

        def layer(inputs: int, width: int) -> EnsembleLinear:
            made = EnsembleLinear(inputs, width, ensemble.members)
            nn.init.normal_(made.weight, std=1.0 / math.sqrt(inputs))
            nn.init.zeros_(made.bias)
            return made

        self.hidden = HiddenLayers(features.features_dim, widths, activation_fn, layer)
        self.outputs = layer(self.hidden.out_features, outputs)
        for part in self.modules():
            for name, parameter in list(part.named_parameters(recurse=False)):
                delattr(part, name)
                part.register_buffer(name, parameter.detach())
        self.train(False)

    def train(self, mode: bool = True) -> Prior:
        """Stays in evaluation mode: dropout or batch statistics of an own features extractor would change the functions."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        """Maps observations of N rows to `[K, N, P]`."""
        outputs: Tensor = self.outputs(self.hidden(self.features(obs).unsqueeze(0)))
        return self.ensemble.prior_scale * outputs


class EnsembleOutputs(Outputs):
    """Output layer of the value heads of K members.

    Their features `[K, N, ..., H]`, or `[1, N, ..., H]` if they are the same, may be followed by the outputs of a `Prior`, which are
    added.

    Args:
        with_prior: features end with the outputs of a prior.
        args, kwargs: see `Outputs`.
    """

    def __init__(self, *args: Any, with_prior: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_prior = math.prod(self.shape) if with_prior else 0

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        """Maps features to `[K N, ..., (D,) A, Z]`."""
        learned, prior = torch.split(x, [x.shape[-1] - self.num_prior, self.num_prior], -1)
        outputs = super().forward(learned, noise)
        return (outputs + prior.view_as(outputs) if self.num_prior else outputs).flatten(0, 1)
