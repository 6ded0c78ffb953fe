"""Linear layers, plain and noisy, with the same signature."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sb_dqn.accelerate.onednn_linear import linear
from sb_dqn.checks import check_choice, check_float, set_fields
from sb_dqn.devices import is_host_visible
from sb_dqn.nn.layers.noise import Noise

KINDS = ("factorised", "independent")
ROWS = 16
"""Fewest rows for which adding the noise to the weights first is faster than two products."""
WEIGHTS = 2**17
"""Largest weight matrix for which that holds."""


class Linear(nn.Linear):
    """`torch.nn.Linear` that accepts and ignores a `noise` argument."""

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        return linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class Noisy:
    """Settings of noisy layers (Fortunato et al. 2018, arXiv 1706.10295).

    Args:
        kind: "factorised" draws one random number per input and output, "independent" one per weight.
        sigma: sigma_0, from 0. If None, it is 0.5 if factorised (divided by the square root of the number of inputs), 0.017 if
            independent.
    """

    kind: str = "factorised"
    sigma: float | None = None

    def __post_init__(self) -> None:
        check_choice("noisy['kind']", self.kind, KINDS)
        if self.sigma is not None:
            set_fields(self, sigma=check_float("noisy['sigma']", self.sigma, 0.0))


class NoisyLinear(nn.Module):
    r"""Linear layer with random weights in each pass.

    .. math:: y = (\mu^w + \sigma^w \odot \varepsilon^w) x + \mu^b + \sigma^b \odot \varepsilon^b

    Factorised, :math:`\varepsilon^w = f(\varepsilon_{out}) f(\varepsilon_{in})^T` and :math:`\varepsilon^b =
    f(\varepsilon_{out})` with :math:`f(x) = \mathrm{sgn}(x) \sqrt{|x|}`; it is computed as :math:`\mu x +
    f(\varepsilon_{out}) \odot (\sigma (f(\varepsilon_{in}) \odot x))`, which needs no weight matrix per row, unless many
    rows share one draw. Without noise the layer uses its mean weights.

    Args:
        in_features: number of inputs.
        out_features: number of outputs.
        noisy: kind and sigma_0.
    """

    def __init__(self, in_features: int, out_features: int, noisy: Noisy) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.factorised = noisy.kind == "factorised"
        self.weight, self.sigma_weight = (nn.Parameter(torch.empty(out_features, in_features)) for _ in range(2))
        self.bias, self.sigma_bias = (nn.Parameter(torch.empty(out_features)) for _ in range(2))
        self.width = in_features + out_features if self.factorised else (in_features + 1) * out_features
        """Random numbers per draw."""
        self.start = 0
        """Index of the first one in `Noise.normal`."""
        bound = 1.0 / math.sqrt(in_features) if self.factorised else math.sqrt(3.0 / in_features)
        for mean in (self.weight, self.bias):
            nn.init.uniform_(mean, -bound, bound)
        sigma = (0.5 if self.factorised else 0.017) if noisy.sigma is None else noisy.sigma
        for spread in (self.sigma_weight, self.sigma_bias):
            nn.init.constant_(spread, sigma / math.sqrt(in_features) if self.factorised else sigma)

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        """Maps `[N, ..., in]` to `[N, ..., out]`."""
        if noise is None:
            return linear(x, self.weight, self.bias)
        drawn = noise.normal[:, self.start : self.start + self.width].to(x.dtype)
        if not self.factorised:
            weight_noise, bias_noise = torch.split(drawn[0], [self.weight.numel(), self.out_features])
            return self._shared(x, weight_noise.view_as(self.weight), bias_noise)
        if len(drawn) == 1 and x.numel() >= ROWS * self.in_features and self.weight.numel() <= WEIGHTS:
            in_noise, out_noise = torch.split(drawn[0], [self.in_features, self.out_features])
            return self._shared(x, out_noise.unsqueeze(1) * in_noise, out_noise)
        # [R, 1, ..., width]: one draw per row, shared by the axes between batch and features
        drawn = drawn.view(drawn.shape[0], *(1,) * (x.dim() - 2), self.width)
        in_noise, out_noise = torch.split(drawn, [self.in_features, self.out_features], -1)
        spread: Tensor = linear(x * in_noise, self.sigma_weight, self.sigma_bias)
        return _add_product(linear(x, self.weight, self.bias), out_noise, spread)

    def _shared(self, x: Tensor, weight_noise: Tensor, bias_noise: Tensor) -> Tensor:
        """Returns the output with one draw for all rows."""
        weight = _add_product(self.weight, self.sigma_weight, weight_noise)
        return linear(x, weight, _add_product(self.bias, self.sigma_bias, bias_noise))

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {'factorised' if self.factorised else 'independent'}"


def _add_product(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Returns x + y z; one kernel on devices where the launch of a kernel counts, which rounds once."""
    return x + y * z if is_host_visible(x.device) else torch.addcmul(x, y, z)


MakeLinear = Callable[[int, int], nn.Module]
"""Makes a layer `(x, noise) -> y` from the numbers of inputs and outputs."""


def assign_noise(module: nn.Module) -> int:
    """Assigns a slice of `Noise.normal` to each noisy layer of a module; returns their total width."""
    start = 0
    for layer in module.modules():
        if type(layer) is NoisyLinear:
            layer.start = start
            start += layer.width
    return start
