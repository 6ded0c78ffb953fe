"""The categorical distribution of the return, C51."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sb_dqn.checks import check_choice
from sb_dqn.losses import distributional
from sb_dqn.objectives.bootstrap import Bootstrap, over_branches
from sb_dqn.types import Batch

PRIORITIES = {"kl": distributional.kl_divergence, "cross_entropy": distributional.cross_entropy}


class CategoricalObjective:
    """Cross-entropy of the predicted distribution under the projected target (Bellemare et al. 2017, arXiv 1707.06887).

    Args:
        backup: who selects the next action, who evaluates it; None: the target net does both.
        priority: "kl" (Rainbow, Hessel et al. 2018, arXiv 1710.02298) or "cross_entropy", which also ranks high what is
            uncertain by nature.

    Raises:
        ConfigurationError: an unknown priority.
    """

    reports = ("q_mean",)

    def __init__(self, backup: Bootstrap | None = None, priority: str = "kl") -> None:
        self.backup = backup or Bootstrap()
        self.priority = PRIORITIES[check_choice("priority", priority, PRIORITIES)]

    def __call__(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            believed = self.backup(online, target, batch)
            support = believed.value.support
            if believed.action is None:
                atoms, probabilities = believed.next()
            else:
                atoms, probabilities = support, believed.next().exp()  # [Z], [..., Z]
            atoms = believed.return_.unsqueeze(-1) + believed.discount.unsqueeze(-1) * atoms
            truth = distributional.project(atoms.expand_as(probabilities), probabilities, support)
        predicted = online(batch.obs, batch.mask).of(batch.action)  # [..., Z] log-probabilities
        loss = distributional.cross_entropy(truth, predicted)
        known = predicted.detach()
        facts = {
            "priority": over_branches(self.priority(truth, known), batch.weight),
            "q_mean": (known.exp() @ support).mean(),
        }
        return over_branches(loss, batch.weight), facts
