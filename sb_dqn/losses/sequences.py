"""Sequences of steps: valid steps and priorities of replayed ones (R2D2), and the loss of self-prediction (SPR)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def valid_steps(last: Tensor) -> Tensor:
    """Returns a mask of the steps of a sequence that start before the first row at which its stream ends.

    Args:
        last: `[T, N]` bool; True if the stream ends at row t, so that no action starts there.

    Returns:
        `[T, N]` bool.
    """
    return last.cumsum(0) == 0


def sequence_priority(error: Tensor, valid: Tensor, eta: float = 0.9) -> Tensor:
    r"""Combines the largest and the mean absolute error of a sequence into one priority.

    .. math:: p = \eta \max_t |\delta_t| + (1 - \eta) \frac{1}{|V|} \sum_{t \in V} |\delta_t|, \quad t \in V

    Args:
        error: `[T, N]`; ignored at invalid steps, NaN included.
        valid: `[T, N]` bool, the set V of each sequence.
        eta: weight of the largest error, [0, 1].

    Returns:
        `[N]`, >= 0; 0 for a sequence without valid steps.

    Kapturowski et al. 2019 (ICLR).
    """
    magnitude = torch.where(valid, error.abs(), 0.0)
    mean = magnitude.sum(0) / valid.sum(0).clamp_min(1)
    return eta * magnitude.amax(0) + (1.0 - eta) * mean


def self_prediction_loss(predicted: Tensor, projected: Tensor, valid: Tensor) -> Tensor:
    r"""Returns the distance of predictions from projections, `[N]`, each of length 1, averaged over K steps.

    .. math:: l = \frac1K \sum_k m_k \left\| \frac{\hat y_k}{\|\hat y_k\|} - \frac{y_k}{\|y_k\|} \right\|^2

    Args:
        predicted: `[K, N, P]`.
        projected: `[K, N, P]`, without a gradient.
        valid: `[K, N]` bool or float, m; the mean is over all K steps, valid or not.

    Schwarzer et al. 2021, arXiv 2007.05929.
    """
    ours, theirs = (functional.normalize(each.float(), dim=-1) for each in (predicted, projected))
    return ((ours - theirs).square().sum(-1) * valid).mean(0)
