"""Soft actor-critic objective (Haarnoja et al. 2018, arXiv 1812.05905; discrete: Christodoulou 2019, arXiv 1910.07207)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from sb_dqn.losses.soft_actor_critic import critic_loss, temperature_loss
from sb_dqn.types import Batch, Network

TARGET_ENTROPY_RATIO = 0.98
"""Default target entropy of a discrete policy, relative to that of the uniform policy over legal actions (Christodoulou)."""


class SoftActorCritic:
    r"""Sum of the critic, actor and temperature losses, each with a gradient for its own parameters only.

    .. math:: y = G + \gamma^m V(s'), \quad L = \tfrac12 \sum_c (Q_c(s, a) - y)^2 - V(s) + \log \alpha\, (H - \bar H)

    V is the soft value of the smallest critic: of the target critics in y, of the online critics with fixed parameters in
    the actor loss. All three losses use the weights from before the update. Priorities are the mean of
    :math:`|Q_c - y|`. Critics by classification have the cross-entropy to the classes of y in place of the squared error.

    Args:
        target_entropy: target entropy in nats. If None, it is 0.98 of the entropy of the uniform policy over legal actions.
        num_actions: number of actions A, or 0 for a Box.
        learns_alpha: True if the temperature is learned.
    """

    reports: tuple[str, ...]

    def __init__(self, target_entropy: float | None, num_actions: int, learns_alpha: bool) -> None:
        self.target_entropy = target_entropy
        self.num_actions = num_actions
        self.learns_alpha = learns_alpha
        alpha = ("ent_coef_loss",) if learns_alpha else ()
        self.reports = ("actor_loss", "critic_loss", "ent_coef", *alpha, "entropy", "q_mean", "td_error")

    def __call__(self, online: Network, target: object, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Returns the losses `[N]`, and the priorities and logged means."""
        outputs = online(batch, target)
        y = batch.return_ + batch.discount * outputs.next_value
        error = critic_loss(outputs.q, y) if outputs.classes is None else outputs.classes.cross_entropy(y).sum(0)
        losses = {"critic_loss": error, "actor_loss": -outputs.value}
        if self.learns_alpha:
            target_entropy = self._target_entropy(batch)
            losses["ent_coef_loss"] = temperature_loss(outputs.log_alpha, outputs.entropy, target_entropy)
        valid = batch.weight > 0
        distance = (outputs.q.detach() - y).abs().mean(0)
        per_sample = {**losses, "entropy": outputs.entropy, "q_mean": outputs.q.mean(0), "td_error": distance}
        extras = {
            name: torch.where(valid, x.detach(), 0.0).sum() / valid.sum().clamp_min(1) for name, x in per_sample.items()
        }
        extras |= {"ent_coef": outputs.log_alpha.detach().exp(), "priority": distance}
        return sum(losses.values(), torch.zeros_like(y)), extras

    def _target_entropy(self, batch: Batch) -> Tensor | float:
        """Returns the target entropy in nats: a scalar, or `[N]` with action masks."""
        if self.target_entropy is not None:
            return self.target_entropy
        if batch.mask is None:
            return TARGET_ENTROPY_RATIO * math.log(self.num_actions)
        return TARGET_ENTROPY_RATIO * batch.mask.sum(-1).clamp_min(1).log()
