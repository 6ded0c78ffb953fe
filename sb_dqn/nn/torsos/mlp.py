"""Hidden layers: stacks of plain or noisy linear layers, and dueling streams."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sb_dqn.nn.layers.linear import Linear, MakeLinear
from sb_dqn.nn.layers.noise import Noise


class HiddenLayers(nn.Module):
    """Stack of linear layers, each followed by an optional norm and an activation; the identity without layers.

    Args:
        in_features: width of the input.
        widths: widths of the layers.
        activation_fn: class of the activation.
        linear: function that makes the layers.
        layer_norm: True for layer norm before each activation (Ba et al. 2016, arXiv 1607.06450).
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
    """Two parallel stacks of hidden layers, for the state value and for the advantages.

    Args:
        of_state: layers of the value stream.
        of_actions: layers of the advantage stream, with the same widths.
        scale: factor of the gradient that flows back below the streams; 1/sqrt(2) in Wang et al. 2016.
    """

    def __init__(self, of_state: HiddenLayers, of_actions: HiddenLayers, scale: float = 1.0) -> None:
        super().__init__()
        self.of_state = of_state
        self.of_actions = of_actions
        self.scale = scale

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        """Maps `[..., W]` to `[..., 2 H]`."""
        if self.scale != 1.0:
            x = self.scale * x + (1.0 - self.scale) * x.detach()
        return torch.cat([self.of_state(x, noise), self.of_actions(x, noise)], -1)
