"""Random numbers of a forward pass: noise of noisy layers, fractions of implicit quantiles."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Noise(NamedTuple):
    """Buffers of random numbers, refilled in place so that traced passes read new numbers."""

    normal: Tensor
    """`[R, P]` float32: R = 1 for one draw that all rows share, or R = N; each noisy layer reads its own slice.
    Factorised noise is f(x) = sgn(x) sqrt|x|."""
    uniform: Tensor
    """`[N, U]` float32 in [0, 1)."""
    factorised: bool = True
    joined: Tensor | None = None
    """`[R P + N U]`, the storage of both."""
    heads: Tensor | slice | None = None
    """Heads that a network with several of them reads: `[N]` int64, one for each row, or a slice. If None, it reads the last
    one."""

    @classmethod
    def zeros(cls, normal: tuple[int, int], uniform: tuple[int, int], device: torch.device, factorised: bool) -> Noise:
        """Returns buffers of these shapes, in one storage."""
        split = normal[0] * normal[1]
        joined = torch.zeros(split + uniform[0] * uniform[1], device=device)
        return cls(joined[:split].view(normal), joined[split:].view(uniform), factorised, joined)

    def renew(self, generator: torch.Generator) -> None:
        """Draws all numbers in place."""
        self.draw(generator)
        if not self.normal.numel():
            return
        if self.factorised:
            torch.copysign(self.normal.abs().sqrt_(), self.normal, out=self.normal)
        if self.uniform.numel():
            torch.special.ndtr(self.uniform, out=self.uniform)

    def draw(self, generator: torch.Generator) -> None:
        """Draws numbers in place, in one call, that become the noise by `after_draw`, which a trace may hold."""
        if not self.normal.numel():
            self.uniform.uniform_(generator=generator)
            return
        for numbers in (self.normal, self.uniform) if self.joined is None else (self.joined,):
            numbers.normal_(generator=generator)

    def after_draw(self) -> Noise:
        """Returns the noise of the numbers that were drawn last by `draw`."""
        if not self.normal.numel():
            return self
        normal = self.normal.abs().sqrt().copysign(self.normal) if self.factorised else self.normal
        # ndtr(z) is uniform if z is normal
        uniform = torch.special.ndtr(self.uniform) if self.uniform.numel() else self.uniform
        return self._replace(normal=normal, uniform=uniform)


NO_NOISE = Noise(torch.empty(1, 0), torch.empty(0, 0))
"""Noise of networks without random numbers, for passes that read chosen heads."""
