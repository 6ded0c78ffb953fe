"""What belongs to sequences: which of their steps count, and one priority for all of them."""

from __future__ import annotations

import torch
from torch import Tensor


def valid_steps(last: Tensor) -> Tensor:
    """The steps of a sequence that count: those that leave a row before the first one at which its stream ends.

    Args:
        last: `[T, N]` bool, the stream ends at row t: no action leaves it.

    Returns:
        `[T, N]` bool.
    """
    return last.cumsum(0) == 0


def sequence_priority(error: Tensor, valid: Tensor, eta: float = 0.9) -> Tensor:
    r"""Mostly the largest error of a sequence, a little their mean.

    .. math:: p = \eta \max_t |\delta_t| + (1 - \eta) \frac{1}{|V|} \sum_{t \in V} |\delta_t|, \quad t \in V

    Args:
        error: `[T, N]`; steps that do not count may hold anything.
        valid: `[T, N]` bool, the set V of each sequence.
        eta: 0..1.

    Returns:
        `[N]`, >= 0; 0 where no step counts.

    Kapturowski et al. 2019 (ICLR).
    """
    size = torch.where(valid, error.abs(), 0.0)
    mean = size.sum(0) / valid.sum(0).clamp_min(1)
    return eta * size.amax(0) + (1.0 - eta) * mean
