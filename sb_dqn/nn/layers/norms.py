"""Normalisation of activations and of weights, without state: nothing to save, to copy or to keep in step.

`torch.nn.utils.parametrizations.spectral_norm` keeps an estimate that every forward pass in training mode moves. Here
that would be wrong: acting would change the net, the estimate of a bfloat16 twin would never reach the float32 master
that is saved, and recording a function (`sb_dqn/accelerate`) would move it once more than a run that goes on. So the
largest singular value is a pure function of the weights.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from sb_dqn.accelerate.onednn_linear import linear
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.layers.linear import Linear
from sb_dqn.nn.layers.noise import Noise

Shape = tuple[int, int, int]
LayerNorm = bool | Literal["channels"]

SQUARINGS = 6
"""2^6 = 64 steps of the power method: at the worst 0.9 % too small for 64 rows and 1.5 % for 512, 0.1 % for weights as they come."""
TINY = 1e-12


def spectral_norm(weight: Tensor) -> Tensor:
    r"""Largest singular value of a weight seen as a matrix `[out, rest]`, differentiable.

    .. math:: u \propto (W W^T)^{64} e_j, \qquad \sigma = \lVert W^T u \rVert

    The smaller of the two Gram matrices is squared six times; e_j picks the longest column of the result, so the start
    is never orthogonal to what is sought. u counts as constant in the gradient, which then is that of sigma itself.

    Args:
        weight: `[out, in]` or `[out, in, h, w]`, of any precision and memory format.

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


def spectrally_normalised(weight: Tensor) -> Tensor:
    """The weight divided by its largest singular value (Miyato et al. 2018, arXiv 1802.05957), in its own precision."""
    normalised: Tensor = (weight.float() / spectral_norm(weight).clamp_min(TINY)).to(weight.dtype)  # rounded once
    return normalised


class SpectralConv2d(nn.Conv2d):
    """A convolution whose weight acts divided by its largest singular value, seen as a matrix `[out, in h w]`."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self._conv_forward(x, spectrally_normalised(self.weight), self.bias)
        return out


class SpectralLinear(Linear):
    """A linear layer whose weight acts divided by its largest singular value.

    Cheap up to widths of about 128; at 512 the singular value costs as much as a small update.
    """

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        return linear(x, spectrally_normalised(self.weight), self.bias)


class ImageLayerNorm(nn.LayerNorm):
    """Layer norm of images `[N, C, H, W]` that leaves them in channels_last memory (Ba et al. 2016, arXiv 1607.06450).

    Args:
        shape: (C, H, W) of one image.
        over: True: over all of C, H and W, a weight for each; "channels": over C at each place, a weight per channel.
    """

    def __init__(self, shape: Shape, over: LayerNorm = True) -> None:
        channels, height, width = shape
        super().__init__((channels,) if over == "channels" else (height, width, channels))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def check_layer_norm(value: Any) -> LayerNorm:
    """`value` if it is False, True or "channels".

    Raises:
        ConfigurationError: it is none of these.
    """
    if value is True or value is False:
        return bool(value)
    if isinstance(value, str) and value == "channels":
        return "channels"
    raise ConfigurationError(f"layer_norm={value!r} is not allowed: give True, False or 'channels'")


def image_norm(shape: Shape, over: LayerNorm) -> list[nn.Module]:
    """The norm that `over` asks for, in a list of none or one."""
    return [ImageLayerNorm(shape, over)] if over else []
