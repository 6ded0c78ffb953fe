"""Recurrent wrapper of policy-gradient objectives for sequences of a rollout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sb_dqn.types import Batch, Objective


class RecurrentRolloutObjective:
    """Unrolls the network over sequences of a rollout and applies an objective on samples to every step.

    Unrolling starts from the recurrent state at collection time, and from zeros at the start of an episode. Gradients flow
    through all steps of a sequence, but not into the steps before it.

    Args:
        inner: objective on samples; its observations are the outputs of the recurrent layers.
        length: steps per sequence.
    """

    def __init__(self, inner: Objective, length: int) -> None:
        self.inner = inner
        self.length = length
        self.reports = inner.reports

    def __call__(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
        return self.inner(online, target, batch._replace(obs=self.unroll(online, batch)))

    def unroll(self, net: Any, batch: Batch) -> dict[str, Tensor]:
        """Returns the recurrent features `[length * N, H]` of each row, by network."""
        assert batch.extra is not None  # rollout batches always have extras
        extra = batch.extra
        begins = extra["begins"].view(self.length, -1) > 0
        state = extra["state"][: begins.shape[1]]
        action = extra.get("previous_action")
        reward = extra.get("previous_reward")
        features: dict[str, Tensor] = net.remember(batch.obs, action, reward, state, begins)[0]
        return features
