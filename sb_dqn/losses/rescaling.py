"""Invertible value rescaling (R2D2)."""

from __future__ import annotations

import torch
from torch import Tensor


def rescale(x: Tensor, eps: float = 1e-3) -> Tensor:
    r"""Compresses large returns, so that games with different score ranges can share a learning rate.

    .. math:: h(x) = \mathrm{sgn}(x) \big(\sqrt{|x| + 1} - 1\big) + \epsilon x

    Args:
        x: any shape.
        eps: slope for large values, >= 0.

    Returns:
        The shape of `x`.

    Pohlen et al. 2018, arXiv 1805.11593; in R2D2: Kapturowski et al. 2019 (ICLR).
    """
    return x / ((x.abs() + 1.0).sqrt() + 1.0) + eps * x  # equals sgn(x) (sqrt(|x| + 1) - 1), without cancellation


def unscale(y: Tensor, eps: float = 1e-3) -> Tensor:
    r"""Inverts `rescale`.

    .. math:: h^{-1}(y) = \mathrm{sgn}(y) \left(\Big(\frac{\sqrt{1 + 4 \epsilon (|y| + 1 + \epsilon)} - 1}
        {2 \epsilon}\Big)^2 - 1\right)

    The fraction is computed as :math:`u = 2 (|y| + 1 + \epsilon) / (1 + \sqrt{\cdot})`, which is accurate for small values
    and defined for an epsilon of 0.

    Args:
        y: any shape.
        eps: epsilon of `rescale`.

    Returns:
        The shape of `y`.
    """
    size = y.abs()
    u = 2.0 * (size + 1.0 + eps) / (1.0 + torch.sqrt(1.0 + 4.0 * eps * (size + 1.0 + eps)))
    return y.sign() * (u * u - 1.0)


def rescaled_target(return_: Tensor, discount: Tensor, value_t: Tensor, eps: float = 1e-3) -> Tensor:
    r"""Returns the TD target of a rescaled value.

    .. math:: y = h\big(R + \gamma_t \, h^{-1}(v_t)\big)

    Args:
        return_: `[...]` n-step return, not rescaled.
        discount: `[...]` gamma^m, 0 after a termination.
        value_t: `[...]` rescaled value of the observation after the n steps.
        eps: epsilon of `rescale`.

    Returns:
        `[...]`.
    """
    return rescale(return_ + discount * unscale(value_t, eps), eps)
