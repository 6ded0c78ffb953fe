"""Layer norm and spectral norm, without state.

`torch.nn.utils.parametrizations.spectral_norm` keeps an estimate that each forward pass in training mode updates. That
does not work here: acting would change the network, the estimate of a bfloat16 twin would not reach the float32 master
that is saved, and recording a function (`sb_dqn/accelerate`) would make one update more. So the largest singular value
is a pure function of the weights.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from sb_dqn.accelerate.onednn_linear import linear
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.layers.linear import Linear
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.layers.strided_conv import StridedConv2d

Shape = tuple[int, int, int]
LayerNorm = bool | Literal["channels"]

SQUARINGS = 6
"""2^6 = 64 steps of the power method: at worst 0.9 % too small for 64 rows and 1.5 % for 512, 0.1 % for typical weights."""
TINY = 1e-12


def spectral_norm(weight: Tensor) -> Tensor:
    r"""Returns the largest singular value of a weight as a matrix `[out, rest]`, differentiably.

    .. math:: u \propto (W W^T)^{64} e_j, \qquad \sigma = \lVert W^T u \rVert

    The smaller of the two Gram matrices is squared six times. e_j selects the longest column of the result, so the start
    is never orthogonal to the singular vector. u is a constant in the gradient, which then is that of sigma itself.

    Args:
        weight: `[out, in]` or `[out, in, h, w]`, of any dtype and memory format.

    Returns:
        `[]` float32.
    """
    # the order of the columns does not matter; this one is free in channels_last
    matrix = weight.permute(0, 2, 3, 1).flatten(1) if weight.dim() == 4 else weight
    matrix = matrix.float()
    if matrix.shape[0] > matrix.shape[1]:
        matrix = matrix.T
    with torch.no_grad():
        gram = matrix @ matrix.T
        for _ in range(SQUARINGS // 2):
            gram = gram / gram.norm().clamp_min(TINY)
            gram = gram @ gram
            gram = gram @ gram
        longest = torch.linalg.vector_norm(gram, dim=0).argmax()
        u = gram.index_select(0, longest.view(1)).squeeze(0)
        u = u / u.norm().clamp_min(TINY)
    sigma: Tensor = torch.linalg.vector_norm(matrix.T @ u)
    return sigma


def spectrally_normalized(weight: Tensor) -> Tensor:
    """Returns the weight divided by its largest singular value (Miyato et al. 2018, arXiv 1802.05957), in its own dtype."""
    normalized: Tensor = (weight.float() / spectral_norm(weight).clamp_min(TINY)).to(weight.dtype)  # rounded once
    return normalized


class SpectralConv2d(StridedConv2d):
    """Convolution with its weight divided by its largest singular value, as a matrix `[out, in h w]`."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self._conv_forward(x, spectrally_normalized(self.weight), self.bias)
        return out


class SpectralLinear(Linear):
    """Linear layer with its weight divided by its largest singular value.

    Cheap up to widths of about 128; at 512 the singular value costs as much as a small update.
    """

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        return linear(x, spectrally_normalized(self.weight), self.bias)


class ImageLayerNorm(nn.LayerNorm):
    """Layer norm of images `[N, C, H, W]` that keeps the channels_last memory format (Ba et al. 2016, arXiv 1607.06450).

    Args:
        shape: (C, H, W) of one image.
        over: True: over C, H and W, with a weight for each element; "channels": over C at each pixel, with a weight per
            channel.
    """

    def __init__(self, shape: Shape, over: LayerNorm = True) -> None:
        channels, height, width = shape
        super().__init__((channels,) if over == "channels" else (height, width, channels))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def check_layer_norm(value: Any) -> LayerNorm:
    """Returns `value` if it is False, True or "channels".

    Raises:
        ConfigurationError: another value.
    """
    if value is True or value is False:
        return bool(value)
    if isinstance(value, str) and value == "channels":
        return "channels"
    raise ConfigurationError(f"layer_norm must be True, False or 'channels', got {value!r}. Give one of them.")


def image_norm(shape: Shape, over: LayerNorm) -> list[nn.Module]:
    """Returns the norm for `over` in a list, which is empty if `over` is False."""
    return [ImageLayerNorm(shape, over)] if over else []
