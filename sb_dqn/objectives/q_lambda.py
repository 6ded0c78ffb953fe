"""Q(lambda) regression without a target network (PQN)."""

from __future__ import annotations

from torch import Tensor

from sb_dqn.checks import check_choice
from sb_dqn.losses.td import weighted_mean
from sb_dqn.nn.heads.binned import BinnedValue
from sb_dqn.objectives.bootstrap import like, over_branches
from sb_dqn.objectives.q_learning import LOSSES
from sb_dqn.types import Batch, Network


class QLambda:
    r"""Regression of the value of the action taken to a lambda-return.

    .. math:: l = L\big(q(o_{t-1}, a_{t-1}) - G_t\big)

    where G is computed once per rollout, before its first update (Peng's Q(lambda); in PQN: Gallici et al. 2024, arXiv
    2407.04811).

    Args:
        loss: "mse" (half of the squared error) or "huber" (kappa 1); values by classification have the cross-entropy instead.

    Raises:
        ConfigurationError: `loss` is unknown.
    """

    reports = ("q_mean", "td_error")

    def __init__(self, loss: str = "mse") -> None:
        self.loss = LOSSES[check_choice("loss", loss, LOSSES)]

    def __call__(self, online: Network, target: Network, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        value = online(batch.obs, batch.mask)
        q_tm1 = value.of(batch.action)  # [N] or [N, D]
        return_ = like(batch.return_, batch.action)
        error = q_tm1 - return_
        distance = over_branches(error.detach().abs(), batch.weight)
        extras = {
            "priority": distance,
            "q_mean": weighted_mean(over_branches(q_tm1.detach(), batch.weight), batch.weight),
            "td_error": weighted_mean(distance, batch.weight),
        }
        if isinstance(value, BinnedValue):
            loss = value.cross_entropy(batch.action, return_.expand_as(q_tm1))
        else:
            loss = self.loss(error)
        return over_branches(loss, batch.weight), extras
