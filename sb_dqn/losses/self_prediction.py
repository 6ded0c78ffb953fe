"""Loss of self-prediction (Schwarzer et al. 2021, arXiv 2007.05929)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def self_prediction_loss(predicted: Tensor, projected: Tensor, valid: Tensor) -> Tensor:
    r"""Returns the distance of predictions from projections, `[N]`, each of length 1, averaged over K steps.

    .. math:: l = \frac1K \sum_k m_k \left\| \frac{\hat y_k}{\|\hat y_k\|} - \frac{y_k}{\|y_k\|} \right\|^2

    Args:
        predicted: `[K, N, P]`.
        projected: `[K, N, P]`, without a gradient.
        valid: `[K, N]` bool or float, m; the mean is over all K steps, valid or not.
    """
    ours, theirs = (functional.normalize(each.float(), dim=-1) for each in (predicted, projected))
    return ((ours - theirs).square().sum(-1) * valid).mean(0)
