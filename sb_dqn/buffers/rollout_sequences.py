"""A rollout that is read along its lanes: what a policy with a memory learns from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.buffers.rollout_buffer import RolloutBuffer
from sb_dqn.types import ActionArray, Batch, BoolArray, IntArray, Observation


class Before(NamedTuple):
    """What led to rows: all that a memory knew of the rows before them, and what happened since."""

    obs: Observation
    """Of the rows before."""
    declared: dict[str, npt.NDArray[Any]]
    """What the policy said of them: "state" `[N, P]`, the one in which they were met; and what else it reads."""
    action: ActionArray
    """`[N, ...]` that left them."""
    reward: npt.NDArray[Any]
    """`[N]` that came with the rows themselves."""
    begins: BoolArray
    """`[N]`: there is no row before, an episode begins."""


class SequenceRolloutBuffer(RolloutBuffer):
    """Minibatches are sequences of `length` samples of one lane each, in the order of time.

    The policy declares "state" and "begins" of each row that it leaves. A sequence goes over the end of an episode: the state
    is zeroed at the sample that `begins`. The rows of a minibatch come time-major, `[length * sequences]`.
    """

    def describe(self) -> str:
        """One line for people."""
        return f"{super().describe()}, in sequences of {self.length}"

    def sample(self, noise: Tensor) -> Batch:
        """The sequences `[N]` int64 that `draw` gave."""
        lanes = self.ring.num_lanes
        first = noise // lanes * (self.length * lanes) + noise % lanes
        along = first + torch.arange(self.length, device=noise.device).unsqueeze(1) * lanes
        return self.view.gather(torch.where(noise < self.pieces, along, self.view.places).flatten())

    def _asked(self, lane: IntArray, row: IntArray) -> tuple[Any, ...]:
        ring = self.ring
        before = np.maximum(row - 1, 0)
        cells = before % ring.rows, lane
        flat = ring.cells(*(torch.from_numpy(where).to(ring.device) for where in (lane, before)))
        now = ring.cells(*(torch.from_numpy(where).to(ring.device) for where in (lane, row)))
        found = Before(
            obs=self._seen(lane, before)[0],
            declared={name: column[cells] for name, column in self.extra.items()},
            action=ring.actions_at(flat).cpu().numpy(),
            reward=ring.reward.take(now).cpu().numpy(),
            begins=(row == 0) | ring.last.take(flat).cpu().numpy(),
        )
        return *self._seen(lane, row), found
