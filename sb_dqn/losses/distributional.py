"""Losses on whole distributions of the return: categorical (C51), quantiles (QR-DQN, IQN), proposed fractions (FQF)."""

from __future__ import annotations

import torch
from torch import Tensor

IN_CACHE = 2**18
"""Numbers of float32 of which a few times as many fit into the second-level cache of a core."""


def project(atoms: Tensor, probabilities: Tensor, support: Tensor) -> Tensor:
    r"""Projects a distribution onto a fixed support; mass between two atoms is shared by nearness.

    .. math:: m_i = \sum_j \mathrm{clip}\big(1 - |\mathrm{clip}(x_j) - z_i| / \Delta z, 0, 1\big) \, p_j

    It is computed by the lower neighbour and the distance to it. The lower neighbour is at most the last but one, so what
    lies on an atom goes there whole, and no case of its own is needed; by floor and ceiling that mass is lost.

    Args:
        atoms: `[..., M]` where the mass lies, any numbers, in any order; outside of the support they count as its ends.
        probabilities: `[..., M]`, >= 0.
        support: `[Z]` evenly spaced and rising, Z >= 2.

    Returns:
        `[..., Z]` with the same sum as `probabilities`. Its mean is theirs unless atoms lie outside.

    Raises:
        ValueError: the shapes do not fit.

    Bellemare et al. 2017, arXiv 1707.06887.
    """
    if atoms.shape != probabilities.shape or support.dim() != 1 or support.shape[0] < 2:
        raise ValueError(
            f"atoms {tuple(atoms.shape)}, probabilities {tuple(probabilities.shape)} and support {tuple(support.shape)} "
            f"do not belong together: give [..., M], [..., M] and [Z] with Z from 2 up"
        )
    last = support.shape[0] - 1
    place = ((atoms - support[0]) * (last / (support[-1] - support[0]))).clamp(0, last)
    lower = place.long().clamp(0, last - 1)  # clamped again: NaN turns into the smallest integer
    above = (place - lower) * probabilities
    projected = probabilities.new_zeros(*atoms.shape[:-1], last + 1)
    return projected.scatter_add(-1, lower, probabilities - above).scatter_add(-1, lower + 1, above)


def cross_entropy(probabilities: Tensor, log_probabilities: Tensor) -> Tensor:
    r"""Of predictions under the truth, :math:`-\sum_i p_i \log q_i`.

    Args:
        probabilities: `[..., Z]` p, the truth.
        log_probabilities: `[..., Z]` log q, the prediction.

    Returns:
        `[...]`, >= 0.
    """
    return -(probabilities * log_probabilities).sum(-1)


def entropy(probabilities: Tensor) -> Tensor:
    r""":math:`-\sum_i p_i \log p_i`, where 0 log 0 is 0: `[..., Z]` -> `[...]`."""
    return -torch.xlogy(probabilities, probabilities).sum(-1)


def kl_divergence(probabilities: Tensor, log_probabilities: Tensor) -> Tensor:
    r"""From predictions to the truth, :math:`\sum_i p_i (\log p_i - \log q_i)`: cross-entropy less the entropy of p.

    Its gradient is that of the cross-entropy. Its order is not: a prediction that is right has a divergence of 0, but the
    cross-entropy of whatever the truth is uncertain of.

    Args:
        probabilities: `[..., Z]` p, the truth.
        log_probabilities: `[..., Z]` log q, the prediction.

    Returns:
        `[...]`, >= 0; what rounding leaves below is 0.
    """
    return (cross_entropy(probabilities, log_probabilities) - entropy(probabilities)).clamp_min(0.0)


