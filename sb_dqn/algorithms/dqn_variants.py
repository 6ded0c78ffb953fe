"""DQN with one switch on: classes that differ from DQN only in a default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sb_dqn.algorithms.dqn import DQN
from sb_dqn.policies import QPolicy


class DoubleDQN(DQN):
    """DQN with double Q-learning (van Hasselt et al. 2016, arXiv 1509.06461)."""

    def __init__(self, policy: str | type[QPolicy], env: Any, *, double_q: bool = True, **kwargs: Any) -> None:
        super().__init__(policy, env, double_q=double_q, **kwargs)


class DuelingDQN(DQN):
    """DQN with a value stream and an advantage stream (Wang et al. 2016, arXiv 1511.06581)."""

    def __init__(self, policy: str | type[QPolicy], env: Any, *, dueling: bool = True, **kwargs: Any) -> None:
        super().__init__(policy, env, dueling=dueling, **kwargs)


class NoisyDQN(DQN):
    """DQN that explores with factorised noise in its weights (Fortunato et al. 2018, arXiv 1706.10295)."""

    def __init__(
        self, policy: str | type[QPolicy], env: Any, *, noisy: bool | str | Mapping[str, Any] = True, **kwargs: Any
    ) -> None:
        super().__init__(policy, env, noisy=noisy, **kwargs)


class NStepDQN(DQN):
    """DQN with three-step returns (Sutton 1988; in DQN: Hessel et al. 2018, arXiv 1710.02298)."""

    def __init__(self, policy: str | type[QPolicy], env: Any, *, n_steps: int = 3, **kwargs: Any) -> None:
        super().__init__(policy, env, n_steps=n_steps, **kwargs)


class PERDQN(DQN):
    """Double DQN with proportional prioritized replay (Schaul et al. 2016, arXiv 1511.05952)."""

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: Any,
        *,
        double_q: bool = True,
        prioritized_replay: bool | Mapping[str, Any] = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(policy, env, double_q=double_q, prioritized_replay=prioritized_replay, **kwargs)


class MunchausenDQN(DQN):
    """DQN with a log-policy bonus and a soft value (Vieillard et al. 2020, arXiv 2007.14430)."""

    def __init__(
        self, policy: str | type[QPolicy], env: Any, *, munchausen: bool | Mapping[str, Any] = True, **kwargs: Any
    ) -> None:
        super().__init__(policy, env, munchausen=munchausen, **kwargs)
