"""Actor-critic objectives along sequences of a rollout, for recurrent networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sb_dqn.types import Batch, Objective


class RecurrentRolloutObjective:
    """Unrolls the network from the stored state of the first step of each sequence; from zeros where an episode begins.

    Unrolling starts from the recurrent state at collection time, and from zeros at the start of an episode. Gradients flow
    through all steps of a sequence, but not into the steps before it.

    Args:
        inner: objective on samples, whose observations are recurrent features.
        length: steps of a sequence.
    """

    def __init__(self, inner: Objective, length: int) -> None:
        self.inner = inner
        self.length = length
        self.reports = inner.reports

    def __call__(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
        return self.inner(online, target, batch._replace(obs=self.unroll(online, batch)))

    def unroll(self, net: Any, batch: Batch) -> dict[str, Tensor]:
        """Returns the recurrent features at each row of a batch, `[length * N, H]` by name."""
        assert batch.extra is not None  # batches of rollouts have extras
        extra = batch.extra
        begins = extra["begins"].view(self.length, -1) > 0
        state = extra["state"][: begins.shape[1]]
        inputs = extra.get("previous_action"), extra.get("previous_reward")
        features: dict[str, Tensor] = net.unroll(batch.obs, *inputs, state, begins)[0]
        return features
