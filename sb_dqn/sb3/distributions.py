"""Distributions over actions as objects of Stable-Baselines3 and its contrib package, and actions of their samples."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from sb3_contrib.common.maskable.distributions import (
    MaskableCategoricalDistribution,
    MaskableMultiCategoricalDistribution,
)
from stable_baselines3.common.distributions import (
    BernoulliDistribution,
    CategoricalDistribution,
    DiagGaussianDistribution,
    MultiCategoricalDistribution,
    SquashedDiagGaussianDistribution,
)
from torch import Tensor

from sb_dqn.nn.heads.distributions import Categorical, SquashedGaussian
from sb_dqn.nn.heads.policy_heads import GaussianHead, SquashedHead
from sb_dqn.spaces import Space


def sb3_distribution(distribution: Any, action_space: Space, mask: Tensor | None = None) -> Any:
    """Returns a distribution with `distribution`, `sample()`, `mode()`, `get_actions()`, `log_prob(actions)` and `entropy()`.

    Args:
        distribution: distribution of this library over N actions; state-dependent noise is that of single samples.
        action_space: space of one action.
        mask: `[N, (D,) A]` bool, the legal actions that the distribution knows; a distribution with a mask is one of contrib.
    """
    if not isinstance(distribution, Categorical):
        normal = getattr(distribution, "marginal", distribution)
        kind = SquashedDiagGaussianDistribution if isinstance(normal, SquashedGaussian) else DiagGaussianDistribution
        return kind(normal.mean.shape[-1]).proba_distribution(normal.mean, normal.log_std)
    logp = distribution.logp
    if isinstance(action_space, spaces.MultiBinary):
        return BernoulliDistribution(logp.shape[1]).proba_distribution(logp[..., 1] - logp[..., 0])
    if isinstance(action_space, spaces.MultiDiscrete):
        counts = [int(n) for n in action_space.nvec.flatten()]
        logits = _side_by_side(logp, counts)
        if mask is None:
            return MultiCategoricalDistribution(counts).proba_distribution(logits)
        multiple = MaskableMultiCategoricalDistribution(counts).proba_distribution(logits)
        multiple.apply_masking(_side_by_side(mask, counts))
        return multiple
    if mask is None:
        return CategoricalDistribution(logp.shape[-1]).proba_distribution(logp)
    single = MaskableCategoricalDistribution(logp.shape[-1]).proba_distribution(logp)
    single.apply_masking(mask)
    return single


def _side_by_side(values: Tensor, counts: list[int]) -> Tensor:
    """Returns `[N, sum(counts)]` of `[N, D, A]`, without the actions that a branch lacks."""
    return torch.cat([values[:, branch, :count] for branch, count in enumerate(counts)], -1)


def to_actions(head: Any, sample: Tensor) -> Tensor:
    """Returns the actions of samples of a distribution, in the shape of the space; those of a Gaussian are not clipped."""
    is_gaussian = isinstance(head, GaussianHead) and not isinstance(head, SquashedHead)
    actions: Tensor = sample.reshape(-1, *head.shape) if is_gaussian else head.to_action(sample)
    return actions


def to_samples(head: object, actions: Tensor) -> Tensor:
    """Returns the samples of actions `[N, *shape]`; the inverse of `to_actions`."""
    sample = actions.flatten(1) if actions.dim() > 1 else actions
    if isinstance(head, SquashedHead):
        bound = 1.0 - torch.finfo(sample.dtype).eps
        return (2.0 * (sample - head.low) / (head.high - head.low) - 1.0).clamp(-bound, bound).atanh()
    if isinstance(head, GaussianHead):
        return sample
    return sample.long().squeeze(-1) if sample.dim() > 1 and sample.shape[-1] == 1 else sample.long()
