"""What is believed of o_t: by the best action, or softly by all of them (Munchausen)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sb_dqn.checks import check_float
from sb_dqn.losses import munchausen as soft
from sb_dqn.types import Batch


@dataclass(frozen=True)
class Munchausen:
    r"""A bonus for what the policy would do, and a soft value at the end (Vieillard et al. 2020, arXiv 2007.14430).

    Args:
        alpha: weight of the bonus, [0, 1].
        tau: temperature of the softmax policy, from 1e-6.
        clip: lower bound of :math:`\tau \log \pi`, at most 0.
    """

    alpha: float = 0.9
    tau: float = 0.03
    clip: float = -1.0

    def __post_init__(self) -> None:
        check_float("munchausen['alpha']", self.alpha, 0.0, 1.0)
        check_float("munchausen['tau']", self.tau, 1e-6)  # the value of an illegal action over it is finite
        check_float("munchausen['clip']", self.clip, float("-inf"), 0.0)


class BootstrapTarget(NamedTuple):
    """The pieces of a target; leading axes `[N]`, or `[N, 1]` beside branches `[N, D]`."""

    return_: Tensor
    """The n-step return, bonus included."""
    discount: Tensor
    value: Any
    """Value object of the target net at o_t."""
    action: Tensor | None
    """`[N]` or `[N, D]`, the action that is followed; None where a policy is."""
    policy: Tensor | None = None
    """`[..., A]` probabilities."""
    bonus: Tensor | None = None
    """`[..., A]`, minus tau log policy."""

    def next(self) -> Any:
        """What the value object gives for the action, or for the policy, that is followed."""
        return self.value.soft(self.policy, self.bonus) if self.action is None else self.value.of(self.action)


class Bootstrap:
    """Who selects the action of the next state, and who evaluates it.

    Args:
        double_q: the online net selects (van Hasselt et al. 2016, arXiv 1509.06461); with `munchausen` the policy is
            the online net's.
        munchausen: soft instead of greedy; None is greedy.
    """

    def __init__(self, double_q: bool = False, munchausen: Munchausen | None = None) -> None:
        self.double_q = double_q
        self.munchausen = munchausen

    @torch.no_grad()
    def __call__(self, online: Any, target: Any, batch: Batch) -> BootstrapTarget:
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
    """`x` `[N]` as `[N, 1]` beside actions of several branches."""
    return x.unsqueeze(-1) if action.dim() > x.dim() else x


def over_branches(x: Tensor, weight: Tensor) -> Tensor:
    """Mean over branches: `[N, D]` -> `[N]`; `[N]` stays. `weight` `[N]` tells how many axes are the batch's."""
    return x.mean(-1) if x.dim() > weight.dim() else x
