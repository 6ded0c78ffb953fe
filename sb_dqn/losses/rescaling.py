"""Values on a scale on which large ones lie closer together, and the way back."""

from __future__ import annotations

import torch
from torch import Tensor


def rescale(x: Tensor, eps: float = 1e-3) -> Tensor:
    r"""Squashes returns, so that a game of thousands and one of ones can be learned at the same rate.

    .. math:: h(x) = \mathrm{sgn}(x) \big(\sqrt{|x| + 1} - 1\big) + \epsilon x

    Args:
        x: any shape.
        eps: slope that is left for large values, >= 0.

    Returns:
        The shape of `x`.

    Pohlen et al. 2018, arXiv 1805.11593; in R2D2: Kapturowski et al. 2019 (ICLR).
    """
    return x / ((x.abs() + 1.0).sqrt() + 1.0) + eps * x  # the square root less 1, without cancellation


def unscale(y: Tensor, eps: float = 1e-3) -> Tensor:
    r"""The inverse of `rescale`.

    .. math:: h^{-1}(y) = \mathrm{sgn}(y) \left(\Big(\frac{\sqrt{1 + 4 \epsilon (|y| + 1 + \epsilon)} - 1}
        {2 \epsilon}\Big)^2 - 1\right)

    Computed as :math:`u = 2 (|y| + 1 + \epsilon) / (1 + \sqrt{\cdot})`, which loses no digits for small values and takes an
    epsilon of 0.

    Args:
        y: any shape.
        eps: that of `rescale`.

    Returns:
        The shape of `y`.
    """
    size = y.abs()
    u = 2.0 * (size + 1.0 + eps) / (1.0 + torch.sqrt(1.0 + 4.0 * eps * (size + 1.0 + eps)))
    return y.sign() * (u * u - 1.0)


def rescaled_target(return_: Tensor, discount: Tensor, value_t: Tensor, eps: float = 1e-3) -> Tensor:
    r"""What a rescaled value is drawn to.

    .. math:: y = h\big(R + \gamma_t \, h^{-1}(v_t)\big)

    Args:
        return_: `[...]` n-step sums of rewards as they are.
        discount: `[...]` gamma^m, 0 after a termination.
        value_t: `[...]` rescaled value of the observation that the steps led to.
        eps: of `rescale`.

    Returns:
        `[...]`.
    """
    return rescale(return_ + discount * unscale(value_t, eps), eps)
