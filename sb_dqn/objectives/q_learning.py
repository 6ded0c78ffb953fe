"""Q-learning on scalar values: DQN, and what a backup makes of it (double, Munchausen)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sb_dqn.checks import check_choice
from sb_dqn.errors import ConfigurationError
from sb_dqn.losses import td
from sb_dqn.losses.rescaling import rescaled_target
from sb_dqn.objectives.bootstrap import Bootstrap, over_branches
from sb_dqn.types import Batch

LOSSES: dict[str, Callable[[Tensor], Tensor]] = {"huber": td.huber, "mse": td.squared}


class QLearning:
    r"""The TD error of the action taken, against what is believed of the observation it led to.

    .. math:: l = L\big(q(o_{t-1}, a_{t-1}) - R_t - \gamma_t \, v^-(o_t)\big)

    where v^- is the best of the target net's values (Mnih et al. 2015), or as `Bootstrap` says.

    Args:
        backup: who selects the next action, who evaluates it; None: the target net does both.
        loss: "huber" (kappa 1, as Stable-Baselines3's smooth L1) or "mse" (half of the square).
        rescale_eps: epsilon of value rescaling (see `sb_dqn.losses.rescaling`); None: values are returns as they are.

    Raises:
        ConfigurationError: an unknown loss, or Munchausen's bonus beside rescaled values.
    """

    reports = ("q_mean",)

    def __init__(self, backup: Bootstrap | None = None, loss: str = "huber", rescale_eps: float | None = None) -> None:
        self.backup, self.rescale_eps = backup or Bootstrap(), rescale_eps
        if rescale_eps is not None and self.backup.munchausen is not None:
            raise ConfigurationError(
                "munchausen with value rescaling is not allowed: its bonus is a return, its policy would be one of rescaled "
                "values; leave munchausen out, or set value_rescale_eps=None"
            )
        self.greedy = not self.backup.double_q and self.backup.munchausen is None
        self.loss = LOSSES[check_choice("loss", loss, LOSSES)]

    def __call__(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            believed = self.backup(online, target, batch)
            # the value of the best action is the best value: found at once, not by looking the action up
            value_t = believed.value.q.amax(-1) if self.greedy else believed.next()
            y = self._target(believed.return_, believed.discount, value_t)
        q_tm1 = online(batch.obs, batch.mask).of(batch.action)  # [N] or [N, D]
        error = q_tm1 - y
        facts = {"priority": over_branches(error.detach().abs(), batch.weight), "q_mean": q_tm1.detach().mean()}
        return over_branches(self.loss(error), batch.weight), facts

    def _target(self, return_: Tensor, discount: Tensor, value_t: Tensor) -> Tensor:
        if self.rescale_eps is None:
            return return_ + discount * value_t
        return rescaled_target(return_, discount, value_t, self.rescale_eps)
