"""Any actor-critic objective along sequences of a rollout: the nets are unrolled, and what they remember is what it sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sb_dqn.types import Batch, Objective


class RecurrentRolloutObjective:
    """Unrolls the nets from the state in which the first step of each sequence was acted on; zeros where an episode begins.

    Gradients flow through all steps of a sequence, and into none before it.

    Args:
        inner: objective on samples; its observations are what the nets remember.
        length: steps of a sequence.
    """

    def __init__(self, inner: Objective, length: int) -> None:
        self.inner, self.length = inner, length
        self.reports = inner.reports

    def __call__(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
        return self.inner(online, target, batch._replace(obs=self.recall(online, batch)))

    def recall(self, net: Any, batch: Batch) -> dict[str, Tensor]:
        """What is remembered after each row of a batch, `[length * N, H]` by name."""
        assert batch.extra is not None  # it comes from a rollout
        extra = batch.extra
        begins = extra["begins"].view(self.length, -1) > 0
        state = extra["state"][: begins.shape[1]]
        told = extra.get("previous_action"), extra.get("previous_reward")
        memory: dict[str, Tensor] = net.remember(batch.obs, *told, state, begins)[0]
        return memory
