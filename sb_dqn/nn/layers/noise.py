"""Random numbers of a forward pass: noise of noisy layers, fractions of implicit quantiles."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Noise(NamedTuple):
    """Buffers of random numbers, refilled in place so that recorded passes read new numbers."""

    normal: Tensor
    """`[R, P]` float32: R = 1 for one draw that all rows share, or R = N; each noisy layer reads its own slice.
    Factorised noise is f(x) = sgn(x) sqrt|x|."""
    uniform: Tensor
    """`[N, U]` float32 in [0, 1)."""
    factorised: bool = True

    def renew(self, generator: torch.Generator) -> None:
        """Draws all numbers in place."""
        self.draw(generator)
        if self.normal.numel() and self.factorised:
            self.normal.copy_(self.normal.abs().sqrt_().copysign_(self.normal))

    def draw(self, generator: torch.Generator) -> None:
        """Draws numbers in place that become the noise by `after_draw`, which a recording may hold."""
        if self.normal.numel():
            self.normal.normal_(generator=generator)
        if self.uniform.numel():
            self.uniform.uniform_(generator=generator)

    def after_draw(self) -> Noise:
        """Returns the noise of the numbers that were drawn last."""
        if not (self.normal.numel() and self.factorised):
            return self
        return self._replace(normal=self.normal.abs().sqrt().copysign(self.normal))
