"""Policy-gradient losses (REINFORCE, A2C, PPO), baselines and statistics.

`logp` is the log-probability of the action taken under the policy being trained, `old_logp` under the policy that acted.
Losses are per sample, `[N]`; statistics use only the samples of positive weight.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sb_dqn.losses.td import weighted_mean


def policy_gradient(logp: Tensor, advantage: Tensor) -> Tensor:
    r"""Returns the loss whose gradient is the policy gradient (Williams 1992, doi 10.1007/BF00992696).

    .. math:: l = -A \log \pi(a | o)

    Args:
        logp: `[N]`.
        advantage: `[N]`; detached.

    Returns:
        `[N]`.
    """
    return -advantage.detach() * logp


def clipped_surrogate(logp: Tensor, old_logp: Tensor, advantage: Tensor, clip: Tensor) -> Tensor:
    r"""Returns the negated clipped objective of PPO (Schulman et al. 2017, arXiv 1707.06347).

    .. math:: l = -\min\big(\rho A,\ \mathrm{clip}(\rho, 1 - c, 1 + c)\, A\big), \quad
        \rho = \pi(a | o) / \pi_{old}(a | o)

    Args:
        logp, old_logp, advantage: `[N]`.
        clip: scalar c, > 0.

    Returns:
        `[N]`; without gradient where the ratio is outside of the clip range in the direction of the advantage.
    """
    ratio = (logp - old_logp).exp()
    return -torch.min(advantage * ratio, advantage * ratio.clamp(1.0 - clip, 1.0 + clip))


def clipped_value(value: Tensor, old_value: Tensor, clip: Tensor) -> Tensor:
    r"""Clips a value prediction to within `clip` of the prediction at collection time, as in Stable-Baselines3.

    .. math:: v_{old} + \mathrm{clip}(v - v_{old}, -c, c)

    Args:
        value, old_value: `[N]`.
        clip: scalar c, > 0, in units of the return.

    Returns:
        `[N]`.
    """
    return old_value + (value - old_value).clamp(-clip, clip)


def normalized(advantage: Tensor, weight: Tensor, eps: float = 1e-8) -> Tensor:
    r"""Normalizes advantages to mean 0 and standard deviation 1 over the samples of positive weight.

    A single sample is returned unchanged.

    .. math:: (A - \mathrm{mean}) / (\mathrm{std} + \varepsilon), \quad
        \mathrm{std}^2 = \tfrac{1}{n - 1} \sum_i (A_i - \mathrm{mean})^2

    Args:
        advantage: `[N]`.
        weight: `[N]`, >= 0.
        eps: added to the standard deviation.

    Returns:
        `[N]`; finite where the advantages are.
    """
    valid = weight > 0
    number = valid.sum()
    mean = torch.where(valid, advantage, 0.0).sum() / number.clamp_min(1)
    centered = torch.where(valid, advantage - mean, 0.0)
    std = ((centered * centered).sum() / (number - 1).clamp_min(1)).sqrt()
    return torch.where(number > 1, centered / (std + eps), advantage)


def mean_baseline(return_: Tensor, step: Tensor) -> Tensor:
    """Returns the mean of all returns as the baseline of each.

    Args:
        return_: `[M]`.
        step: `[M]` int64, unused.

    Returns:
        `[M]`.
    """
    return return_.mean().expand_as(return_)


def step_mean_baseline(return_: Tensor, step: Tensor) -> Tensor:
    """Returns for each sample the mean return over the episodes at the same step.

    At a step that only one episode reached, the baseline is the return itself.

    Args:
        return_: `[M]`.
        step: `[M]` int64, steps since the reset, >= 0.

    Returns:
        `[M]`.
    """
    sums = return_.new_zeros(int(step.max()) + 1)
    counts = torch.zeros_like(sums)
    sums.index_add_(0, step, return_)
    counts.index_add_(0, step, torch.ones_like(return_))
    return (sums / counts)[step]


def approximate_kl(logp: Tensor, old_logp: Tensor, weight: Tensor) -> Tensor:
    r"""Estimates KL(old || new), the divergence of the policy from the one that acted; never negative.

    .. math:: \mathrm{mean}\big(\rho - 1 - \log \rho\big)

    See http://joschu.net/blog/kl-approx.html.

    Args:
        logp, old_logp, weight: `[N]`.

    Returns:
        A scalar, >= 0.
    """
    log_ratio = logp - old_logp
    return weighted_mean(torch.expm1(log_ratio) - log_ratio, weight)


def clip_fraction(logp: Tensor, old_logp: Tensor, weight: Tensor, clip: Tensor) -> Tensor:
    """Returns the fraction of samples, a scalar in [0, 1], with a ratio outside of `1 - clip .. 1 + clip`."""
    return weighted_mean((((logp - old_logp).exp() - 1.0).abs() > clip).float(), weight)


def explained_variance(value: Tensor, return_: Tensor, weight: Tensor) -> Tensor:
    r"""Returns the fraction of the variance of the returns that the values explain.

    1 is a perfect prediction, 0 no better than a constant, negative worse than a constant.

    .. math:: 1 - \mathrm{Var}(G - v) / \mathrm{Var}(G)

    Args:
        value, return_, weight: `[N]`.

    Returns:
        A scalar; NaN if all returns are equal.
    """
    valid = weight > 0
    value = value[valid]
    return_ = return_[valid]
    variance = return_.var(correction=0)
    explained = 1.0 - (return_ - value).var(correction=0) / variance
    return torch.where(variance == 0, torch.nan, explained)
