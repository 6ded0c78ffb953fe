"""Any Q-objective along sequences: a net is unrolled once, and what it remembers is what the objective sees."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from sb_dqn.buffers.sequences import Sequences, sequence_inputs
from sb_dqn.losses.sequences import sequence_priority
from sb_dqn.types import Batch, Objective


class RecurrentReplayObjective:
    r"""Unrolls both nets from the stored state through burn-in, then asks another objective about the trained steps
    (Kapturowski et al. 2019, ICLR).

    The loss is one number for each trained step; the priority of a sequence joins those of its steps that count.

    .. math:: p = \eta \max_t p_t + (1 - \eta) \, \mathrm{mean}_t \, p_t

    Args:
        inner: objective on transitions; its observations are what the nets remember.
        sequences: lengths and eta.
        double_q: the online net selects, so it must be unrolled beyond the trained steps too.
    """

    def __init__(self, inner: Objective, sequences: Sequences, double_q: bool = True) -> None:
        self.inner, self.sequences, self.double_q = inner, sequences, double_q
        self.reports = inner.reports

    def __call__(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        obs, next_obs = self._recall(online, batch, self.double_q)
        with torch.no_grad():
            obs_target, next_obs_target = self._recall(target, batch, True)
        seen = batch._replace(
            obs={"online": obs, "target": obs_target}, next_obs={"online": next_obs, "target": next_obs_target}
        )
        loss, facts = self.inner(_Seen(online, "online"), _Seen(target, "target"), seen)
        steps = (self.sequences.batch_T, -1)
        priority = sequence_priority(facts["priority"].view(steps), batch.weight.view(steps) > 0, self.sequences.eta)
        return loss, {**facts, "priority": priority}

    def _recall(self, net: Any, batch: Batch, beyond: bool) -> tuple[Tensor, Tensor]:
        """What a net remembers at the trained steps, and, if asked, at the rows that they bootstrap from (no gradient);
        `[T * N, H]`."""
        length, extra = self.sequences.batch_T, sequence_inputs(batch)
        bare: Any = net.func if isinstance(net, partial) else net  # noise belongs to what comes behind the memory
        recalled = bare.recall(batch.obs, extra, self.sequences.warmup_T, length, beyond)
        trained = recalled.trained.flatten(0, 1)
        if not beyond:
            return trained, trained.detach()
        count = recalled.trained.shape[1]
        along = torch.cat([trained.detach(), recalled.beyond.flatten(0, 1)])
        lane = torch.arange(count, device=along.device).repeat(length)
        return trained, along.index_select(0, extra["end"] * count + lane)


class _Seen:
    """A net that looks at its own memories among those of two nets."""

    def __init__(self, net: Any, name: str) -> None:
        self.net, self.name = net, name

    def __call__(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> Any:
        return self.net({"memory": obs[self.name]}, mask)
