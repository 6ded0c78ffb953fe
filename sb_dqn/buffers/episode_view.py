"""What is read from complete episodes: all their samples with their returns, and a baseline if there is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.buffers.n_step_transitions import as_it_is
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.sample_view import SampleView
from sb_dqn.types import IntArray

Baseline = Callable[[Tensor, Tensor], Tensor]
"""From returns `[M]` and steps within the episode `[M]` int64 to what each return is compared with, `[M]`."""


class EpisodeView(SampleView):
    """The first places hold the samples, one episode after the other; all others hold nothing.

    Args:
        ring: to read from.
        gamma, lambda_, extras, scale: see `SampleView`.
        baseline: what stands for the value where none is learned; None: the value that was declared.

    Raises:
        ConfigurationError: gamma or lambda_ is out of its range.
    """

    def __init__(
        self,
        ring: Ring,
        gamma: float,
        lambda_: float,
        extras: Mapping[str, tuple[int, ...]],
        baseline: Baseline | None = None,
        scale: Callable[[Tensor], Tensor] = as_it_is,
    ) -> None:
        super().__init__(ring, ring.capacity, gamma, lambda_, extras, scale)
        self.baseline = baseline
        self.num_samples = 0

    def prepare(self, where: IntArray, extra: Mapping[str, npt.NDArray[Any]]) -> None:
        """Finds the samples and computes their targets.

        Args:
            where: `[E, 3]` of each episode the lane, its first row and its `last` row (absolute).
            extra: `[rows, B, ...]` by name, what was declared at each row; values are complete.
        """
        ring, device = self.ring, self.ring.device
        start, length = np.array(ring.cursor), where[:, 2] - where[:, 1]
        np.minimum.at(start, where[:, 0], where[:, 1])
        width = int((ring.cursor - start).max()) + 1
        row = torch.from_numpy(start).to(device) + torch.arange(width, device=device).unsqueeze(1)  # [W, B]
        cells = ring.cells(self._lanes, row)
        declared = {name: torch.from_numpy(column).to(device).flatten(0, 1) for name, column in extra.items()}
        return_, _ = self._targets(cells, row, declared["value"].take(cells))

        self.num_samples = count = int(length.sum())
        step_of = np.concatenate([np.arange(steps) for steps in length])
        lane_of, row_of = np.repeat(where[:, 0], length), np.repeat(where[:, 1], length) + step_of
        place = torch.from_numpy((row_of - start[lane_of]) * ring.num_lanes + lane_of).to(device)
        self.lane[:count] = torch.from_numpy(lane_of).to(device)
        self.row[:count] = torch.from_numpy(row_of).to(device)
        self.return_[:count] = return_.flatten().take(place)
        self.weight.zero_()
        self.weight[:count] = 1.0
        at = cells.flatten().take(place)
        for name, column in declared.items():
            self.extra[name][:count] = column.index_select(0, at)
        if self.baseline is not None:
            self.extra["value"][:count] = self.baseline(self.return_[:count], torch.from_numpy(step_of).to(device))
