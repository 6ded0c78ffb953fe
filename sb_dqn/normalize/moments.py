"""Running mean and variance."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.types import Array, State


class Moments:
    """Running mean and variance of each element of an array, independent of how the stream is split into batches.

    Batches are merged by the method of Chan, Golub & LeVeque (1979): with delta = mean_b - mean and n = n_a + n_b,

        mean += delta n_b / n,    M2 += M2_b + delta^2 n_a n_b / n,    variance = M2 / n,

    where M2 is the sum of squared deviations. Computed in float64 on the host, to stay accurate over long streams. Without
    data the mean is 0 and the variance 1, so that normalization is the identity.

    Args:
        shape: shape of one array.
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.count = 0
        self.mean = np.zeros(shape)
        self.squares = np.zeros(shape)

    def update(self, batch: Array) -> None:
        """Adds a batch `[n, *shape]`, n >= 0, of finite numbers."""
        added = len(batch)
        if added == 0:
            return
        if added == 1:
            self.merge(1, batch[0].astype(np.float64), 0.0)
        else:
            batch = batch.astype(np.float64)
            mean = batch.mean(0)
            self.merge(added, mean, np.square(batch - mean).sum(0))

    def merge(self, added: int, mean: npt.NDArray[np.float64], squares: npt.NDArray[np.float64] | float) -> None:
        """Adds `added` > 0 arrays with this mean and sum of squared deviations."""
        before = self.count
        self.count += added
        delta = mean - self.mean
        self.mean += delta * (added / self.count)
        self.squares += squares + np.square(delta) * (before * added / self.count)

    def clear(self) -> None:
        """Clears all data."""
        self.count = 0
        self.mean[...] = 0.0
        self.squares[...] = 0.0

    def pack(self) -> npt.NDArray[np.float64]:
        """Returns count, mean and squares as one array `[1 + 2 size]`."""
        return np.concatenate([[self.count], self.mean.ravel(), self.squares.ravel()])

    def merge_packed(self, packed: npt.NDArray[np.float64]) -> None:
        """Adds statistics that `pack` returned."""
        if packed[0]:
            mean, squares = packed[1:].reshape(2, *self.mean.shape)
            self.merge(int(packed[0]), mean, squares)

    @property
    def variance(self) -> npt.NDArray[np.float64]:
        """The population variance `[*shape]`, >= 0; 1 without data."""
        return self.squares / self.count if self.count else np.ones_like(self.squares)

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "count": torch.tensor(self.count),
            "mean": torch.from_numpy(self.mean.copy()),
            "squares": torch.from_numpy(self.squares.copy()),
        }

    def load_state_dict(self, state: State) -> None:
        """Restores a `state_dict` of the same shape."""
        self.count = int(state["count"])
        self.mean[...] = state["mean"].cpu().numpy()
        self.squares[...] = state["squares"].cpu().numpy()


class PeakMoments(Moments):
    """Running mean and variance of numbers, and the largest absolute value, 0 without data."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0.0

    def update(self, batch: Array) -> None:
        super().update(batch)
        self.peak = max(self.peak, float(np.abs(batch).max(initial=0.0)))

    def clear(self) -> None:
        super().clear()
        self.peak = 0.0

    def pack(self) -> npt.NDArray[np.float64]:
        return np.append(super().pack(), self.peak)

    def merge_packed(self, packed: npt.NDArray[np.float64]) -> None:
        super().merge_packed(packed[:-1])
        self.peak = max(self.peak, float(packed[-1]))

    def state_dict(self) -> dict[str, Tensor]:
        return {**super().state_dict(), "peak": torch.tensor(self.peak, dtype=torch.float64)}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.peak = float(state.get("peak", 0.0))  # statistics of a model without a bound have none
