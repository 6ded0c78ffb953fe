"""Penalty on the values of actions that the data does not contain (conservative Q-learning, CQL)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sb_dqn.errors import ConfigurationError
from sb_dqn.losses.td import conservative_penalty
from sb_dqn.objectives.bootstrap import mean_over_rows, over_branches
from sb_dqn.types import Batch, Network, Objective


class ConservativeObjective:
    r"""Adds the penalty of conservative Q-learning to another objective (Kumar et al. 2020, arXiv 2006.04779, CQL(H)).

    .. math:: l = l_{\mathrm{inner}} + \alpha \Big( \log \sum_a \exp q(o_{t-1}, a) - q(o_{t-1}, a_{t-1}) \Big)

    where q is the online network's value, of a distribution the mean. The priority stays that of the inner objective.

    Args:
        inner: objective on transitions, which calls the online network once with a gradient, for the values at o_{t-1}.
        alpha: weight of the penalty, > 0.
    """

    def __init__(self, inner: Objective, alpha: float) -> None:
        self.inner = inner
        self.alpha = alpha
        self.reports = (*inner.reports, "conservative_penalty")
        self.bootstrap = getattr(inner, "bootstrap", None)

    def __call__(self, online: Network, target: Network, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        predicted: list[Any] = []

        def remembered(obs: Any, mask: Tensor | None = None) -> Any:
            value = online(obs, mask)
            if torch.is_grad_enabled():  # not a pass for targets
                predicted.append(value)
            return value

        loss, extras = self.inner(remembered, target, batch)
        if len(predicted) != 1:
            raise ConfigurationError(
                f"an objective must call the online network once with a gradient with cql_alpha, got {len(predicted)} calls. Call it "
                f"for targets under torch.no_grad(), or leave cql_alpha out."
            )
        value = predicted[0]
        penalty = over_branches(conservative_penalty(value.q, batch.action), batch.weight)
        return loss + self.alpha * penalty, {**extras, "conservative_penalty": mean_over_rows(penalty.detach(), batch)}
