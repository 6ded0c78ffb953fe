"""Replay samplers: the base class, and uniform sampling. Pure tensor functions of fixed shape, which can be traced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from sb_dqn.buffers.ring import Ring


class Sampler(ABC):
    """Selects the rows at which the samples of a batch start."""

    ring: Ring
    noise_shape: tuple[int, ...]
    """Shape of the float64 uniform [0, 1) numbers for one call of `locate`; its last axis is the batch."""

    @property
    def batch_size(self) -> int:
        """N, the samples of a training batch."""
        return self.noise_shape[-1]

    def set_batch_size(self, batch_size: int) -> None:
        """Changes the samples of a training batch to N >= 1."""
        self.noise_shape = (*self.noise_shape[:-1], batch_size)

    @abstractmethod
    def locate(self, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Selects rows from uniform numbers.

        Args:
            noise: `noise_shape`, or the same with another last axis N; float64 in [0, 1).

        Returns:
            Lane `[N]` int64, absolute row `[N]` int64 and weight `[N]` float32, which is 0 for padding.
        """

    def draw(self, batch_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Selects `batch_size` rows with numbers from `generator`, at least one row being allowed to start; see `locate`."""
        shape = (*self.noise_shape[:-1], batch_size)
        noise = torch.rand(shape, dtype=torch.float64, generator=generator, device=generator.device)
        return self.locate(noise.to(self.ring.device))

    def feedback(self, index: Tensor, priority: Tensor) -> None:  # noqa: B027 - most samplers have no priorities
        """Sets new priorities `[N]` of the rows `index` `[2, N]` (lane, absolute row)."""

    def advance(self, step: int, horizon: int) -> None:  # noqa: B027 - most samplers follow no schedule
        """Sets the progress of training in env steps, for schedules; called before a burst of updates."""

    def refresh(self) -> None:  # noqa: B027 - most samplers need no more than the ring's bounds
        """Brings the sampler up to date on the host; called after `ring.refresh_bounds()` and before sampling. Repeated calls are
        cheap."""

    def mutable_tensors(self) -> tuple[Tensor, ...]:
        """Returns the tensors that `feedback` and `refresh` write in place."""
        return ()

    @contextmanager
    def preserve_state(self) -> Iterator[None]:
        """Restores the sampler on exit, undoing `feedback` and `refresh`; for traces and inspection."""
        before = [tensor.clone() for tensor in self.mutable_tensors()]
        try:
            yield
        finally:
            for tensor, old in zip(self.mutable_tensors(), before, strict=True):
                tensor.copy_(old)

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the state of the sampler, if it has one; may contain views of live memory, as the ring's."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027 - as above
        """Loads the result of `state_dict`, after the ring has loaded its own; an empty state comes from another sampler."""


class UniformSampler(Sampler):
    """Uniform sampling with replacement over all rows that may start.

    One number is drawn over the sum of the lanes' intervals (never a lane first, because lanes may differ in length), four
    candidates per sample; the first that may start is used. A sample has weight 0 only if all four are `last` rows.

    Args:
        ring: the ring; `ring.refresh_bounds()` must have been called since the last arrival.
        batch_size: number of samples N >= 1.
    """

    CANDIDATES = 4

    def __init__(self, ring: Ring, batch_size: int) -> None:
        self.ring = ring
        self.noise_shape = (self.CANDIDATES, batch_size)

    def locate(self, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `Sampler.locate`.

        Args:
            noise: `[4, N]` uniform in [0, 1), float64. float32 is accepted, but its 2**24 values cannot reach every row of a
                larger ring.
        """
        ring = self.ring
        number = (noise.double() * ring.total).long()  # < total: the product never rounds up to it
        if ring.num_lanes == 1:
            row = number + ring.base
            allowed = ring.may_start(number, row)
            chosen = _first(allowed, row)
            return torch.zeros_like(chosen), chosen, allowed.any(0).float()
        lane = torch.searchsorted(ring.edge, number, right=True)
        lane = lane.clamp_max(ring.num_lanes - 1)  # has an effect only while no lane has a row
        row = number + ring.base.take(lane)
        allowed = ring.may_start(lane, row)
        return _first(allowed, lane), _first(allowed, row), allowed.any(0).float()

    def draw(self, batch_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """See `Sampler.draw`; samples of weight 0 are drawn again, so every weight is 1."""
        lane, row, weight = super().draw(batch_size, generator)
        while len(padding := (weight == 0).nonzero()[:, 0]):
            lane[padding], row[padding], weight[padding] = super().draw(len(padding), generator)
        return lane, row, weight


def _first(allowed: Tensor, candidates: Tensor) -> Tensor:
    """Returns, for each column of `[C, N]`, the first candidate that is allowed, or the last one if none is.

    A chain of `where`, because `max` over an axis wakes a second thread even for 32 samples, and waits for it.
    """
    *earlier, chosen = candidates.unbind(0)
    for may, candidate in zip(reversed(allowed.unbind(0)[:-1]), reversed(earlier), strict=True):
        chosen = torch.where(may, candidate, chosen)
    return chosen
