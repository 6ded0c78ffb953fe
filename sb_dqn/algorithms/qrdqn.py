"""QR-DQN (Dabney et al. 2018, arXiv 1710.10044): quantiles of the return at fixed fractions."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from typing_extensions import Unpack

from sb_dqn.algorithms.dqn import DISTRIBUTIONAL_LOSS, DQN, DQNKeywords, ReturnModel
from sb_dqn.core.construction import adam_eps
from sb_dqn.nn.heads.quantile import Quantile
from sb_dqn.objectives.quantile import QuantileObjective
from sb_dqn.policies import QPolicy
from sb_dqn.types import EnvLike


class QRDQN(DQN):
    """QR-DQN: learns quantiles of the return at fixed fractions (Dabney et al. 2018, arXiv 1710.10044).

    Args:
        n_quantiles: number of quantiles.
        kappa: threshold of the quantile Huber loss between square and linear, >= 0.
        kwargs: keywords of DQN.
    """

    replaced_arguments = DISTRIBUTIONAL_LOSS
    defaults: ClassVar[DQNKeywords] = {"learning_rate": 5e-5}

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: EnvLike,
        *,
        n_quantiles: int = 200,
        kappa: float = 1.0,
        **kwargs: Unpack[DQNKeywords],
    ) -> None:
        kwargs = self.defaults | kwargs
        kwargs["policy_kwargs"] = adam_eps(kwargs.get("policy_kwargs"), 0.01 / 32)
        model = ReturnModel(Quantile(n_quantiles), partial(QuantileObjective, kappa=kappa))
        super().__init__(policy, env, return_model=model, **kwargs)
