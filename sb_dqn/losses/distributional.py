"""Distributional losses: categorical (C51), quantiles (QR-DQN, IQN), proposed fractions (FQF), and scalar values as classes."""

from __future__ import annotations

import torch
from torch import Tensor

CACHE_ELEMENTS = 2**18
"""Elements per block of pairs: a few float32 tensors of this size fit into a core's second-level cache."""

SORTED_PAIRS = 128 * 128
"""Pairs of a row from which on sums over sorted targets are faster on a CPU than sums over all pairs."""


def project(atoms: Tensor, probabilities: Tensor, support: Tensor, density: Tensor | None = None) -> Tensor:
    r"""Projects a distribution onto a fixed support; splits mass between the two nearest atoms by distance.

    .. math:: m_i = \sum_j \mathrm{clip}\big(1 - |\mathrm{clip}(x_j) - z_i| / \Delta z, 0, 1\big) \, p_j

    Uses the lower neighbor, at most the last but one, and the distance to it. Mass exactly on an atom stays there without
    a special case; with floor and ceiling as neighbors it would be lost.

    Args:
        atoms: `[..., M]` positions of the mass, any order; clipped to the range of the support.
        probabilities: `[..., M]`, >= 0.
        support: `[Z]` evenly spaced, increasing, Z >= 2.
        density: `[]`, atoms of the support per unit of the return; None: computed.

    Returns:
        `[..., Z]` with the same sum as `probabilities`, and the same mean unless atoms were clipped.

    Raises:
        ValueError: the shapes do not match.

    Bellemare et al. 2017, arXiv 1707.06887.
    """
    if atoms.shape != probabilities.shape or support.dim() != 1 or support.shape[0] < 2:
        raise ValueError(
            f"atoms, probabilities and support must have shapes [..., M], [..., M] and [Z] with Z >= 2, got "
            f"{tuple(atoms.shape)}, {tuple(probabilities.shape)} and {tuple(support.shape)}. Reshape them."
        )
    last = support.shape[0] - 1
    density = last / (support[-1] - support[0]) if density is None else density
    place = ((atoms - support[0]) * density).clamp(0, last)
    lower = place.long().clamp(0, last - 1)  # clamped again: NaN turns into the smallest integer
    above = (place - lower) * probabilities
    projected = probabilities.new_zeros(*atoms.shape[:-1], last + 1)
    return projected.scatter_add(-1, lower, probabilities - above).scatter_add(-1, lower + 1, above)


def cross_entropy(probabilities: Tensor, log_probabilities: Tensor) -> Tensor:
    r"""Returns the cross-entropy of a prediction q relative to a target p, :math:`-\sum_i p_i \log q_i`.

    Args:
        probabilities: `[..., Z]` p, the target.
        log_probabilities: `[..., Z]` log q, the prediction.

    Returns:
        `[...]`, >= 0.
    """
    return (-probabilities * log_probabilities).sum(-1)


def kl_divergence(probabilities: Tensor, log_probabilities: Tensor) -> Tensor:
    r"""Returns KL(p || q) of a target p and a prediction q, :math:`\sum_i p_i (\log p_i - \log q_i)`.

    It is the cross-entropy minus the entropy of p: same gradient, different ranking. A perfect prediction has a divergence
    of 0, but a cross-entropy equal to the entropy of the target.

    Args:
        probabilities: `[..., Z]` p, the target.
        log_probabilities: `[..., Z]` log q, the prediction.

    Returns:
        `[...]`, >= 0; negative rounding errors are clamped to 0.
    """
    minus_entropy = torch.xlogy(probabilities, probabilities).sum(-1)
    return (cross_entropy(probabilities, log_probabilities) + minus_entropy).clamp_min(0.0)


