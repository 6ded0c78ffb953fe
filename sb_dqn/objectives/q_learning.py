"""Q-learning objective on scalar values: DQN, double DQN, Munchausen DQN."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sb_dqn.checks import check_choice
from sb_dqn.errors import ConfigurationError
from sb_dqn.losses import td
from sb_dqn.losses.transforms import IDENTITY, ValueTransform
from sb_dqn.nn.heads.binned import BinnedValue
from sb_dqn.objectives.bootstrap import Bootstrap, mean_over_rows, over_branches
from sb_dqn.types import Batch, Network

LOSSES: dict[str, Callable[[Tensor], Tensor]] = {"huber": td.huber, "mse": td.squared}


class QLearning:
    r"""TD loss of the action taken.

    .. math:: l = L\big(q(o_{t-1}, a_{t-1}) - R_t - \gamma_t \, v^-(o_t)\big)

    where v^- is the largest value of the target network (Mnih et al. 2015) or the next value of `bootstrap`.

    Args:
        bootstrap: selection of the next action. If None, the target network selects and evaluates it.
        loss: "huber" (kappa 1, equal to Stable-Baselines3's smooth L1) or "mse" (half of the squared error); values by classification
            have the cross-entropy instead.
        transform: transform of the values that the network learns.

    Raises:
        ConfigurationError: `loss` is unknown, or Munchausen is combined with value rescaling.
    """

    reports = ("q_mean", "td_error")

    def __init__(
        self, bootstrap: Bootstrap | None = None, loss: str = "huber", transform: ValueTransform = IDENTITY
    ) -> None:
        self.bootstrap = bootstrap or Bootstrap()
        self.transform = transform
        if transform != IDENTITY and self.bootstrap.munchausen is not None:
            raise ConfigurationError(
                f"munchausen must be False with value rescaling, got {self.bootstrap.munchausen}: the bonus is in units of "
                f"the return, the policy would be one of rescaled values. Set munchausen=False or value_rescale_eps=None."
            )
        self.greedy = not self.bootstrap.double_q and self.bootstrap.munchausen is None
        self.loss = LOSSES[check_choice("loss", loss, LOSSES)]

    def __call__(self, online: Network, target: Network, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            td_target = self.bootstrap(online, target, batch)
            # the value of the greedy action is the maximum: no need to gather it
            value_t = td_target.value.q.amax(-1) if self.greedy else td_target.next()
            y = self.transform.target(td_target.return_, td_target.discount, value_t)
        value = online(batch.obs, batch.mask)
        q_tm1 = value.of(batch.action)  # [N] or [N, D]
        error = q_tm1 - y
        distance = error.detach().abs()
        extras = {
            "priority": over_branches(distance, batch.weight),
            "q_mean": mean_over_rows(q_tm1.detach(), batch),
            "td_error": mean_over_rows(distance, batch),
        }
        loss = value.cross_entropy(batch.action, y) if isinstance(value, BinnedValue) else self.loss(error)
        return over_branches(loss, batch.weight), extras
