"""Temporal-difference losses, the penalty of conservative Q-learning, and the weighted batch mean."""

from __future__ import annotations

import torch
from torch import Tensor


def huber(error: Tensor, kappa: float = 1.0) -> Tensor:
    r"""Returns the Huber loss: :math:`\frac12 \delta^2` up to kappa, :math:`\kappa(|\delta| - \frac12 \kappa)` beyond.

    Args:
        error: any shape.
        kappa: absolute error at which the loss becomes linear, > 0.

    Returns:
        The shape of `error`.
    """
    return torch.nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=kappa)


def squared(error: Tensor) -> Tensor:
    r"""Returns half of the squared error, :math:`\frac12 \delta^2`; its gradient is the error, as for Huber near 0."""
    return 0.5 * error * error


def conservative_penalty(q: Tensor, action: Tensor) -> Tensor:
    r"""Returns how far the soft maximum of the values is above the value of the action taken (Kumar et al. 2020, arXiv 2006.04779).

    .. math:: \log \sum_{a'} \exp q(a') - q(a)

    Args:
        q: `[..., A]`; values of illegal actions are very small.
        action: `[...]` int64.

    Returns:
        `[...]`, >= 0; its gradient is the softmax of q minus 1 at the action taken.
    """
    taken: Tensor = q.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    return q.logsumexp(-1) - taken


def weighted_mean(loss: Tensor, weight: Tensor) -> Tensor:
    r"""Returns the weighted mean over the rows of positive weight.

    .. math:: \sum_i w_i l_i / \max(1, |\{i : w_i > 0\}|)

    Args:
        loss: `[N]`; ignored in rows of weight 0, NaN included.
        weight: `[N]`, >= 0.

    Returns:
        A scalar.
    """
    valid = weight > 0
    return torch.dot(weight / valid.sum().clamp_min(1), torch.where(valid, loss, 0.0))
