"""Soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905; of choices Christodoulou 2019, arXiv 1910.07207)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sb_dqn.losses.soft_actor_critic import critic_loss, temperature_loss
from sb_dqn.types import Batch

SHARE = 0.98
"""Of the largest entropy that legal choices allow: the target of choices, where none is given (Christodoulou 2019)."""


class SoftActorCritic:
    r"""Three losses of one batch, each for its own parameters: critics, actor, temperature.

    .. math:: y = G + \gamma^m V(s'), \quad L = \tfrac12 \sum_c (Q_c(s, a) - y)^2 - V(s) + \log \alpha\, (H - \bar H)

    V is the soft value by the smallest critic: of the target critics in y, of the online ones, whose parameters are held
    still, in the actor's loss. All three are computed with the same old weights. Priorities are the mean of
    :math:`|Q_c - y|`.

    Args:
        target_entropy: nats; None: 0.98 of the entropy of choosing evenly among the legal choices.
        num_actions: A; 0 for a Box.
        learns_alpha: whether there is a temperature to learn.
    """

    def __init__(self, target_entropy: float | None, num_actions: int, learns_alpha: bool) -> None:
        self.target_entropy, self.num_actions, self.learns_alpha = target_entropy, num_actions, learns_alpha
        of_alpha = ("ent_coef_loss",) if learns_alpha else ()
        self.reports: tuple[str, ...] = ("actor_loss", "critic_loss", "ent_coef", *of_alpha, "entropy", "q_mean")

    def __call__(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Losses `[N]`, priorities, and what the log gets."""
        said = online(batch, target)
        y = batch.return_ + batch.discount * said.next_value
        losses = {"critic_loss": critic_loss(said.q, y), "actor_loss": -said.value}
        if self.learns_alpha:
            losses["ent_coef_loss"] = temperature_loss(said.log_alpha, said.entropy, self._target(batch))
        counts = batch.weight > 0
        told = {**losses, "entropy": said.entropy, "q_mean": said.q.mean(0)}
        facts = {
            name: torch.where(counts, x.detach(), 0.0).sum() / counts.sum().clamp_min(1) for name, x in told.items()
        }
        facts |= {"ent_coef": said.log_alpha.detach().exp(), "priority": (said.q.detach() - y).abs().mean(0)}
        return sum(losses.values(), torch.zeros_like(y)), facts

    def _target(self, batch: Batch) -> Tensor | float:
        if self.target_entropy is not None:
            return self.target_entropy
        if batch.mask is None:
            return SHARE * math.log(self.num_actions)
        return SHARE * batch.mask.sum(-1).clamp_min(1).log()
