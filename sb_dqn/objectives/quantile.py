"""Quantiles of the return: at fixed fractions (QR-DQN), at random ones (IQN)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sb_dqn.checks import check_float
from sb_dqn.losses import distributional
from sb_dqn.objectives.bootstrap import Bootstrap, BootstrapTarget, over_branches
from sb_dqn.types import Batch


class QuantileObjective:
    """Quantile regression towards samples of the return (Dabney et al. 2018, arXiv 1710.10044 and 1806.06923).

    The priority is the mean of the absolute errors between all predictions and all targets.

    Args:
        backup: who selects the next action, who evaluates it; None: the target net does both.
        kappa: where Huber's line begins; 0 is plain quantile regression.

    Raises:
        ConfigurationError: kappa is negative.
    """

    reports = ("q_mean",)

    def __init__(self, backup: Bootstrap | None = None, kappa: float = 1.0) -> None:
        self.backup = backup or Bootstrap()
        self.kappa = check_float("kappa", kappa, 0.0)

    def __call__(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        believed = self.backup(online, target, batch)
        value = online(batch.obs, batch.mask)
        predicted = value.of(batch.action)  # [..., M]
        y = return_quantiles(believed)  # [..., M']
        loss, magnitude = distributional.quantile_huber(predicted, value.taus, y, self.kappa, believed.value.weights)
        facts = {
            "priority": over_branches(magnitude, batch.weight),
            "q_mean": predicted.detach().mean(),
        }
        return over_branches(loss, batch.weight), facts


@torch.no_grad()
def return_quantiles(believed: BootstrapTarget) -> Tensor:
    """Quantiles `[..., M']` of the return as it is believed."""
    next_: Tensor = believed.next()
    return believed.return_.unsqueeze(-1) + believed.discount.unsqueeze(-1) * next_
