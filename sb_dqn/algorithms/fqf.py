"""FQF (Yang et al. 2019, arXiv 1911.02140): quantiles of the return at learned fractions."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from typing_extensions import Unpack

from sb_dqn.algorithms.dqn import DISTRIBUTIONAL_LOSS, DQN, DQNKeywords, ReturnModel
from sb_dqn.core.construction import adam_eps
from sb_dqn.nn.heads.fraction import FractionProposal
from sb_dqn.objectives.fraction import FractionObjective
from sb_dqn.policies import QPolicy
from sb_dqn.types import EnvLike


class FQF(DQN):
    """FQF: learns quantiles of the return and their fractions (Yang et al. 2019, arXiv 1911.02140).

    Args:
        n_fractions: number of fractions.
        n_cosines: number of cosines in the embedding of a fraction.
        kappa: threshold of the Huber loss, see QRDQN.
        fraction_learning_rate: learning rate of the fraction proposal network, >= 0.
        entropy_coef: weight of the entropy bonus on the fractions, >= 0.
        kwargs: keywords of DQN.
    """

    replaced_arguments = DISTRIBUTIONAL_LOSS
    defaults: ClassVar[DQNKeywords] = {"learning_rate": 5e-5}

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: EnvLike,
        *,
        n_fractions: int = 32,
        n_cosines: int = 64,
        kappa: float = 1.0,
        fraction_learning_rate: float = 2.5e-9,
        entropy_coef: float = 0.0,
        **kwargs: Unpack[DQNKeywords],
    ) -> None:
        kwargs = self.defaults | kwargs
        kwargs["policy_kwargs"] = adam_eps(kwargs.get("policy_kwargs"), 0.01 / 32)
        distribution = FractionProposal(
            n_fractions=n_fractions,
            n_cosines=n_cosines,
            fraction_learning_rate=fraction_learning_rate,
            entropy_coef=entropy_coef,
        )
        objective = partial(FractionObjective, kappa=kappa, entropy_coef=distribution.entropy_coef)
        super().__init__(policy, env, return_model=ReturnModel(distribution, objective), **kwargs)
