"""Bootstrap targets: greedy or double Q-learning, or the soft (Munchausen) value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sb_dqn.checks import check_float, set_fields
from sb_dqn.losses import munchausen as soft
from sb_dqn.losses.td import weighted_mean
from sb_dqn.types import Batch, Network


@dataclass(frozen=True)
class Munchausen:
    r"""Munchausen settings: a scaled log-policy reward bonus and a soft next value (Vieillard et al. 2020, arXiv 2007.14430).

    Args:
        alpha: weight of the bonus, [0, 1].
        tau: temperature of the softmax policy, >= 1e-6.
        clip: lower bound of :math:`\tau \log \pi`, <= 0.
    """

    alpha: float = 0.9
    tau: float = 0.03
    clip: float = -1.0

    def __post_init__(self) -> None:
        set_fields(
            self,
            alpha=check_float("munchausen['alpha']", self.alpha, 0.0, 1.0),
            # the least keeps the value of an illegal action divided by tau finite
            tau=check_float("munchausen['tau']", self.tau, 1e-6),
            clip=check_float("munchausen['clip']", self.clip, float("-inf"), 0.0),
        )


class BootstrapTarget(NamedTuple):
    """Components of the TD target `return_ + discount * next()`.

    Leading axes are `[N]`; for several action branches, `[N, 1]` of `return_` and `discount` and `[N, D]` of the others.
    """

    return_: Tensor
    """The n-step return, including the Munchausen bonus."""
    discount: Tensor
    """The discount gamma^m, or 0 after a termination, but not after a truncation, see `Slot.last`."""
    value: Any
    """Value object of the target network at o_t."""
    action: Tensor | None
    """The greedy action `[N]` or `[N, D]`, or None for a soft value."""
    policy: Tensor | None = None
    """Probabilities `[..., A]` of the softmax policy, or None for a greedy value."""
    bonus: Tensor | None = None
    """The entropy bonus `[..., A]`, minus tau log policy, or None for a greedy value."""

    def next(self) -> Any:
        """Returns the next value: of the greedy action, or of the softmax policy with its entropy bonus."""
        return self.value.soft(self.policy, self.bonus) if self.action is None else self.value.of(self.action)


class Bootstrap:
    """Computes bootstrap targets; the target network evaluates the next action.

    Args:
        double_q: the online network selects the next action (van Hasselt et al. 2016, arXiv 1509.06461) or, with
            `munchausen`, defines the policy; otherwise the target network does.
        munchausen: settings of the soft value and the bonus. If None, the value is greedy.
    """

    def __init__(self, double_q: bool = False, munchausen: Munchausen | None = None) -> None:
        self.double_q = double_q
        self.munchausen = munchausen

    @torch.no_grad()
    def __call__(self, online: Network, target: Network, batch: Batch) -> BootstrapTarget:
        value_t = target(batch.next_obs, batch.next_mask)
        selector_t = online(batch.next_obs, batch.next_mask).q if self.double_q else value_t.q
        return_, discount = like(batch.return_, batch.action), like(batch.discount, batch.action)
        if self.munchausen is None:
            return BootstrapTarget(return_, discount, value_t, selector_t.argmax(-1))
        alpha, tau, clip = self.munchausen.alpha, self.munchausen.tau, self.munchausen.clip
        log_policy_t = soft.log_policy(selector_t, tau)
        q_tm1 = (online if self.double_q else target)(batch.obs, batch.mask).q
        return_ = return_ + soft.bonus(q_tm1, batch.action, alpha, tau, clip)
        return BootstrapTarget(return_, discount, value_t, None, log_policy_t.exp(), -tau * log_policy_t)


def like(x: Tensor, action: Tensor) -> Tensor:
    """Returns `x` `[N]` as `[N, 1]` if `action` has branches `[N, D]`, otherwise unchanged."""
    return x.unsqueeze(-1) if action.dim() > x.dim() else x


def over_branches(x: Tensor, weight: Tensor) -> Tensor:
    """Returns the mean over branches, `[N, D]` -> `[N]`, or `x` itself if it has the batch axes of `weight` `[N]` only."""
    return x.mean(-1) if x.dim() > weight.dim() else x


def mean_over_rows(values: Tensor, batch: Batch) -> Tensor:
    """Returns the mean of `[N]` or `[N, D]` over the rows of a batch, of sequences over those of positive weight."""
    if batch.extra is None or "begins" not in batch.extra:  # no padding
        return values.mean()
    return weighted_mean(over_branches(values, batch.weight), (batch.weight > 0).float())
