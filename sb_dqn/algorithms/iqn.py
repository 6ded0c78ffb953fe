"""IQN (Dabney et al. 2018, arXiv 1806.06923): quantiles of the return at sampled fractions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sb_dqn.algorithms.dqn import DISTRIBUTIONAL_LOSS, DQN, ReturnModel
from sb_dqn.checks import check_float
from sb_dqn.core.construction import adam_eps
from sb_dqn.nn.heads.quantile import ImplicitQuantile
from sb_dqn.objectives.quantile import QuantileObjective
from sb_dqn.policies import QPolicy


class IQN(DQN):
    """Quantiles of the return at sampled fractions (Dabney et al. 2018, arXiv 1806.06923).

    Args:
        policy: see DQN.
        env: see DQN.
        n_taus, n_target_taus: fractions drawn for each transition, for the online and the target net.
        n_policy_taus: fractions that acting averages over.
        n_cosines: of the embedding of a fraction.
        kappa: see QRDQN.
        risk: None is neutral; "cvar 0.25" minds the worst quarter of returns alone; "power -2" is averse to risk, "power
            2" seeks it. It bends acting, not learning.
        kwargs: of DQN.
    """

    replaced_arguments = DISTRIBUTIONAL_LOSS

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: Any,
        *,
        n_taus: int = 64,
        n_target_taus: int = 64,
        n_policy_taus: int = 32,
        n_cosines: int = 64,
        kappa: float = 1.0,
        risk: str | None = None,
        learning_rate: Any = 5e-5,
        policy_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        distribution = ImplicitQuantile(
            n_taus=n_taus, n_target_taus=n_target_taus, n_policy_taus=n_policy_taus, n_cosines=n_cosines, risk=risk
        )
        super().__init__(
            policy,
            env,
            learning_rate=learning_rate,
            policy_kwargs=adam_eps(policy_kwargs, 0.01 / 32),
            return_model=ReturnModel(
                distribution,
                partial(QuantileObjective, kappa=check_float("kappa", kappa, 0.0)),
            ),
            **kwargs,
        )
