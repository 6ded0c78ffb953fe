"""Objectives of recurrent networks, along the sequences of a replay or of a rollout."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sb_dqn.buffers.sequences import Sequences
from sb_dqn.losses.sequences import sequence_priority
from sb_dqn.nn.layers.recurrent import FEATURES
from sb_dqn.types import Batch, Network, Objective


class RecurrentReplayObjective:
    r"""Unrolls both networks from the stored state through burn-in, then applies another objective to the trained steps
    (Kapturowski et al. 2019, ICLR).

    The loss is one number per trained step. The priority of a sequence combines those of its steps that count:

    .. math:: p = \eta \max_t p_t + (1 - \eta) \, \mathrm{mean}_t \, p_t

    Args:
        inner: objective on transitions, whose observations are recurrent features.
        sequences: lengths and eta.
        double_q: the online network selects next actions, so it is unrolled beyond the trained steps too.
    """

    def __init__(self, inner: Objective, sequences: Sequences, double_q: bool = True) -> None:
        self.inner = inner
        self.sequences = sequences
        self.double_q = double_q
        self.reports = inner.reports

    def __call__(self, online: Network, target: Network, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        obs, next_obs = self._unroll(online, batch, self.double_q)
        with torch.no_grad():
            obs_target, next_obs_target = self._unroll(target, batch, True)
        unrolled = batch._replace(
            obs={"online": obs, "target": obs_target}, next_obs={"online": next_obs, "target": next_obs_target}
        )
        loss, extras = self.inner(_on_features(online, "online"), _on_features(target, "target"), unrolled)
        steps = (self.sequences.batch_T, -1)
        of_steps = extras.get("priority", loss.detach()).view(steps)
        priority = sequence_priority(of_steps, batch.weight.view(steps) > 0, self.sequences.eta)
        return loss, {**extras, "priority": priority}

    def _unroll(self, net: Network, batch: Batch, after: bool) -> tuple[Tensor, Tensor]:
        """Returns recurrent features `[T * N, H]` at the trained steps, and at the rows that they bootstrap from (without
        a gradient; those of the trained steps if `after` is False)."""
        length = self.sequences.batch_T
        extra = batch.extra
        assert extra is not None  # a batch of sequences has it
        bare: Any = net.func if isinstance(net, partial) else net  # noise is for the layers behind the recurrent one
        features = bare.unroll(batch.obs, extra, self.sequences.warmup_T, length, after)
        trained = features.trained.flatten(0, 1)
        if not after:
            return trained, trained.detach()
        count = features.trained.shape[1]
        along = torch.cat([trained.detach(), features.after.flatten(0, 1)])
        lane = torch.arange(count, device=along.device).repeat(length)
        return trained, along.index_select(0, extra["end"] * count + lane)


def _on_features(net: Network, name: str) -> Any:
    """Returns a network as a function that reads its own recurrent features, of this name, among those of two networks."""
    return lambda obs, mask=None: net({FEATURES: obs[name]}, mask)


class RecurrentRolloutObjective:
    """Unrolls the network from the stored state of the first step of each sequence; from zeros where an episode begins.

    Unrolling starts from the recurrent state at collection time, and from zeros at the start of an episode. Gradients flow
    through all steps of a sequence, but not into the steps before it.

    Args:
        inner: objective on samples, whose observations are recurrent features.
        length: number of steps of a sequence.
    """

    def __init__(self, inner: Objective, length: int) -> None:
        self.inner = inner
        self.length = length
        self.reports = inner.reports

    def __call__(self, online: Network, target: Network, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
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
