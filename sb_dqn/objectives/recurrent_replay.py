"""Recurrent wrapper of Q-learning objectives for replayed sequences (R2D2).

Separate from `RecurrentRolloutObjective`: burn-in, a second network, bootstrap rows and sequence priorities exist in replay only.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from sb_dqn.buffers.sequences import Sequences, sequence_inputs
from sb_dqn.losses.sequences import sequence_priority
from sb_dqn.types import Batch, Objective


class RecurrentReplayObjective:
    r"""Unrolls both networks over stored sequences and applies an objective on transitions to the trained steps.

    Unrolling starts from the stored recurrent state, with burn-in (Kapturowski et al. 2019, ICLR). The loss has one entry
    per trained step, `[T * N]`. The priority of a sequence combines those of its valid steps:

    .. math:: p = \eta \max_t p_t + (1 - \eta) \, \mathrm{mean}_t \, p_t

    Args:
        inner: objective on transitions; its observations are the outputs of the recurrent layers.
        sequences: sequence lengths and eta.
        double_q: the online network selects the next action, so it is unrolled beyond the trained steps too.
    """

    def __init__(self, inner: Objective, sequences: Sequences, double_q: bool = True) -> None:
        self.inner = inner
        self.sequences = sequences
        self.double_q = double_q
        self.reports = inner.reports

    def __call__(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        features, next_features = self._unroll(online, batch, self.double_q)
        with torch.no_grad():
            target_features, next_target_features = self._unroll(target, batch, True)
        transitions = batch._replace(
            obs={"online": features, "target": target_features},
            next_obs={"online": next_features, "target": next_target_features},
        )
        loss, facts = self.inner(_Head(online, "online"), _Head(target, "target"), transitions)
        steps = (self.sequences.batch_T, -1)
        priority = sequence_priority(facts["priority"].view(steps), batch.weight.view(steps) > 0, self.sequences.eta)
        return loss, {**facts, "priority": priority}

    def _unroll(self, net: Any, batch: Batch, beyond: bool) -> tuple[Tensor, Tensor]:
        """Returns the recurrent features `[T * N, H]` of the trained steps and of their bootstrap rows.

        The second tensor has no gradient. Without `beyond` it is not computed and repeats the first.
        """
        length = self.sequences.batch_T
        extra = sequence_inputs(batch)
        bare: Any = net.func if isinstance(net, partial) else net  # the noise bound to it is for the layers after
        unrolled = bare.recall(batch.obs, extra, self.sequences.warmup_T, length, beyond)
        trained = unrolled.trained.flatten(0, 1)
        if not beyond:
            return trained, trained.detach()
        count = unrolled.trained.shape[1]
        all_steps = torch.cat([trained.detach(), unrolled.beyond.flatten(0, 1)])
        sequence = torch.arange(count, device=all_steps.device).repeat(length)
        return trained, all_steps.index_select(0, extra["end"] * count + sequence)


class _Head:
    """Network applied to its own recurrent features, selected by name from those of two networks."""

    def __init__(self, net: Any, name: str) -> None:
        self.net = net
        self.name = name

    def __call__(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> Any:
        return self.net({"memory": obs[self.name]}, mask)
