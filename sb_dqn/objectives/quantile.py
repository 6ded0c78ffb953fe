"""Quantile regression objective with fixed (QR-DQN) or sampled (IQN) fractions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sb_dqn.checks import check_float
from sb_dqn.losses import distributional
from sb_dqn.objectives.bootstrap import Bootstrap, BootstrapTarget, over_branches
from sb_dqn.types import Batch


class QuantileObjective:
    """Quantile Huber loss to the quantiles of the TD target (Dabney et al. 2018, arXiv 1710.10044 and 1806.06923).

    The priority is the mean absolute error over all pairs of a prediction and a target.

    Args:
        bootstrap: selection of the next action; None: the target network selects and evaluates it.
        kappa: absolute error at which the Huber loss becomes linear, >= 0; 0 is plain quantile regression.

    Raises:
        ConfigurationError: `kappa` is negative.
    """

    reports = ("q_mean", "td_error")

    def __init__(self, bootstrap: Bootstrap | None = None, kappa: float = 1.0) -> None:
        self.bootstrap = bootstrap or Bootstrap()
        self.kappa = check_float("kappa", kappa, 0.0)

    def __call__(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        td_target = self.bootstrap(online, target, batch)
        value = online(batch.obs, batch.mask)
        predicted = value.of(batch.action)  # [..., M]
        y = target_quantiles(td_target)  # [..., M']
        loss, magnitude = distributional.quantile_huber(predicted, value.taus, y, self.kappa, td_target.value.weights)
        q_tm1 = predicted.detach().mean(-1)
        return over_branches(loss, batch.weight), facts_of(q_tm1, td_target, y, magnitude, batch)


def facts_of(
    q_tm1: Tensor, td_target: BootstrapTarget, quantiles: Tensor, magnitude: Tensor, batch: Batch
) -> dict[str, Tensor]:
    """Returns priorities and logged means for values `[...]` and the quantiles `[..., M']` of the TD target."""
    weights = td_target.value.weights
    mean = quantiles.mean(-1) if weights is None else (quantiles * weights).sum(-1)
    return {
        "priority": over_branches(magnitude, batch.weight),
        "q_mean": q_tm1.mean(),
        "td_error": (q_tm1 - mean).abs().mean(),
    }


@torch.no_grad()
def target_quantiles(td_target: BootstrapTarget) -> Tensor:
    """Returns the quantiles `[..., M']` of the TD target."""
    next_quantiles: Tensor = td_target.next()
    return td_target.return_.unsqueeze(-1) + td_target.discount.unsqueeze(-1) * next_quantiles
