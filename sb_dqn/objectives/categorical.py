"""Categorical distributional objective (C51)."""

from __future__ import annotations

import torch
from torch import Tensor

from sb_dqn.checks import check_choice
from sb_dqn.losses import distributional
from sb_dqn.objectives.bootstrap import Bootstrap, mean_over_rows, over_branches
from sb_dqn.types import Batch, Network

PRIORITIES = {"kl": distributional.kl_divergence, "cross_entropy": distributional.cross_entropy}


class CategoricalObjective:
    """Cross-entropy of the prediction relative to the projected target (Bellemare et al. 2017, arXiv 1707.06887).

    Args:
        bootstrap: selection of the next action. If None, the target network selects and evaluates it.
        priority: "kl" (Rainbow, Hessel et al. 2018, arXiv 1710.02298) or "cross_entropy", which also ranks targets of
            high entropy first.

    Raises:
        ConfigurationError: `priority` is unknown.
    """

    reports = ("q_mean", "td_error")

    def __init__(self, bootstrap: Bootstrap | None = None, priority: str = "kl") -> None:
        self.bootstrap = bootstrap or Bootstrap()
        self.priority = PRIORITIES[check_choice("priority", priority, PRIORITIES)]

    def __call__(self, online: Network, target: Network, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            td_target = self.bootstrap(online, target, batch)
            support = td_target.value.support
            if td_target.action is None:
                atoms, probabilities = td_target.next()
            else:
                atoms, probabilities = support, td_target.next().exp()  # [Z], [..., Z]
            atoms = td_target.return_.unsqueeze(-1) + td_target.discount.unsqueeze(-1) * atoms
            projected = distributional.project(
                atoms.expand_as(probabilities), probabilities, support, td_target.value.density
            )
        predicted = online(batch.obs, batch.mask).of(batch.action)  # [..., Z] log-probabilities
        loss = distributional.cross_entropy(projected, predicted)
        detached = predicted.detach()
        q_tm1 = detached.exp() @ support
        extras = {
            "priority": over_branches(self.priority(projected, detached), batch.weight),
            "q_mean": mean_over_rows(q_tm1, batch),
            "td_error": mean_over_rows((q_tm1 - projected @ support).abs(), batch),
        }
        return over_branches(loss, batch.weight), extras
