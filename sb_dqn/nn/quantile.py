"""Heads of quantiles: at fixed fractions (QR-DQN) and at any that an embedding was asked for (IQN, FQF)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sb_dqn.checks import check_int
from sb_dqn.nn.heads import Distribution, Head
from sb_dqn.nn.linear import Linear
from sb_dqn.nn.noise import Noise
from sb_dqn.nn.risk import parse_risk
from sb_dqn.nn.values import QuantileValue


def midpoints(count: int, device: torch.device | None = None) -> Tensor:
    """Middles of `count` equal parts of [0, 1]: `[count]` float32."""
    return (torch.arange(count, dtype=torch.float32, device=device) + 0.5) / count


class QuantileHead(Head):
    """Quantiles at the middles of equal fractions (Dabney et al. 2018, arXiv 1710.10044).

    Args:
        outputs: last layer, Z = n_quantiles.
        n_quantiles: M.
        legal: see `Head`.
    """

    taus: Tensor

    def __init__(self, outputs: nn.Module, n_quantiles: int, legal: Tensor | None = None) -> None:
        super().__init__(legal)
        self.outputs = outputs
        self.register_buffer("taus", midpoints(n_quantiles), persistent=False)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, noise: Noise | None = None, fractions: Any = None
    ) -> QuantileValue:
        return QuantileValue(self.outputs(x, noise), self.taus, None, self.allowed(mask))


class ImplicitHead(Head):
    """Quantiles at the fractions by which the features were multiplied (Dabney et al. 2018, arXiv 1806.06923).

    Args:
        outputs: last layer, Z = 1.
        legal: see `Head`.
    """

    def __init__(self, outputs: nn.Module, legal: Tensor | None = None) -> None:
        super().__init__(legal)
        self.outputs = outputs

    def forward(self, x: Tensor, mask: Tensor | None, noise: Noise | None, fractions: Tensor) -> QuantileValue:
        quantiles = implicit_quantiles(self.outputs, x, noise)
        (taus,) = beside(quantiles, fractions)
        return QuantileValue(quantiles, taus, None, self.allowed(mask))


def implicit_quantiles(outputs: nn.Module, x: Tensor, noise: Noise | None) -> Tensor:
    """Features `[N, M, H or 2 H]` through a last layer with Z = 1 -> `[N, (D,) A, M]`."""
    found: Tensor = outputs(x, noise)
    return found.squeeze(-1).movedim(1, -1)


def beside(quantiles: Tensor, *of_rows: Tensor) -> list[Tensor]:
    """Tensors `[N, M]` as `[N, 1, M]` where quantiles `[N, D, A, M]` have branches."""
    return [x.unsqueeze(1) if quantiles.dim() == 4 else x for x in of_rows]


class CosineEmbedding(nn.Module):
    r"""Features multiplied by an embedding of each fraction.

    .. math:: x' = x \odot \phi(\tau), \qquad \phi(\tau) = \mathrm{ReLU}\Big(\sum_{i=1}^{n} w_i \cos(\pi i \tau) + b\Big)

    Dabney et al. count i from 0 to n - 1. Their first cosine is 1 for every fraction, which b is already; from 1 to n, as
    DeepMind's own dqn_zoo and Dopamine have it, none is wasted.

    Args:
        width: W, of the features.
        n_cosines: n.
        bias: initial value of b; None: drawn as `nn.Linear` draws it.
    """

    def __init__(self, width: int, n_cosines: int, bias: float | None = None) -> None:
        super().__init__()
        self.n_cosines = n_cosines
        self.linear = Linear(n_cosines, width)
        if bias is not None:
            nn.init.constant_(self.linear.bias, bias)

    def forward(self, x: Tensor, taus: Tensor) -> Tensor:
        """`[N, W]` and `[N, M]` (or `[1, M]`) -> `[N, M, W]` in the precision of x; the cosines are made in float32."""
        # made here, not a buffer: of a bfloat16 copy of this module the multiples of pi would be rounded
        times = torch.arange(1, self.n_cosines + 1, dtype=torch.float32, device=taus.device) * math.pi
        cosines = torch.cos(taus.unsqueeze(-1) * times).to(x.dtype)
        return x.unsqueeze(-2) * torch.relu(self.linear(cosines))


class ImplicitEmbedding(nn.Module):
    """Asks for the quantile function at random fractions, or at evenly spaced ones.

    Args:
        width: W, of the features.
        n_cosines: of the embedding.
        n_even: number of fractions where none are drawn.
        distort: what attitude to risk makes of the fractions by which actions are chosen; None: neutral.
    """

    def __init__(
        self, width: int, n_cosines: int, n_even: int, distort: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__()
        self.cosines = CosineEmbedding(width, n_cosines)
        self.n_even = n_even
        self.distort = distort

    def forward(self, x: Tensor, noise: Noise | None = None, acting: bool = False) -> tuple[Tensor, Tensor]:
        """`[N, W]` -> `[N, M, W]`, and the fractions `[N, M]`."""
        if noise is None or noise.uniform.shape[-1] == 0:
            taus = midpoints(self.n_even, x.device).unsqueeze(0)
        else:
            taus = noise.uniform
        if acting and self.distort is not None:
            taus = self.distort(taus)
        return self.cosines(x, taus), taus.expand(x.shape[0], -1)


@dataclass(frozen=True)
class Quantile(Distribution):
    """Quantiles at the middles of equal fractions.

    Args:
        n_quantiles: how many, 1 or more.

    Raises:
        ConfigurationError: a scalar is out of its range.
    """

    n_quantiles: int = 200

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_quantiles", check_int("n_quantiles", self.n_quantiles, 1))

    def make_head(self, outputs: Callable[[int], nn.Module], legal: Tensor | None) -> QuantileHead:
        return QuantileHead(outputs(self.n_quantiles), self.n_quantiles, legal)


@dataclass(frozen=True)
class Implicit(Distribution):
    """Quantiles at fractions drawn anew for each pass.

    Args:
        n_taus, n_target_taus: drawn for each observation when learning, by the online net and by the target net.
        n_policy_taus: drawn when acting; evenly spaced where actions are to be the same each time.
        n_cosines: of the embedding.
        risk: attitude when acting, None, "cvar ETA" or "power ETA"; see `sb_dqn.nn.risk`. Learning is neutral.

    Raises:
        ConfigurationError: a scalar is out of its range.
    """

    n_taus: int = 64
    n_target_taus: int = 64
    n_policy_taus: int = 32
    n_cosines: int = 64
    risk: str | None = None

    def __post_init__(self) -> None:
        for name in ("n_taus", "n_target_taus", "n_policy_taus", "n_cosines"):
            object.__setattr__(self, name, check_int(name, getattr(self, name), 1))
        parse_risk(self.risk)

    @property
    def num_online(self) -> int:
        return self.n_taus

    @property
    def num_target(self) -> int:
        return self.n_target_taus

    @property
    def num_acting(self) -> int:
        return self.n_policy_taus

    def make_embedding(self, width: int) -> ImplicitEmbedding:
        return ImplicitEmbedding(width, self.n_cosines, self.n_policy_taus, parse_risk(self.risk))

    def make_head(self, outputs: Callable[[int], nn.Module], legal: Tensor | None) -> ImplicitHead:
        return ImplicitHead(outputs(1), legal)
