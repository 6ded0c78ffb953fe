"""DQN that learns the distribution of the return: another head, another loss, the same switches."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sb_dqn.algorithms.dqn import DQN, Learned
from sb_dqn.checks import check_choice, check_float
from sb_dqn.nn.heads.categorical import Categorical
from sb_dqn.nn.heads.fraction import FractionProposal
from sb_dqn.nn.heads.quantile import Implicit, Quantile
from sb_dqn.objectives.categorical import PRIORITIES, CategoricalObjective
from sb_dqn.objectives.fraction import FractionObjective
from sb_dqn.objectives.quantile import QuantileObjective
from sb_dqn.policies import QPolicy

Kwargs = Mapping[str, Any] | None


def adam_eps(policy_kwargs: Kwargs, eps: float) -> dict[str, Any]:
    """`policy_kwargs` with the epsilon of Adam that a paper names, unless the user chose an optimiser's settings."""
    given = dict(policy_kwargs or {})
    if not given.keys() & {"optimizer_class", "optimizer_kwargs"}:
        given["optimizer_kwargs"] = {"eps": eps}
    return given


class CategoricalDQN(DQN):
    """C51: probabilities of evenly spaced returns (Bellemare et al. 2017, arXiv 1707.06887).

    Args:
        policy: see DQN.
        env: see DQN.
        n_atoms: returns that are told apart, from 2 up.
        v_min, v_max: the smallest and the largest of them.
        priority: "kl" or "cross_entropy", what prioritised replay goes by.
        kwargs: of DQN.
    """

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: Any,
        *,
        n_atoms: int = 51,
        v_min: float = -10.0,
        v_max: float = 10.0,
        priority: str = "kl",
        learning_rate: Any = 2.5e-4,
        policy_kwargs: Kwargs = None,
        **kwargs: Any,
    ) -> None:
        check_choice("priority", priority, PRIORITIES)
        self.learned = Learned(
            Categorical(n_atoms, v_min, v_max),
            partial(CategoricalObjective, priority=priority),
            {"n_atoms": n_atoms, "v_min": v_min, "v_max": v_max, "priority": priority},
        )
        policy_kwargs = adam_eps(policy_kwargs, 0.01 / 32)
        super().__init__(policy, env, learning_rate=learning_rate, policy_kwargs=policy_kwargs, **kwargs)


C51 = CategoricalDQN


class QRDQN(DQN):
    """Quantiles of the return at fixed fractions (Dabney et al. 2018, arXiv 1710.10044).

    Args:
        policy: see DQN.
        env: see DQN.
        n_quantiles: how many.
        kappa: where the quantile Huber loss turns from square to line, from 0 up.
        kwargs: of DQN.
    """

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: Any,
        *,
        n_quantiles: int = 200,
        kappa: float = 1.0,
        learning_rate: Any = 5e-5,
        policy_kwargs: Kwargs = None,
        **kwargs: Any,
    ) -> None:
        self.learned = Learned(
            Quantile(n_quantiles),
            partial(QuantileObjective, kappa=check_float("kappa", kappa, 0.0)),
            {"n_quantiles": n_quantiles, "kappa": kappa},
        )
        policy_kwargs = adam_eps(policy_kwargs, 0.01 / 32)
        super().__init__(policy, env, learning_rate=learning_rate, policy_kwargs=policy_kwargs, **kwargs)


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
        policy_kwargs: Kwargs = None,
        **kwargs: Any,
    ) -> None:
        chosen: dict[str, Any] = {
            "n_taus": n_taus, "n_target_taus": n_target_taus, "n_policy_taus": n_policy_taus, "n_cosines": n_cosines,
            "risk": risk,
        }  # fmt: skip
        self.learned = Learned(
            Implicit(**chosen),
            partial(QuantileObjective, kappa=check_float("kappa", kappa, 0.0)),
            {**chosen, "kappa": kappa},
        )
        policy_kwargs = adam_eps(policy_kwargs, 0.01 / 32)
        super().__init__(policy, env, learning_rate=learning_rate, policy_kwargs=policy_kwargs, **kwargs)


class FQF(DQN):
    """Quantiles of the return at fractions that are learned too (Yang et al. 2019, arXiv 1911.02140).

    Args:
        policy: see DQN.
        env: see DQN.
        n_fractions: how many.
        n_cosines: of the embedding of a fraction.
        kappa: see QRDQN.
        fraction_learning_rate: of the net that proposes fractions, from 0 up.
        entropy_coef: weight of the bonus for evenly spread fractions, from 0 up.
        kwargs: of DQN.
    """

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: Any,
        *,
        n_fractions: int = 32,
        n_cosines: int = 64,
        kappa: float = 1.0,
        fraction_learning_rate: float = 2.5e-9,
        entropy_coef: float = 0.0,
        learning_rate: Any = 5e-5,
        policy_kwargs: Kwargs = None,
        **kwargs: Any,
    ) -> None:
        chosen: dict[str, Any] = {
            "n_fractions": n_fractions, "n_cosines": n_cosines, "fraction_learning_rate": fraction_learning_rate,
            "entropy_coef": entropy_coef,
        }  # fmt: skip
        self.learned = Learned(
            FractionProposal(**chosen),
            partial(FractionObjective, kappa=check_float("kappa", kappa, 0.0), entropy_coef=entropy_coef),
            {**chosen, "kappa": kappa},
        )
        policy_kwargs = adam_eps(policy_kwargs, 0.01 / 32)
        super().__init__(policy, env, learning_rate=learning_rate, policy_kwargs=policy_kwargs, **kwargs)
