"""Quantile objective with learned quantile fractions (FQF)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from sb_dqn.checks import check_float
from sb_dqn.losses import distributional
from sb_dqn.objectives.bootstrap import Bootstrap, like, over_branches
from sb_dqn.objectives.quantile import QuantileObjective, facts_of, target_quantiles
from sb_dqn.types import Batch


class FractionObjective(QuantileObjective):
    """Quantile regression for the quantiles, 1-Wasserstein distance for the fractions (Yang et al. 2019, arXiv 1911.02140).

    The two losses share no parameter. The fraction loss has a gradient, but the value 0. Targets are weighted by the width
    of their fraction; the paper weights them equally, which is the same for fractions of equal width and otherwise
    represents a different distribution of returns. The priority is that of `QuantileObjective`.

    Args:
        bootstrap: selection of the next action; None: the target network selects and evaluates it.
        kappa: absolute error at which the Huber loss becomes linear, >= 0; 0 is plain quantile regression.
        entropy_coef: coefficient of the entropy of the fraction widths, >= 0.

    Raises:
        ConfigurationError: `kappa` or `entropy_coef` is out of range.
    """

    def __init__(self, bootstrap: Bootstrap | None = None, kappa: float = 1.0, entropy_coef: float = 0.0) -> None:
        super().__init__(bootstrap, kappa)
        self.entropy_coef = check_float("entropy_coef", entropy_coef, 0.0)

    def __call__(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        td_target = self.bootstrap(online, target, batch)
        value = online(batch.obs, batch.mask)
        predicted = value.of(batch.action)  # [..., M]
        y = target_quantiles(td_target)  # [..., M']
        taus, weights = value.points.taus, value.points.weights
        loss, magnitude = distributional.quantile_huber(predicted, taus, y, self.kappa, td_target.value.weights)
        detached = predicted.detach()
        loss = loss + distributional.fraction_loss(value.fractions, value.at_fractions_of(batch.action), detached)
        if self.entropy_coef:
            loss = loss - self.entropy_coef * like(value.entropy - value.entropy.detach(), batch.action)
        q_tm1 = (detached * weights).sum(-1)
        return over_branches(loss, batch.weight), facts_of(q_tm1, td_target, y, magnitude, batch)
