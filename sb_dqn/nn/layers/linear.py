"""Linear layers that all take the same call, noisy or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sb_dqn.accelerate.onednn_linear import linear
from sb_dqn.checks import check_choice, check_float
from sb_dqn.nn.layers.noise import Noise

KINDS = ("factorised", "independent")
ROWS, WEIGHTS = 16, 2**17
"""From so many rows on, a matrix of so many weights at most is quicker made noisy than used twice."""


class Linear(nn.Linear):
    """`torch.nn.Linear`, deaf to noise."""

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        return linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class Noisy:
    """How layers are made noisy (Fortunato et al. 2018, arXiv 1706.10295).

    Args:
        kind: "factorised": one number for each input and output; "independent": one for each weight.
        sigma: sigma_0; None: 0.5 factorised (divided by the square root of the inputs), 0.017 independent.
    """

    kind: str = "factorised"
    sigma: float | None = None

    def __post_init__(self) -> None:
        check_choice("noisy['kind']", self.kind, KINDS)
        if self.sigma is not None:
            check_float("noisy['sigma']", self.sigma, 0.0)


class NoisyLinear(nn.Module):
    r"""A linear layer whose weights are drawn anew for each pass.

    .. math:: y = (\mu^w + \sigma^w \odot \varepsilon^w) x + \mu^b + \sigma^b \odot \varepsilon^b

    Factorised, :math:`\varepsilon^w = f(\varepsilon_{out}) f(\varepsilon_{in})^T` and :math:`\varepsilon^b =
    f(\varepsilon_{out})` with :math:`f(x) = \mathrm{sgn}(x) \sqrt{|x|}`; it is computed as :math:`\mu x +
    f(\varepsilon_{out}) \odot (\sigma (f(\varepsilon_{in}) \odot x))`, which needs no weight per row, unless many rows
    share one draw. Without noise the mean weights act.

    Args:
        in_features, out_features: widths.
        noisy: kind and sigma_0.
    """

    def __init__(self, in_features: int, out_features: int, noisy: Noisy) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.factorised = noisy.kind == "factorised"
        self.weight, self.sigma_weight = (nn.Parameter(torch.empty(out_features, in_features)) for _ in range(2))
        self.bias, self.sigma_bias = (nn.Parameter(torch.empty(out_features)) for _ in range(2))
        self.width = in_features + out_features if self.factorised else (in_features + 1) * out_features
        """Numbers that one draw takes."""
        self.start = 0
        """Where they begin in `Noise.normal`."""
        bound = 1.0 / math.sqrt(in_features) if self.factorised else math.sqrt(3.0 / in_features)
        for mean in (self.weight, self.bias):
            nn.init.uniform_(mean, -bound, bound)
        sigma = (0.5 if self.factorised else 0.017) if noisy.sigma is None else noisy.sigma
        for spread in (self.sigma_weight, self.sigma_bias):
            nn.init.constant_(spread, sigma / math.sqrt(in_features) if self.factorised else sigma)

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        """`[N, ..., in]` -> `[N, ..., out]`."""
        if noise is None:
            return linear(x, self.weight, self.bias)
        drawn = noise.normal[:, self.start : self.start + self.width].to(x.dtype)
        if not self.factorised:
            of_weight, of_bias = torch.split(drawn[0], [self.weight.numel(), self.out_features])
            return self._shared(x, of_weight.view_as(self.weight), of_bias)
        if len(drawn) == 1 and x.numel() >= ROWS * self.in_features and self.weight.numel() <= WEIGHTS:
            of_in, of_out = torch.split(drawn[0], [self.in_features, self.out_features])
            return self._shared(x, of_out.unsqueeze(1) * of_in, of_out)
        # [R, 1, ..., width]: one draw for a whole row, whatever lies between the batch and the features
        drawn = drawn.view(drawn.shape[0], *(1,) * (x.dim() - 2), self.width)
        of_in, of_out = torch.split(drawn, [self.in_features, self.out_features], -1)
        spread: Tensor = linear(x * of_in, self.sigma_weight, self.sigma_bias)
        return linear(x, self.weight, self.bias) + of_out * spread

    def _shared(self, x: Tensor, of_weight: Tensor, of_bias: Tensor) -> Tensor:
        return linear(x, self.weight + self.sigma_weight * of_weight, self.bias + self.sigma_bias * of_bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {'factorised' if self.factorised else 'independent'}"


MakeLinear = Callable[[int, int], nn.Module]
"""From in and out features to a layer `(x, noise) -> y`."""


def assign_noise(module: nn.Module) -> int:
    """Gives each noisy layer of a module its slice of `Noise.normal`; returns the width of all of them together."""
    start = 0
    for layer in module.modules():
        if type(layer) is NoisyLinear:
            layer.start = start
            start += layer.width
    return start
