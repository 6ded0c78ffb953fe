"""Mean and variance of a stream of numbers, exact however the stream is cut into batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Moments:
    """Mean and variance of each number of an array, of all that was ever given.

    Two sets are joined by Chan, Golub & LeVeque (1979): with delta = mean_b - mean and n = n_a + n_b,

        mean += delta n_b / n,    M2 += M2_b + delta^2 n_a n_b / n,    variance = M2 / n,

    where M2 is the sum of squared deviations. In float64 on the host, so that long streams lose nothing. Before anything was
    given the mean is 0 and the variance 1: whoever normalises by them changes nothing.

    Args:
        shape: of one array.
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.count = 0
        self.mean = np.zeros(shape)
        self.squares = np.zeros(shape)

    def update(self, batch: npt.NDArray[Any]) -> None:
        """Takes in arrays `[n, *shape]`, n >= 0, of finite numbers."""
        added = len(batch)
        if added == 0:
            return
        before, self.count = self.count, self.count + added
        if added == 1:
            mean, squares = batch[0].astype(np.float64), 0.0
        else:
            batch = batch.astype(np.float64)
            mean = batch.mean(0)
            squares = np.square(batch - mean).sum(0)
        delta = mean - self.mean
        self.mean += delta * (added / self.count)
        self.squares += squares + np.square(delta) * (before * added / self.count)

    @property
    def variance(self) -> npt.NDArray[np.float64]:
        """Of the population, `[*shape]`, >= 0; 1 before anything was given."""
        return self.squares / self.count if self.count else np.ones_like(self.squares)

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "count": torch.tensor(self.count),
            "mean": torch.from_numpy(self.mean.copy()),
            "squares": torch.from_numpy(self.squares.copy()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave, of the same shape."""
        self.count = int(state["count"])
        self.mean[...] = state["mean"].cpu().numpy()
        self.squares[...] = state["squares"].cpu().numpy()
