"""Quantile regression objective with fixed (QR-DQN) or sampled (IQN) fractions."""

from __future__ import annotations

import torch
from torch import Tensor

from sb_dqn.checks import check_float
from sb_dqn.losses import distributional
from sb_dqn.objectives.bootstrap import Bootstrap, mean_over_rows, over_branches
from sb_dqn.types import Batch, Network


class QuantileObjective:
    """Quantile Huber loss to the quantiles of the TD target (Dabney et al. 2018, arXiv 1710.10044 and 1806.06923).

    The priority is the mean absolute error over all pairs of a prediction and a target.

    Args:
        bootstrap: selection of the next action. If None, the target network selects and evaluates it.
        kappa: absolute error at which the Huber loss becomes linear, >= 0; 0 is plain quantile regression.

    Raises:
        ConfigurationError: `kappa` is negative.
    """

    reports = ("q_mean", "td_error")

    def __init__(self, bootstrap: Bootstrap | None = None, kappa: float = 1.0) -> None:
        self.bootstrap = bootstrap or Bootstrap()
        self.kappa = check_float("kappa", kappa, 0.0)

    def __call__(self, online: Network, target: Network, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        td_target = self.bootstrap(online, target, batch)
        value = online(batch.obs, batch.mask)
        predicted = value.of(batch.action)  # [..., M]
        with torch.no_grad():
            y = td_target.return_.unsqueeze(-1) + td_target.discount.unsqueeze(-1) * td_target.next()  # [..., M']
        weights = td_target.value.weights
        loss, magnitude = distributional.quantile_huber(predicted, value.taus, y, self.kappa, weights)
        detached = predicted.detach()
        further = self.further_loss(value, detached, batch.action)
        loss = loss if further is None else loss + further
        q_tm1, target_mean = _mean(detached, value.weights), _mean(y, weights)
        return over_branches(loss, batch.weight), {
            "priority": over_branches(magnitude, batch.weight),
            "q_mean": mean_over_rows(q_tm1, batch),
            "td_error": mean_over_rows((q_tm1 - target_mean).abs(), batch),
        }

    def further_loss(self, value: object, quantiles: Tensor, action: Tensor) -> Tensor | None:
        """Returns a second loss `[...]` of a value with the quantiles `[..., M]` of the actions taken, or None if there is
        none."""
        return None


def _mean(quantiles: Tensor, weights: Tensor | None) -> Tensor:
    return quantiles.mean(-1) if weights is None else (quantiles * weights).sum(-1)
