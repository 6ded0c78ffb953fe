"""Sequence replay: valid steps and sequence priorities (R2D2)."""

from __future__ import annotations

import torch
from torch import Tensor


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
