"""Quantiles of the return: at fixed fractions (QR-DQN) or at sampled ones (IQN), with risk-sensitive actions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sb_dqn.checks import check_float, check_int, set_fields
from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.nn.heads.scalar import Distribution, Head, gather_action, mask_illegal
from sb_dqn.nn.layers.linear import Linear
from sb_dqn.nn.layers.noise import Noise

WIDE = 512
"""Number of features from which on a `CosineEmbedding` keeps the random bias of `nn.Linear`."""


def midpoints(count: int, device: torch.device | None = None) -> Tensor:
    """Returns the midpoints of `count` equal parts of [0, 1], `[count]` float32."""
    return (torch.arange(count, dtype=torch.float32, device=device) + 0.5) / count


class QuantileValue(NamedTuple):
    """Points of the quantile function of the return, per action."""

    quantiles: Tensor
    """Quantiles `[..., A, M]` float32."""
    taus: Tensor
    """Fractions of the points, `[..., M]` float32 in [0, 1]; leading axes broadcast."""
    weights: Tensor | None = None
    """Weights of the points, `[..., M]` float32, with the sum 1. If None, all weights are equal."""
    legal: Tensor | None = None
    """Legal actions `[..., A]` bool. If None, all actions are legal."""

    @property
    def q(self) -> Tensor:
        """Values `[..., A]` float32, with `ILLEGAL` where an action is masked."""
        if self.weights is None:
            return mask_illegal(self.quantiles.mean(-1), self.legal)
        return mask_illegal((self.quantiles * self.weights.unsqueeze(-2)).sum(-1), self.legal)

    def of(self, action: Tensor) -> Tensor:
        """Returns the quantiles `[..., M]` of `action` `[...]`."""
        return gather_action(self.quantiles, action)

    def soft(self, policy: Tensor, bonus: Tensor) -> Tensor:
        """Returns the mean `[..., M]` of the quantile functions under `policy` `[..., A]`, each shifted by its `bonus` `[..., A]`."""
        return (policy.unsqueeze(-1) * (self.quantiles + bonus.unsqueeze(-1))).sum(-2)


class QuantileHead(Head):
    """Head for quantiles at the midpoints of equal fractions (Dabney et al. 2018, arXiv 1710.10044).

    Args:
        outputs: output layer with Z = n_quantiles.
        n_quantiles: number of quantiles M.
        legal: see `Head`.
    """

    taus: Tensor

    def __init__(self, outputs: nn.Module, n_quantiles: int, legal: Tensor | None = None) -> None:
        super().__init__(outputs, legal)
        self.register_buffer("taus", midpoints(n_quantiles), persistent=False)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, noise: Noise | None = None, fractions: object = None
    ) -> QuantileValue:
        return QuantileValue(self.outputs(x, noise), self.taus, None, self.allowed(mask))


class ImplicitHead(Head):
    """Head for quantiles at the fractions embedded in the features, Z = 1 (Dabney et al. 2018, arXiv 1806.06923)."""

    def forward(self, x: Tensor, mask: Tensor | None, noise: Noise | None, fractions: Tensor) -> QuantileValue:
        quantiles = implicit_quantiles(self.outputs, x, noise)
        (taus,) = with_branch_axis(quantiles, fractions)
        return QuantileValue(quantiles, taus, None, self.allowed(mask))


def implicit_quantiles(outputs: nn.Module, x: Tensor, noise: Noise | None) -> Tensor:
    """Applies an output layer with Z = 1 to features `[N, M, H or 2 H]`; returns quantiles `[N, (D,) A, M]`."""
    quantiles: Tensor = outputs(x, noise)
    return quantiles.squeeze(-1).movedim(1, -1)


def with_branch_axis(quantiles: Tensor, *tensors: Tensor) -> list[Tensor]:
    """Returns tensors `[N, M]` as `[N, 1, M]` if quantiles `[N, D, A, M]` have an axis of branches."""
    return [x.unsqueeze(1) if quantiles.dim() == 4 else x for x in tensors]


class CosineEmbedding(nn.Module):
    r"""Multiplies features by an embedding of each fraction.

    .. math:: x' = x \odot \phi(\tau), \qquad \phi(\tau) = \mathrm{ReLU}\Big(\sum_{i=1}^{n} w_i \cos(\pi i \tau) + b\Big)

    Dabney et al. number i from 0 to n - 1. Their first cosine is 1 for every fraction, which duplicates b; 1 to n is the
    choice of dqn_zoo and Dopamine.

    Below 512 features b begins at 1, about 2.4 standard deviations of the sum above zero, so that nearly every unit is
    active. With more features, as images have, enough units are active with the random b of `nn.Linear`, which is kept.

    Args:
        width: width W of the features.
        n_cosines: number of cosines n.
    """

    def __init__(self, width: int, n_cosines: int) -> None:
        super().__init__()
        self.n_cosines = n_cosines
        self.linear = Linear(n_cosines, width)
        self.after = nn.ReLU()  # a module, so that its units are found
        if width < WIDE:
            nn.init.ones_(self.linear.bias)

    def forward(self, x: Tensor, taus: Tensor) -> Tensor:
        """Maps `[N, W]` and `[N, M]` (or `[1, M]`) to `[N, M, W]` in the dtype of x; cosines are computed in float32."""
        # no buffer: a bfloat16 copy of this module would round the multiples of pi
        times = torch.arange(1, self.n_cosines + 1, dtype=torch.float32, device=taus.device) * math.pi
        cosines = torch.cos(taus.unsqueeze(-1) * times).to(x.dtype)
        out: Tensor = x.unsqueeze(-2) * self.after(self.linear(cosines))
        return out


class ImplicitEmbedding(nn.Module):
    """Embedding of random fractions, or of evenly spaced ones.

    Args:
        width: width W of the features.
        n_cosines: cosines of the embedding.
        n_even: number of fractions without random numbers.
        distort: risk distortion of the fractions for action selection. If None, action selection is risk-neutral.
    """

    def __init__(
        self, width: int, n_cosines: int, n_even: int, distort: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__()
        self.cosines = CosineEmbedding(width, n_cosines)
        self.n_even = n_even
        self.distort = distort

    def forward(self, x: Tensor, noise: Noise | None = None, acting: bool = False) -> tuple[Tensor, Tensor]:
        """Maps `[N, W]` to `[N, M, W]`; returns it with the fractions `[N, M]`."""
        if noise is None or noise.uniform.shape[-1] == 0:
            taus = midpoints(self.n_even, x.device).unsqueeze(0)
        else:
            taus = noise.uniform
        if acting and self.distort is not None:
            taus = self.distort(taus)
        return self.cosines(x, taus), taus.expand(x.shape[0], -1)


@dataclass(frozen=True)
class Quantile(Distribution):
    """Quantiles at the midpoints of equal fractions.

    Args:
        n_quantiles: number of quantiles, from 1.

    Raises:
        ConfigurationError: an argument is out of range.
    """

    n_quantiles: int = 200

    def __post_init__(self) -> None:
        set_fields(self, n_quantiles=check_int("n_quantiles", self.n_quantiles, 1))

    def make_head(self, outputs: Callable[[int], nn.Module], legal: Tensor | None) -> QuantileHead:
        return QuantileHead(outputs(self.n_quantiles), self.n_quantiles, legal)


@dataclass(frozen=True)
class ImplicitQuantile(Distribution):
    """Quantiles at fractions that are sampled in each pass.

    Args:
        n_taus: fractions per observation in learning passes of the online network, from 1.
        n_target_taus: fractions per observation in learning passes of the target network, from 1.
        n_policy_taus: fractions when acting, from 1; evenly spaced for deterministic actions.
        n_cosines: number of cosines of the embedding, from 1.
        risk: risk-sensitive action selection: None, "cvar ETA" or "power ETA", see `Distortion`.
            Learning is risk-neutral.

    Raises:
        ConfigurationError: an argument is out of range.
    """

    n_taus: int = 64
    n_target_taus: int = 64
    n_policy_taus: int = 32
    n_cosines: int = 64
    risk: str | None = None

    def __post_init__(self) -> None:
        for name in ("n_taus", "n_target_taus", "n_policy_taus", "n_cosines"):
            set_fields(self, **{name: check_int(name, getattr(self, name), 1)})
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


@dataclass(frozen=True)
class Distortion:
    r"""Distortion of the fractions at which a quantile function is averaged (Dabney et al. 2018, arXiv 1806.06923, section 3.2).

    .. math:: \mathrm{cvar:}\ \eta \tau, \qquad \mathrm{power:}\ \tau^{1/(1+|\eta|)} \text{ if } \eta \ge 0,
        \ 1 - (1 - \tau)^{1/(1+|\eta|)} \text{ else}

    `cvar` is the mean over the worst share eta of the returns; `power` is risk-seeking for eta above 0, risk-averse below.

    Args:
        kind: "cvar" or "power".
        eta: in (0, 1] for cvar; any number for power.
    """

    kind: str
    eta: float

    def __call__(self, taus: Tensor) -> Tensor:
        if self.kind == "cvar":
            return taus * self.eta
        exponent = 1.0 / (1.0 + abs(self.eta))
        return taus**exponent if self.eta >= 0.0 else 1.0 - (1.0 - taus) ** exponent


def parse_risk(risk: object) -> Distortion | None:
    """Parses `risk="cvar 0.25"` or `risk="power -2"`; None stays None.

    Raises:
        ConfigurationError: unknown name, or no number in range.
    """
    if risk is None:
        return None
    kind, _, eta = risk.strip().partition(" ") if isinstance(risk, str) else ("", "", "")
    if kind not in ("cvar", "power"):
        raise ConfigurationError(
            f"risk must be None, 'cvar ETA' with ETA in (0, 1], or 'power ETA', got {risk!r}. Give one of them."
            f"{nearest(kind, ('cvar', 'power'))}"
        )
    try:
        number = float(eta)
    except ValueError:
        raise ConfigurationError(
            f"risk must be {kind!r} and a number, got {risk!r}. Give for example '{kind} 0.25'."
        ) from None
    if kind == "cvar":
        return Distortion(kind, check_float(f"risk={risk!r}, whose number", number, 0.0, 1.0, above=True))
    return Distortion(kind, check_float(f"risk={risk!r}, whose number", number, -math.inf))
