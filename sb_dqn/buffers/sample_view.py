"""What is read from rows that a policy left: samples with their lambda-returns, in places of fixed number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.buffers.frame_stack import observations_at
from sb_dqn.buffers.n_step_transitions import as_it_is
from sb_dqn.buffers.ring import Ring
from sb_dqn.errors import ConfigurationError
from sb_dqn.losses.returns import lambda_returns
from sb_dqn.types import Batch, IntArray


class SampleView(ABC):
    """Each place holds one sample, or nothing (weight 0); the last place always stands for none.

    Everything that `gather` reads lies in tensors that never move, so a recording of it stays valid.

    Args:
        ring: to read from.
        places: room for samples.
        gamma, lambda_: in [0, 1].
        extras: shapes of what the policy declares.
        scale: from rewards as they are stored to rewards as they are learned from.

    Raises:
        ConfigurationError: gamma or lambda_ is out of its range.
    """

    def __init__(
        self,
        ring: Ring,
        places: int,
        gamma: float,
        lambda_: float,
        extras: Mapping[str, tuple[int, ...]],
        scale: Callable[[Tensor], Tensor] = as_it_is,
    ) -> None:
        for name, number in (("gamma", gamma), ("lambda", lambda_)):
            if not 0.0 <= number <= 1.0:
                raise ConfigurationError(f"{name}={number} is not allowed; give a number in [0, 1]")
        self.ring, self.places, self.gamma, self.lambda_ = ring, places, float(gamma), float(lambda_)
        self.scale = scale
        device = ring.device
        self.lane, self.row = torch.zeros((2, places + 1), dtype=torch.int64, device=device)
        self.return_, self.weight = torch.zeros((2, places + 1), device=device)
        self.extra = {name: torch.zeros((places + 1, *shape), device=device) for name, shape in extras.items()}
        self._lanes = torch.arange(ring.num_lanes, device=device)

    @abstractmethod
    def prepare(self, where: IntArray, extra: Mapping[str, npt.NDArray[Any]]) -> None:
        """Finds the samples and computes their targets.

        Args:
            where: the samples lie.
            extra: `[rows, B, ...]` by name, what was declared at each row; values are complete.
        """

    def _targets(self, cells: Tensor, row: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """lambda-returns `[W - 1, B]`, finite everywhere, and which rows start a transition, `[W - 1, B]` bool."""
        ring = self.ring
        open_row = torch.from_numpy(ring.cursor - 1).to(ring.device)
        terminal, last = ring.terminal.take(cells), ring.last.take(cells)
        starts = (row[:-1] < open_row) & ~last[:-1]
        goes_on = starts & (row[1:] < open_row) & ~(terminal | last)[1:]
        # rows past the cursor are stale: `where`, not a product
        return_ = lambda_returns(
            torch.where(starts, self.scale(ring.reward.take(cells[1:])), 0.0),
            (starts & ~terminal[1:]) * self.gamma,
            torch.where(starts, value[1:], 0.0),
            goes_on * self.lambda_,
        )
        return return_, starts

    def gather(self, places: Tensor) -> Batch:
        """Reads one batch.

        Args:
            places: `[N]` int64.

        Returns:
            A batch whose `return_` is the whole target: nothing is left to bootstrap (discount 0, no `next_obs`).
        """
        lane, row = self.lane.take(places), self.row.take(places)
        return_ = self.return_.take(places)
        obs, mask = self.observe(lane, row)
        return Batch(
            obs=obs,
            action=self.ring.actions_at(self.ring.cells(lane, row)),
            return_=return_,
            discount=torch.zeros_like(return_),
            next_obs={},
            weight=self.weight.take(places),
            place=torch.stack([lane, row]),
            mask=mask,
            extra={name: column.index_select(0, places) for name, column in self.extra.items()},
        )

    def observe(self, lane: Tensor, row: Tensor) -> tuple[dict[str, Tensor], Tensor | None]:
        """Observations, frames stacked, and masks, if there are any, of rows `[N]` of lanes `[N]`."""
        mask = self.ring.mask
        legal = None if mask is None else mask.index_select(0, self.ring.cells(lane, row))
        return observations_at(self.ring, lane, row), legal
