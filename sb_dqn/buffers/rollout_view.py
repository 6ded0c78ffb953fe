"""What is read from a rollout: the samples of all lanes with their lambda-returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.buffers.n_step_transitions import as_it_is
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.sample_view import SampleView
from sb_dqn.types import IntArray


class RolloutView(SampleView):
    """Place t * B + b holds the t-th sample of lane b.

    Args:
        ring: to read from.
        n_steps: samples a lane, at most.
        gamma, lambda_, extras, scale: see `SampleView`.

    Raises:
        ConfigurationError: gamma or lambda_ is out of its range.
    """

    def __init__(
        self,
        ring: Ring,
        n_steps: int,
        gamma: float,
        lambda_: float,
        extras: Mapping[str, tuple[int, ...]],
        scale: Callable[[Tensor], Tensor] = as_it_is,
    ) -> None:
        super().__init__(ring, n_steps * ring.num_lanes, gamma, lambda_, extras, scale)
        self.n_steps = n_steps
        self._window = torch.arange(2 * n_steps + 1, device=ring.device).unsqueeze(1)

    def prepare(self, where: IntArray, extra: Mapping[str, npt.NDArray[Any]]) -> None:
        """Finds the samples and computes their targets.

        Args:
            where: `[B]` row (absolute) at which the rollout begins, lane by lane.
            extra: `[rows, B, ...]` by name, what was declared at each row; values are complete.
        """
        ring, device = self.ring, self.ring.device
        row = torch.from_numpy(where).to(device) + self._window  # [W, B], W = 2 n_steps + 1
        cells = ring.cells(self._lanes, row)
        declared = {name: torch.from_numpy(column).to(device).flatten(0, 1) for name, column in extra.items()}
        return_, starts = self._targets(cells, row, declared["value"].take(cells))
        # the samples of each lane first, time in order; what is left over has weight 0
        order = starts.logical_not().byte().argsort(dim=0, stable=True)[: self.n_steps]  # [n_steps, B]
        self.lane[:-1] = self._lanes.expand_as(order).flatten()
        self.row[:-1] = row.gather(0, order).flatten()
        self.return_[:-1] = return_.gather(0, order).flatten()
        self.weight[:-1] = starts.gather(0, order).flatten()
        at = cells.gather(0, order).flatten()
        for name, column in declared.items():
            self.extra[name][:-1] = column.index_select(0, at)
