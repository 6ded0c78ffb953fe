"""DQN with one switch on: classes that differ from DQN only in a default."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import Unpack

from sb_dqn.algorithms.dqn import DQN, DQNKeywords
from sb_dqn.policies import QPolicy
from sb_dqn.types import EnvLike


class DQNVariant(DQN):
    """DQN with other defaults, which `defaults` of a subclass names."""

    def __init__(self, policy: str | type[QPolicy], env: EnvLike, **kwargs: Unpack[DQNKeywords]) -> None:
        super().__init__(policy, env, **(self.defaults | kwargs))


class DoubleDQN(DQNVariant):
    """DQN with double Q-learning (van Hasselt et al. 2016, arXiv 1509.06461)."""

    defaults: ClassVar[DQNKeywords] = {"double_q": True}


class DuelingDQN(DQNVariant):
    """DQN with a value stream and an advantage stream (Wang et al. 2016, arXiv 1511.06581)."""

    defaults: ClassVar[DQNKeywords] = {"dueling": True}


class NoisyDQN(DQNVariant):
    """DQN that explores with factorised noise in its weights (Fortunato et al. 2018, arXiv 1706.10295)."""

    defaults: ClassVar[DQNKeywords] = {"noisy": True}


class NStepDQN(DQNVariant):
    """DQN with three-step returns (Sutton 1988; in DQN: Hessel et al. 2018, arXiv 1710.02298)."""

    defaults: ClassVar[DQNKeywords] = {"n_steps": 3}


class PERDQN(DQNVariant):
    """Double DQN with proportional prioritized replay (Schaul et al. 2016, arXiv 1511.05952)."""

    defaults: ClassVar[DQNKeywords] = {"double_q": True, "prioritized_replay": True}


class MunchausenDQN(DQNVariant):
    """DQN with a log-policy bonus and a soft value (Vieillard et al. 2020, arXiv 2007.14430)."""

    defaults: ClassVar[DQNKeywords] = {"munchausen": True}
