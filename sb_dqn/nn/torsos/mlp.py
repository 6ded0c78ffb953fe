"""Hidden layers: stacks of linear layers, plain or noisy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sb_dqn.nn.layers.linear import Linear, MakeLinear
from sb_dqn.nn.layers.noise import Noise


class HiddenLayers(nn.Module):
    """`len(widths)` linear layers, each followed by its norm and its activation; an empty stack passes its input on.

    Args:
        in_features: width of the input.
        widths: of the layers.
        activation_fn: class of the activation.
        linear: makes the layers.
        layer_norm: normalise before each activation (Ba et al. 2016, arXiv 1607.06450).
    """

    def __init__(
        self,
        in_features: int,
        widths: Sequence[int],
        activation_fn: type[nn.Module] = nn.ReLU,
        linear: MakeLinear = Linear,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        ends = [in_features, *widths]
        self.out_features = ends[-1]
        self.linears = nn.ModuleList(linear(*pair) for pair in zip(ends, widths, strict=False))
        self.after = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), activation_fn()) if layer_norm else activation_fn() for width in widths
        )

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        for linear, after in zip(self.linears, self.after, strict=True):
            x = after(linear(x, noise))
        return x


class DuelingStreams(nn.Module):
    """Two hidden stacks side by side, one for the value of a state and one for the advantage of each action.

    Args:
        of_state, of_actions: the stacks; equal widths.
        scale: of the gradient that goes back into what lies below; 1/sqrt(2) in Wang et al. 2016.
    """

    def __init__(self, of_state: HiddenLayers, of_actions: HiddenLayers, scale: float = 1.0) -> None:
        super().__init__()
        self.of_state, self.of_actions, self.scale = of_state, of_actions, scale

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        """`[..., W]` -> `[..., 2 H]`."""
        if self.scale != 1.0:
            x = self.scale * x + (1.0 - self.scale) * x.detach()
        return torch.cat([self.of_state(x, noise), self.of_actions(x, noise)], -1)
