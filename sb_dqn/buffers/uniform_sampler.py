"""Samplers: which rows a batch begins at. Pure tensor functions of fixed shape: they can be traced or captured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from sb_dqn.buffers.ring import Ring
from sb_dqn.errors import ConfigurationError
from sb_dqn.types import Slot


class Sampler(ABC):
    """Says where a batch begins, and hears what has arrived and how large the errors were."""

    noise_shape: tuple[int, ...]
    """Shape of the float64 uniform [0, 1) numbers that one call of `locate` needs."""

    @abstractmethod
    def locate(self, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`noise` -> lane `[N]` int64, absolute row `[N]` int64, weight `[N]` float32 (0: padding)."""

    @abstractmethod
    def arrived(self, slot: Slot) -> None:
        """One slot has been written into the ring."""

    @abstractmethod
    def feedback(self, index: Tensor, priority: Tensor) -> None:
        """New priorities `[N]` of the places `index` `[2, N]` (lane, absolute row)."""

    def advance(self, step: int, horizon: int) -> None:  # noqa: B027 - most samplers follow no schedule
        """How far the run is, in env steps; told before a burst of updates, for what follows a schedule."""

    def refresh(self) -> None:  # noqa: B027 - most samplers need no more than the ring's bounds
        """The host's part: called after `ring.refresh_bounds()` and before sampling; it must be cheap to call again."""

    def memory(self) -> tuple[Tensor, ...]:
        """The tensors that `feedback` writes in place."""
        return ()

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Undoes what `feedback` did meanwhile: recording a gradient step runs it, and nothing may be learnt of that."""
        before = [tensor.clone() for tensor in self.memory()]
        try:
            yield
        finally:
            for tensor, old in zip(self.memory(), before, strict=True):
                tensor.copy_(old)

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """What the sampler remembers; may be views of live memory, as the ring's."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Takes over what `state_dict` gave, after the ring did; an empty state is that of a sampler of another kind."""


class UniformSampler(Sampler):
    """Every row that may start is equally likely, with replacement.

    One number is drawn over the sum of the lanes' intervals (never a lane first: lanes may be unequal), four candidates
    for each place; the first that may start is taken. Only if all four are `last` rows the place has weight 0.

    Args:
        ring: `ring.refresh_bounds()` must have been called since the last arrival.
        batch_size: N >= 1.
    """

    CANDIDATES = 4

    def __init__(self, ring: Ring, batch_size: int) -> None:
        if batch_size < 1:
            raise ConfigurationError(f"batch_size={batch_size} is not allowed; give an integer >= 1")
        self.ring = ring
        self.noise_shape = (self.CANDIDATES, batch_size)

    def locate(self, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `Sampler.locate`.

        Args:
            noise: `[4, N]` uniform in [0, 1), float64. float32 is accepted, but with its 2**24 values it cannot reach
                every row of a larger ring.
        """
        ring = self.ring
        number = (noise.double() * ring.total).long()  # < total: the product never rounds up to it
        if ring.num_lanes == 1:
            row = number + ring.base
            allowed = ring.may_start(number, row)
            chosen = _first(allowed, row)
            return torch.zeros_like(chosen), chosen, allowed.any(0).float()
        lane = torch.searchsorted(ring.edge, number, right=True)
        lane = lane.clamp_max(ring.num_lanes - 1)  # matters only while no lane has a row
        row = number + ring.base.take(lane)
        allowed = ring.may_start(lane, row)
        return _first(allowed, lane), _first(allowed, row), allowed.any(0).float()

    def arrived(self, slot: Slot) -> None:
        """Nothing to do: the bounds say it all."""

    def feedback(self, index: Tensor, priority: Tensor) -> None:
        """Nothing to do: all rows stay equal."""

    def state_dict(self) -> dict[str, Tensor]:
        """Empty: nothing is remembered."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Nothing to take over."""


def _first(allowed: Tensor, candidates: Tensor) -> Tensor:
    """`[C, N]` -> `[N]`: of each column the first candidate that is allowed, or the last one if none is.

    A chain of `where`, because `max` over an axis wakes a second thread even for 32 places, and waits for it.
    """
    *earlier, chosen = candidates.unbind(0)
    for may, candidate in zip(reversed(allowed.unbind(0)[:-1]), reversed(earlier), strict=True):
        chosen = torch.where(may, candidate, chosen)
    return chosen
