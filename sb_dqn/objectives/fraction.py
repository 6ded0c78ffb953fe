"""Quantiles at fractions that a net proposes by itself, FQF."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from sb_dqn.checks import check_float
from sb_dqn.losses import distributional
from sb_dqn.objectives.bootstrap import Bootstrap, like, over_branches
from sb_dqn.objectives.quantile import return_quantiles
from sb_dqn.types import Batch


class FractionObjective:
    """Quantile regression for the quantiles, 1-Wasserstein distance for the fractions (Yang et al. 2019, arXiv 1911.02140).

    The two losses share no parameter. That of the fractions is known by its gradient alone and adds nothing to the value.
    Each target counts by the width of its fraction; the paper takes all alike, which is the same as long as the fractions
    are equal, and the distribution of other returns when they are not. The priority is as with `QuantileObjective`.

    Args:
        backup: who selects the next action, who evaluates it; None: the target net does both.
        kappa: where Huber's line begins; 0 is plain quantile regression.
        entropy_coef: reward for fractions of equal widths, >= 0.

    Raises:
        ConfigurationError: a scalar is out of its range.
    """

    reports = ("q_mean",)

    def __init__(self, backup: Bootstrap | None = None, kappa: float = 1.0, entropy_coef: float = 0.0) -> None:
        self.backup = backup or Bootstrap()
        self.kappa = check_float("kappa", kappa, 0.0)
        self.entropy_coef = check_float("entropy_coef", entropy_coef, 0.0)

    def __call__(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        believed = self.backup(online, target, batch)
        value = online(batch.obs, batch.mask)
        predicted = value.of(batch.action)  # [..., M]
        y = return_quantiles(believed)  # [..., M']
        taus, weights = value.points.taus, value.points.weights
        loss, magnitude = distributional.quantile_huber(predicted, taus, y, self.kappa, believed.value.weights)
        known = predicted.detach()
        loss = loss + distributional.fraction_loss(value.fractions, value.at_fractions_of(batch.action), known)
        if self.entropy_coef:
            loss = loss - self.entropy_coef * like(value.entropy - value.entropy.detach(), batch.action)
        facts = {
            "priority": over_branches(magnitude, batch.weight),
            "q_mean": (known * weights).sum(-1).mean(),
        }
        return over_branches(loss, batch.weight), facts
