"""IQN (Dabney et al. 2018, arXiv 1806.06923): quantiles of the return at sampled fractions."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from typing_extensions import Unpack

from sb_dqn.algorithms.dqn import DISTRIBUTIONAL_LOSS, DQN, DQNKeywords, ReturnModel
from sb_dqn.core.construction import adam_eps
from sb_dqn.nn.heads.quantile import ImplicitQuantile
from sb_dqn.objectives.quantile import QuantileObjective
from sb_dqn.policies import QPolicy
from sb_dqn.types import EnvLike


class IQNKeywords(DQNKeywords, total=False):
    """Keywords of `IQN` whose defaults its variants keep."""

    n_cosines: int
    kappa: float
    risk: str | None


class IQN(DQN):
    """IQN: learns quantiles of the return at sampled fractions (Dabney et al. 2018, arXiv 1806.06923).

    Args:
        n_taus, n_target_taus: fractions sampled per transition for the online and the target network.
        n_policy_taus: number of fractions to average over when acting.
        n_cosines: number of cosines in the embedding of a fraction.
        kappa: threshold of the Huber loss, see QRDQN.
        risk: risk-sensitive action selection, without effect on learning: None (neutral), "cvar 0.25" (only the worst quarter
            of returns), "power -2" (risk-averse), "power 2" (risk-seeking).
        kwargs: keywords of DQN.
    """

    replaced_arguments = DISTRIBUTIONAL_LOSS
    defaults: ClassVar[IQNKeywords] = {"learning_rate": 5e-5}

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: EnvLike,
        *,
        n_taus: int = 64,
        n_target_taus: int = 64,
        n_policy_taus: int = 32,
        n_cosines: int = 64,
        kappa: float = 1.0,
        risk: str | None = None,
        **kwargs: Unpack[DQNKeywords],
    ) -> None:
        kwargs = self.defaults | kwargs
        kwargs["policy_kwargs"] = adam_eps(kwargs.get("policy_kwargs"), 0.01 / 32)
        distribution = ImplicitQuantile(
            n_taus=n_taus, n_target_taus=n_target_taus, n_policy_taus=n_policy_taus, n_cosines=n_cosines, risk=risk
        )
        model = ReturnModel(distribution, partial(QuantileObjective, kappa=kappa))
        super().__init__(policy, env, return_model=model, **kwargs)
