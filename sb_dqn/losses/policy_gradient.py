"""Policy gradients: what an action's probability gains by its advantage, and what keeps the step small.

`logp` is the log-probability of the action that was taken, by the policy that learns; `old_logp` by the one that acted. Losses
are per sample, `[N]`; statistics count the samples of positive weight alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sb_dqn.losses.td import weighted_mean


def policy_gradient(logp: Tensor, advantage: Tensor) -> Tensor:
    r"""The loss whose gradient is the policy gradient (Williams 1992, doi 10.1007/BF00992696).

    .. math:: l = -A \log \pi(a | o)

    Args:
        logp: `[N]`.
        advantage: `[N]`; no gradient goes through it.

    Returns:
        `[N]`.
    """
    return -advantage.detach() * logp


def clipped_surrogate(logp: Tensor, old_logp: Tensor, advantage: Tensor, clip: Tensor) -> Tensor:
    r"""PPO's objective, negated (Schulman et al. 2017, arXiv 1707.06347).

    .. math:: l = -\min\big(\rho A,\ \mathrm{clip}(\rho, 1 - c, 1 + c)\, A\big), \quad
        \rho = \pi(a | o) / \pi_{old}(a | o)

    Args:
        logp, old_logp, advantage: `[N]`.
        clip: scalar c, above 0.

    Returns:
        `[N]`; no gradient where the ratio has left the range in the direction that the advantage asks for.
    """
    ratio = (logp - old_logp).exp()
    return -torch.min(advantage * ratio, advantage * ratio.clamp(1.0 - clip, 1.0 + clip))


def clipped_value(value: Tensor, old_value: Tensor, clip: Tensor) -> Tensor:
    r"""A value that may move no further than `clip` from what it was when the sample was made, as Stable-Baselines3 has it.

    .. math:: v_{old} + \mathrm{clip}(v - v_{old}, -c, c)

    Args:
        value, old_value: `[N]`.
        clip: scalar c, above 0, in units of the return.

    Returns:
        `[N]`.
    """
    return old_value + (value - old_value).clamp(-clip, clip)


def normalised(advantage: Tensor, weight: Tensor, eps: float = 1e-8) -> Tensor:
    r"""Advantages with mean 0 and deviation 1 over the samples that count; a single one stays as it is.

    .. math:: (A - \mathrm{mean}) / (\mathrm{std} + \varepsilon), \quad
        \mathrm{std}^2 = \tfrac{1}{n - 1} \sum_i (A_i - \mathrm{mean})^2

    Args:
        advantage: `[N]`.
        weight: `[N]`, >= 0.
        eps: added to the deviation.

    Returns:
        `[N]`; finite where the advantages are.
    """
    counts = weight > 0
    number = counts.sum()
    mean = torch.where(counts, advantage, 0.0).sum() / number.clamp_min(1)
    off = torch.where(counts, advantage - mean, 0.0)
    std = ((off * off).sum() / (number - 1).clamp_min(1)).sqrt()
    return torch.where(number > 1, off / (std + eps), advantage)


def mean_baseline(return_: Tensor, step: Tensor) -> Tensor:
    """The mean of all returns, for each of them.

    Args:
        return_: `[M]`.
        step: `[M]` int64, not looked at.

    Returns:
        `[M]`.
    """
    return return_.mean().expand_as(return_)


def step_mean_baseline(return_: Tensor, step: Tensor) -> Tensor:
    """For each return the mean of those of the same step of an episode; of a step that one episode alone reached, its own.

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
    r"""How far the policy has moved from the one that acted: an estimate of KL(old, new) that is never negative.

    .. math:: \mathrm{mean}\big(\rho - 1 - \log \rho\big)

    (http://joschu.net/blog/kl-approx.html.)

    Args:
        logp, old_logp, weight: `[N]`.

    Returns:
        A scalar, >= 0.
    """
    log_ratio = logp - old_logp
    return weighted_mean(torch.expm1(log_ratio) - log_ratio, weight)


def clip_fraction(logp: Tensor, old_logp: Tensor, weight: Tensor, clip: Tensor) -> Tensor:
    """Share of the samples, a scalar in [0, 1], whose ratio has left the range `1 - clip .. 1 + clip`."""
    return weighted_mean((((logp - old_logp).exp() - 1.0).abs() > clip).float(), weight)


def explained_variance(value: Tensor, return_: Tensor, weight: Tensor) -> Tensor:
    r"""How much of the spread of the returns the values foresaw: 1 all of it, 0 none, below 0 worse than a constant.

    .. math:: 1 - \mathrm{Var}(G - v) / \mathrm{Var}(G)

    Args:
        value, return_, weight: `[N]`.

    Returns:
        A scalar; NaN where all returns are the same.
    """
    counts = weight > 0
    value, return_ = value[counts], return_[counts]
    spread = return_.var(correction=0)
    found = 1.0 - (return_ - value).var(correction=0) / spread
    return torch.where(spread == 0, torch.nan, found)
