"""What REINFORCE and VPG share: they wait for whole episodes, and may do without a critic."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sb_dqn.buffers.rollout_buffer import Before
from sb_dqn.core.actor_critic_algorithm import ActorCriticAlgorithm
from sb_dqn.core.on_policy_algorithm import Declared
from sb_dqn.types import ActionArray, BoolArray, Observation


class EpisodicAlgorithm(ActorCriticAlgorithm):
    """Learns from complete episodes, each of their steps once.

    Args:
        learns_value: or nothing is bootstrapped, and the value declared of every row is 0.
        parts: of ActorCriticAlgorithm.
    """

    default_log_interval: ClassVar[int] = 10

    def __init__(self, policy: Any, env: Any, *, learns_value: bool, **parts: Any) -> None:
        self.learns_value = learns_value
        super().__init__(policy, env, **parts)

    def act(self, obs: Observation, mask: BoolArray | None) -> tuple[ActionArray, Declared]:
        action, declared = super().act(obs, mask)
        return action, declared if self.learns_value else {**declared, "value": _zeros(obs)}

    def values(self, obs: Observation, mask: BoolArray | None, before: Before | None = None) -> npt.NDArray[Any]:
        return super().values(obs, mask) if self.learns_value else _zeros(obs)

    def log_facts(self) -> dict[str, float]:
        facts = super().log_facts()
        if not self.learns_value:
            facts.pop("train/explained_variance", None)
        return facts


def _zeros(obs: Observation) -> npt.NDArray[Any]:
    return np.zeros(len(next(iter(obs.values()))), np.float32)