def quantile_huber(
    predicted: Tensor, taus: Tensor, target: Tensor, kappa: float = 1.0, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    r"""Quantile regression of every predicted quantile towards every target, rounded near 0.

    .. math:: \sum_i \sum_j w_j \, |\tau_i - 1[\delta_{ij} < 0]| \, L_\kappa(\delta_{ij}) / \kappa, \qquad
        \delta_{ij} = y_j - \theta_i

    with Huber's :math:`L_\kappa`; kappa 0 is plain quantile regression, :math:`|\tau_i - 1[\delta_{ij} < 0]| \,
    |\delta_{ij}|`. The gradient, :math:`-\sum_j w_j |\tau_i - 1[\delta_{ij} < 0]| \, \mathrm{clip}(\delta_{ij}, -\kappa,
    \kappa) / \kappa`, is made on the way, so nothing of size M times M' is kept for a backward pass.

    Args:
        predicted: `[..., M]` the quantile function at `taus`; gradients flow into it alone, of the first order.
        taus: `[..., M]` in [0, 1], broadcast to `predicted`.
        target: `[..., M']` samples of the return, in any order.
        kappa: where Huber's line begins, >= 0.
        weights: `[..., M']` of the targets, sum 1; None: all alike.

    Returns:
        The loss `[...]`: a sum over predictions, a mean over targets. And the mean of :math:`|\delta|` over both `[...]`,
        without gradient.

    Raises:
        ValueError: the shapes do not fit.

    Dabney et al. 2018, arXiv 1710.10044 (there not divided by kappa) and 1806.06923.
    """
    if predicted.shape[:-1] != target.shape[:-1] or taus.shape[-1] != predicted.shape[-1]:
        raise ValueError(
            f"predictions {tuple(predicted.shape)}, fractions {tuple(taus.shape)} and targets {tuple(target.shape)} do not "
            f"belong together: give [..., M], [..., M] and [..., M']"
        )
    with torch.no_grad():
        taus, weights = taus.expand_as(predicted), None if weights is None else weights.expand_as(target)
        value, slope, magnitude = _blocks_of_pairs(predicted, taus, target, weights, kappa)
    return value + _slope_alone(slope, predicted), magnitude


def _blocks_of_pairs(
    predicted: Tensor, taus: Tensor, target: Tensor, weights: Tensor | None, kappa: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`_all_pairs` of some rows at a time, where the numbers of all would not fit into a CPU's cache."""
    rows = max(1, IN_CACHE // max(1, predicted[:1].numel() * target.shape[-1]))
    if predicted.device.type != "cpu" or predicted.dim() < 2 or predicted.shape[0] <= rows:
        return _all_pairs(predicted, taus, target, weights, kappa)
    parts = []
    for i in range(0, predicted.shape[0], rows):
        some = slice(i, i + rows)
        counting = None if weights is None else weights[some]
        parts.append(_all_pairs(predicted[some], taus[some], target[some], counting, kappa))
    value, slope, magnitude = (torch.cat(part) for part in zip(*parts, strict=True))
    return value, slope, magnitude


def _all_pairs(
    predicted: Tensor, taus: Tensor, target: Tensor, weights: Tensor | None, kappa: float
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Loss `[...]`, its slope `[..., M]` and the mean of the absolute error `[...]`.

    With c = clip(delta, -kappa, kappa), L(delta) is c (delta - c / 2). As :math:`|\tau - 1[\delta < 0]| = \tau + (1 - 2
    \tau) \, 1[\delta < 0]`, two sums over targets do, one of everything and one of what is below 0: no comparison, which
    on a CPU takes as long as all the rest.
    """
    rounds = kappa > torch.finfo(predicted.dtype).tiny  # below it there is nothing to divide by
    scale = 1.0 / kappa if rounds else 1.0

    def over_targets(x: Tensor) -> Tensor:  # [..., M, M'] -> [..., M]
        return x.mean(-1) if weights is None else (x @ weights.unsqueeze(-1)).squeeze(-1)

    def by_sign(x: Tensor, below: Tensor) -> Tensor:
        return (taus * over_targets(x) + (1.0 - 2.0 * taus) * over_targets(below)) * scale

    error = target.unsqueeze(-2) - predicted.unsqueeze(-1)  # [..., M, M']
    clipped = error.clamp(-kappa, kappa) if rounds else error.sign()
    below = clipped.clamp_max(0.0)
    slope = -by_sign(clipped, below)
    magnitude = torch.linalg.vector_norm(error, 1, (-2, -1)) / (error.shape[-1] * error.shape[-2])
    error.sub_(clipped, alpha=0.5 if rounds else 0.0)
    return by_sign(clipped.mul_(error), below.mul_(error)).sum(-1), slope, magnitude


def fraction_loss(fractions: Tensor, at_fractions: Tensor, at_midpoints: Tensor) -> Tensor:
    r"""Moves fractions to where the staircase of quantiles is nearest to the quantile function, in 1-Wasserstein distance.

    .. math:: \frac{\partial W_1}{\partial \tau_i} = 2 F^{-1}(\tau_i) - F^{-1}(\hat\tau_i) - F^{-1}(\hat\tau_{i-1})

    The distance itself is not known, only its slope: the loss has that gradient, and the value 0.

    Args:
        fractions: `[..., M-1]` the inner ones, :math:`\tau_1` to :math:`\tau_{M-1}`; gradients flow into them alone.
        at_fractions: `[..., M-1]` the quantile function there.
        at_midpoints: `[..., M]` the quantile function at :math:`\hat\tau_i = (\tau_i + \tau_{i+1}) / 2`, i from 0.

    Returns:
        `[...]`, zeros.

    Raises:
        ValueError: the shapes do not fit.

    Yang et al. 2019, arXiv 1911.02140, equation 6 (proposition 1).
    """
    slope = fraction_gradient(at_fractions, at_midpoints)
    if fractions.shape[-1] != slope.shape[-1]:
        raise ValueError(f"{fractions.shape[-1]} inner fractions do not belong to {at_midpoints.shape[-1]} midpoints")
    return _slope_alone(slope, fractions)


def fraction_gradient(at_fractions: Tensor, at_midpoints: Tensor) -> Tensor:
    r"""The slope of the distance in `fraction_loss`: `[..., M-1]` and `[..., M]` -> `[..., M-1]`, no gradient.

    Raises:
        ValueError: the shapes do not fit.
    """
    if at_fractions.shape[-1] + 1 != at_midpoints.shape[-1]:
        raise ValueError(
            f"quantiles {tuple(at_fractions.shape)} and {tuple(at_midpoints.shape)} do not belong together: give [..., M-1] "
            f"at the inner fractions and [..., M] at the midpoints"
        )
    return (2.0 * at_fractions - at_midpoints[..., 1:] - at_midpoints[..., :-1]).detach()


def _slope_alone(slope: Tensor, x: Tensor) -> Tensor:
    """Value 0 and, as gradient with respect to `x` `[..., M]`, `slope` `[..., M]`."""
    return (slope * (x - x.detach())).sum(-1)
