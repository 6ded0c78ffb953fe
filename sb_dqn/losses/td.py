"""Losses on temporal-difference errors, and the one mean over a batch."""

from __future__ import annotations

import torch
from torch import Tensor


def huber(error: Tensor, kappa: float = 1.0) -> Tensor:
    r"""Quadratic up to kappa, linear beyond: :math:`\frac12 \delta^2` or :math:`\kappa(|\delta| - \frac12 \kappa)`.

    Args:
        error: any shape.
        kappa: where the line begins, > 0.

    Returns:
        The shape of `error`.
    """
    return torch.nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=kappa)


def squared(error: Tensor) -> Tensor:
    r"""Half of the square, :math:`\frac12 \delta^2`, so that its gradient is the error, as Huber's is near 0."""
    return 0.5 * error * error


def weighted_mean(loss: Tensor, weight: Tensor) -> Tensor:
    r"""Mean over the rows that count.

    .. math:: \sum_i w_i l_i / \max(1, |\{i : w_i > 0\}|)

    Args:
        loss: `[N]`; rows of weight 0 may hold anything, NaN included.
        weight: `[N]`, >= 0.

    Returns:
        A scalar.
    """
    counts = weight > 0
    return torch.dot(weight / counts.sum().clamp_min(1), torch.where(counts, loss, 0.0))
