"""Q-learning on scalar values: DQN, and double DQN by who selects the action."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sb_dqn.checks import check_choice
from sb_dqn.losses import td
from sb_dqn.types import Batch

LOSSES: dict[str, Callable[[Tensor], Tensor]] = {"huber": td.huber, "mse": td.squared}


class QLearning:
    r"""The TD error of the action taken, against the target net.

    .. math:: l = L\big(q(o_{t-1}, a_{t-1}) - R_t - \gamma_t \, q^-(o_t, \arg\max_a s(o_t, a))\big)

    where s is q^- (Mnih et al. 2015), or q with `double_q` (van Hasselt et al. 2016, arXiv 1509.06461).

    Args:
        double_q: let the online net select.
        loss: "huber" (kappa 1, as Stable-Baselines3's smooth L1) or "mse" (half of the square).

    Raises:
        ConfigurationError: an unknown loss.
    """

    def __init__(self, double_q: bool = False, loss: str = "huber") -> None:
        self.double_q = double_q
        self.loss = LOSSES[check_choice("loss", loss, LOSSES)]

    def __call__(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            q_t = target(batch.next_obs).q  # [N, A]
            selector_t = online(batch.next_obs).q if self.double_q else None
            y = td.q_target(batch.return_, batch.discount, q_t, selector_t)
        q_tm1 = online(batch.obs).of(batch.action)  # [N]
        error = q_tm1 - y
        return self.loss(error), {"priority": error.detach().abs(), "q_mean": q_tm1.detach().mean()}
