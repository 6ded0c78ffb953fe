"""C51 (Bellemare et al. 2017, arXiv 1707.06887): a categorical distribution of the return over fixed atoms."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from typing_extensions import Unpack

from sb_dqn.algorithms.dqn import DISTRIBUTIONAL_LOSS, DQN, DQNKeywords, ReturnModel
from sb_dqn.checks import check_choice
from sb_dqn.core.construction import adam_eps
from sb_dqn.nn.heads.binned import AUTOMATIC
from sb_dqn.nn.heads.categorical import Categorical
from sb_dqn.normalize.rewards import bounded_returns
from sb_dqn.objectives.categorical import PRIORITIES, CategoricalObjective
from sb_dqn.policies import QPolicy
from sb_dqn.types import EnvLike


class C51Keywords(DQNKeywords, total=False):
    """Keywords of `CategoricalDQN`, for its variants."""

    n_atoms: int
    v_min: float | None
    v_max: float | None
    priority: str


class CategoricalDQN(DQN):
    """C51: learns a categorical distribution of the return over fixed atoms (Bellemare et al. 2017, arXiv 1707.06887).

    Args:
        n_atoms: number of atoms, >= 2.
        v_min, v_max: smallest and largest atom, in units of the return; if both are None, they are +-6, with rewards that are
            divided by a running scale, see `bounded_returns`.
        priority: "kl" or "cross_entropy", the priority of a transition in prioritized replay.
        kwargs: keywords of DQN.
    """

    replaced_arguments = DISTRIBUTIONAL_LOSS
    defaults: ClassVar[C51Keywords] = {"learning_rate": 2.5e-4}

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: EnvLike,
        *,
        n_atoms: int = 51,
        v_min: float | None = -10.0,
        v_max: float | None = 10.0,
        priority: str = "kl",
        **kwargs: Unpack[DQNKeywords],
    ) -> None:
        kwargs = self.defaults | kwargs
        kwargs["policy_kwargs"] = adam_eps(kwargs.get("policy_kwargs"), 0.01 / 32)
        check_choice("priority", priority, PRIORITIES)
        if v_min is None and v_max is None:
            v_min, v_max = -AUTOMATIC, AUTOMATIC
            kwargs["normalize_rewards"] = bounded_returns(kwargs.get("normalize_rewards", False))
        head = Categorical(n_atoms, v_min, v_max)  # type: ignore[arg-type]  # which refuses a single None
        model = ReturnModel(head, partial(CategoricalObjective, priority=priority))
        super().__init__(policy, env, return_model=model, **kwargs)


C51 = CategoricalDQN
