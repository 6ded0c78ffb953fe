"""QR-DQN (Dabney et al. 2018, arXiv 1710.10044): quantiles of the return at fixed fractions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sb_dqn.algorithms.dqn import DISTRIBUTIONAL_LOSS, DQN, ReturnModel
from sb_dqn.core.construction import adam_eps
from sb_dqn.nn.heads.quantile import Quantile
from sb_dqn.objectives.quantile import QuantileObjective
from sb_dqn.policies import QPolicy


class QRDQN(DQN):
    """QR-DQN: learns quantiles of the return at fixed fractions (Dabney et al. 2018, arXiv 1710.10044).

    Args:
        policy: see DQN.
        env: see DQN.
        n_quantiles: number of quantiles.
        kappa: threshold of the quantile Huber loss between square and linear, >= 0.
        kwargs: keywords of DQN.
    """

    replaced_arguments = DISTRIBUTIONAL_LOSS

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: Any,
        *,
        n_quantiles: int = 200,
        kappa: float = 1.0,
        learning_rate: Any = 5e-5,
        policy_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            policy,
            env,
            learning_rate=learning_rate,
            policy_kwargs=adam_eps(policy_kwargs, 0.01 / 32),
            return_model=ReturnModel(
                Quantile(n_quantiles),
                partial(QuantileObjective, kappa=kappa),
            ),
            **kwargs,
        )
