"""Quantile objective with learned quantile fractions (FQF)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from sb_dqn.checks import check_float
from sb_dqn.losses import distributional
from sb_dqn.nn.heads.scalar import gather_action
from sb_dqn.objectives.bootstrap import Bootstrap, like
from sb_dqn.objectives.quantile import QuantileObjective


class FractionObjective(QuantileObjective):
    """Quantile regression for the quantiles, 1-Wasserstein distance for the fractions (Yang et al. 2019, arXiv 1911.02140).

    The two losses share no parameter. The fraction loss has a gradient, but the value 0. Targets are weighted by the width
    of their fraction; the paper weights them equally, which is the same for fractions of equal width and otherwise
    represents a different distribution of returns. The priority is that of `QuantileObjective`.

    Args:
        bootstrap: selection of the next action. If None, the target network selects and evaluates it.
        kappa: absolute error at which the Huber loss becomes linear, >= 0; 0 is plain quantile regression.
        entropy_coef: coefficient of the entropy of the fraction widths, >= 0.

    Raises:
        ConfigurationError: `kappa` or `entropy_coef` is out of range.
    """

    def __init__(self, bootstrap: Bootstrap | None = None, kappa: float = 1.0, entropy_coef: float = 0.0) -> None:
        super().__init__(bootstrap, kappa)
        self.entropy_coef = check_float("entropy_coef", entropy_coef, 0.0)

    def further_loss(self, value: Any, quantiles: Tensor, action: Tensor) -> Tensor:
        """Returns the loss of the fractions; its value is 0."""
        loss = distributional.fraction_loss(value.fractions, gather_action(value.at_fractions, action), quantiles)
        if self.entropy_coef:
            loss = loss - self.entropy_coef * like(value.entropy - value.entropy.detach(), action)
        return loss