def quantile_huber(
    predicted: Tensor, taus: Tensor, target: Tensor, kappa: float = 1.0, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    r"""Computes the quantile Huber loss between every predicted quantile and every target sample.

    .. math:: \sum_i \sum_j w_j \, |\tau_i - 1[\delta_{ij} < 0]| \, L_\kappa(\delta_{ij}) / \kappa, \qquad
        \delta_{ij} = y_j - \theta_i

    with Huber's :math:`L_\kappa`; kappa = 0 is plain quantile regression, :math:`|\tau_i - 1[\delta_{ij} < 0]| \,
    |\delta_{ij}|`. The gradient, :math:`-\sum_j w_j |\tau_i - 1[\delta_{ij} < 0]| \, \mathrm{clip}(\delta_{ij}, -\kappa,
    \kappa) / \kappa`, is computed in the forward pass, so no tensor of size M times M' is stored for the backward pass.

    Args:
        predicted: `[..., M]` values of the quantile function at `taus`; the only input with a gradient, of first order.
        taus: `[..., M]` quantile fractions in [0, 1], broadcast to `predicted`.
        target: `[..., M']` samples of the return, any order.
        kappa: absolute error at which the Huber loss becomes linear, >= 0.
        weights: `[..., M']` weights of the targets, sum 1; None: equal weights.

    Returns:
        The loss `[...]`, summed over predictions and averaged over targets; the mean of :math:`|\delta|` over both,
        `[...]`, without gradient.

    Raises:
        ValueError: the shapes do not match.

    Dabney et al. 2018, arXiv 1710.10044 (there not divided by kappa) and 1806.06923.
    """
    if predicted.shape[:-1] != target.shape[:-1] or taus.shape[-1] != predicted.shape[-1]:
        raise ValueError(
            f"predicted, taus and target must have shapes [..., M], [..., M] and [..., M'], got {tuple(predicted.shape)}, "
            f"{tuple(taus.shape)} and {tuple(target.shape)}. Reshape them."
        )
    with torch.no_grad():
        taus = taus.expand_as(predicted)
        weights = None if weights is None else weights.expand_as(target)
        many = predicted.shape[-1] * target.shape[-1] >= SORTED_PAIRS
        sort = many and predicted.device.type == "cpu" and kappa > torch.finfo(predicted.dtype).tiny
        compute = _by_sorting if sort else _pairwise_in_blocks
        value, gradient, magnitude = compute(predicted, taus, target, weights, kappa)
    return value + _zero_with_gradient(gradient, predicted), magnitude


def _pairwise_in_blocks(
    predicted: Tensor, taus: Tensor, target: Tensor, weights: Tensor | None, kappa: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Applies `_pairwise` to blocks of rows on a CPU, where the pairs of a large batch would not fit into its cache."""
    block = max(1, CACHE_ELEMENTS // max(1, predicted[:1].numel() * target.shape[-1]))
    if predicted.device.type != "cpu" or predicted.dim() < 2 or predicted.shape[0] <= block:
        return _pairwise(predicted, taus, target, weights, kappa)
    parts = []
    for i in range(0, predicted.shape[0], block):
        rows = slice(i, i + block)
        row_weights = None if weights is None else weights[rows]
        parts.append(_pairwise(predicted[rows], taus[rows], target[rows], row_weights, kappa))
    value, gradient, magnitude = (torch.cat(part) for part in zip(*parts, strict=True))
    return value, gradient, magnitude


def _pairwise(
    predicted: Tensor, taus: Tensor, target: Tensor, weights: Tensor | None, kappa: float
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Returns the loss `[...]`, its gradient `[..., M]` and the mean absolute error `[...]`.

    With c = clip(delta, -kappa, kappa), L(delta) = c (delta - c / 2). Since :math:`|\tau - 1[\delta < 0]| = \tau + (1 - 2
    \tau) \, 1[\delta < 0]`, two sums over targets are enough: one of all errors, one of the negative errors. This avoids
    a comparison, which on a CPU takes as long as everything else.
    """
    smooth = kappa > torch.finfo(predicted.dtype).tiny  # a smaller kappa cannot be divided by
    scale = 1.0 / kappa if smooth else 1.0

    def mean_over_targets(x: Tensor) -> Tensor:  # [..., M, M'] -> [..., M]
        return x.mean(-1) if weights is None else (x @ weights.unsqueeze(-1)).squeeze(-1)

    def tau_weighted(x: Tensor, negative: Tensor) -> Tensor:
        return (taus * mean_over_targets(x) + (1.0 - 2.0 * taus) * mean_over_targets(negative)) * scale

    error = target.unsqueeze(-2) - predicted.unsqueeze(-1)  # [..., M, M']
    clipped = error.clamp(-kappa, kappa) if smooth else error.sign()
    negative = clipped.clamp_max(0.0)
    gradient = -tau_weighted(clipped, negative)
    magnitude = torch.linalg.vector_norm(error, 1, (-2, -1)) / (error.shape[-1] * error.shape[-2])
    error.sub_(clipped, alpha=0.5 if smooth else 0.0)
    return tau_weighted(clipped.mul_(error), negative.mul_(error)).sum(-1), gradient, magnitude


def _by_sorting(
    predicted: Tensor, taus: Tensor, target: Tensor, weights: Tensor | None, kappa: float
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Returns what `_pairwise` returns, kappa > 0, in :math:`O((M + M') \log M')` instead of :math:`O(M M')`.

    The targets are sorted once. Those of a prediction :math:`\theta` are then four ranges, with borders :math:`\theta -
    \kappa`, :math:`\theta` and :math:`\theta + \kappa`. The loss is linear or quadratic in each, so differences of
    cumulative sums of :math:`w`, :math:`w y` and :math:`w y^2` are enough. Sums of squares cancel: that is why float64 and
    targets relative to their mean.
    """
    size = target.shape[-1]
    y, order = target.sort(-1)
    y = y.double()
    shift = y.mean(-1, keepdim=True)
    y, theta = y - shift, predicted.double() - shift
    w = torch.full_like(y, 1 / size) if weights is None else weights.double().gather(-1, order)
    borders = torch.cat([theta - kappa, theta, theta + kappa], -1)
    below = torch.searchsorted(y, borders)  # [..., 3 M]: the number of targets below each border

    def up_to(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # sums below the borders, and of all: 4 x [..., M]
        sums = torch.cat([torch.zeros_like(x[..., :1]), x.cumsum(-1)], -1)
        low, middle, high = sums.gather(-1, below).chunk(3, -1)
        return low, middle, high, sums[..., -1:]

    w_low, w_middle, w_high, w_all = up_to(w)
    y_low, y_middle, y_high, y_all = up_to(w * y)
    s_low, s_middle, s_high, _ = up_to(w * y * y)

    def quadratic(w: Tensor, y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:  # sums of delta and of delta^2 / 2
        return y - w * theta, 0.5 * s + theta * (0.5 * theta * w - y)

    near_below, loss_below = quadratic(w_middle - w_low, y_middle - y_low, s_middle - s_low)
    near_above, loss_above = quadratic(w_high - w_middle, y_high - y_middle, s_high - s_middle)
    far_below, far_above = w_low, w_all - w_high
    negative = near_below - kappa * far_below  # sum of the clipped negative errors
    positive = near_above + kappa * far_above
    loss_below = loss_below + kappa * (theta * far_below - y_low - 0.5 * kappa * far_below)
    loss_above = loss_above + kappa * (y_all - y_high - (theta + 0.5 * kappa) * far_above)
    gradient = -(taus * positive + (1.0 - taus) * negative) / kappa
    value = (taus * loss_above + (1.0 - taus) * loss_below).sum(-1) / kappa
    if weights is not None:  # the magnitude is unweighted
        w = torch.full_like(y, 1 / size)
        (_, w_middle, _, w_all), (_, y_middle, _, y_all) = up_to(w), up_to(w * y)
    magnitude = (theta * (2.0 * w_middle - w_all) + y_all - 2.0 * y_middle).mean(-1)
    dtype = predicted.dtype
    return value.to(dtype), gradient.to(dtype), magnitude.to(dtype)


def fraction_loss(fractions: Tensor, at_fractions: Tensor, at_midpoints: Tensor) -> Tensor:
    r"""Computes the loss that minimizes the 1-Wasserstein distance of the quantile function to its step approximation.

    .. math:: \frac{\partial W_1}{\partial \tau_i} = 2 F^{-1}(\tau_i) - F^{-1}(\hat\tau_i) - F^{-1}(\hat\tau_{i-1})

    Only the gradient of the distance is known, not its value: the loss has this gradient and the value 0.

    Args:
        fractions: `[..., M-1]` inner fractions :math:`\tau_1` to :math:`\tau_{M-1}`; the only input with a gradient.
        at_fractions: `[..., M-1]` quantile function at `fractions`.
        at_midpoints: `[..., M]` quantile function at :math:`\hat\tau_i = (\tau_i + \tau_{i+1}) / 2`, i from 0.

    Returns:
        `[...]`, zeros.

    Raises:
        ValueError: the shapes do not match.

    Yang et al. 2019, arXiv 1911.02140, equation 6 (proposition 1).
    """
    if not fractions.shape[-1] == at_fractions.shape[-1] == at_midpoints.shape[-1] - 1:
        raise ValueError(
            f"fractions, at_fractions and at_midpoints must have shapes [..., M-1], [..., M-1] and [..., M], got "
            f"{tuple(fractions.shape)}, {tuple(at_fractions.shape)} and {tuple(at_midpoints.shape)}. Reshape them."
        )
    gradient = (2.0 * at_fractions - at_midpoints[..., 1:] - at_midpoints[..., :-1]).detach()
    return _zero_with_gradient(gradient, fractions)


def _zero_with_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    """Returns zeros `[...]` whose gradient with respect to `x` `[..., M]` is `gradient` `[..., M]`."""
    return (gradient * (x - x.detach())).sum(-1)


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
