"""Scalar values as classes: targets over bins (HL-Gauss, two-hot)."""

from __future__ import annotations

import torch
from torch import Tensor


def hl_gauss(values: Tensor, edges: Tensor, sigma: float | Tensor) -> Tensor:
    r"""Spreads values over bins by a normal distribution around each, cut off at the ends of the range.

    .. math:: p_i(y) = \frac{\Phi\big((e_{i+1} - y) / \sigma\big) - \Phi\big((e_i - y) / \sigma\big)}
        {\Phi\big((e_m - y) / \sigma\big) - \Phi\big((e_0 - y) / \sigma\big)}

    Args:
        values: `[...]` y; clipped to the range of the edges.
        edges: `[m + 1]` e, increasing.
        sigma: standard deviation, above 0, in units of the edges.

    Returns:
        `[..., m]`, >= 0, sum 1. The mean over the centers of the bins is y but for values within about three sigmas of an end.

    Farebrother et al. 2024, arXiv 2403.03950.
    """
    y = values.clamp(edges[0], edges[-1]).unsqueeze(-1)
    below = torch.erf((edges - y) * (0.5**0.5 / sigma))  # 2 Phi - 1, whose differences have the same ratios
    return (below[..., 1:] - below[..., :-1]) / (below[..., -1:] - below[..., :1])


def two_hot(values: Tensor, centers: Tensor) -> Tensor:
    r"""Splits values between the two nearest centers, so that the mean over the centers is the value.

    .. math:: p_i(y) = \frac{c_{i+1} - y}{c_{i+1} - c_i}, \qquad p_{i+1}(y) = \frac{y - c_i}{c_{i+1} - c_i}

    Args:
        values: `[...]` y; clipped to the range of the centers.
        centers: `[m]` c, increasing, evenly spaced or not, m >= 2.

    Returns:
        `[..., m]`, >= 0, sum 1.
    """
    y = values.clamp(centers[0], centers[-1])
    lower = (torch.searchsorted(centers, y.contiguous(), right=True) - 1).clamp(0, len(centers) - 2)
    start, end = centers.take(lower), centers.take(lower + 1)
    above = ((y - start) / (end - start)).unsqueeze(-1)
    none = above.new_zeros(*y.shape, len(centers))
    lower = lower.unsqueeze(-1)
    return none.scatter_add(-1, lower, 1.0 - above).scatter_add(-1, lower + 1, above)
