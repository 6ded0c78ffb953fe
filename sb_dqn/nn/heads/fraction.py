"""Quantiles of the return at proposed fractions (FQF)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sb_dqn.checks import check_float, check_int, set_fields
from sb_dqn.nn.heads.quantile import CosineEmbedding, QuantileValue, implicit_quantiles, with_branch_axis
from sb_dqn.nn.heads.scalar import Distribution, Head
from sb_dqn.nn.layers.noise import Noise


class Fractions(NamedTuple):
    """Proposed fractions of each observation."""

    middles: Tensor
    """Midpoints `[N, M]` float32, at which the quantile function is evaluated; without a gradient."""
    widths: Tensor
    """Widths of the fractions, `[N, M]` float32, with the sum 1; without a gradient."""
    inner: Tensor | None = None
    """Boundaries between the fractions, `[N, M-1]` float32, at which the quantile function is evaluated too; gradients flow
    into the proposal. None in passes without gradients."""
    entropy: Tensor | None = None
    """Entropy of the widths, `[N]` float32; gradients flow into the proposal. None without `inner`."""


class FractionEmbedding(nn.Module):
    r"""Proposes fractions for each observation and embeds their midpoints.

    .. math:: q = \mathrm{softmax}(W x + b), \qquad \tau_i = \sum_{k < i} q_k, \qquad
        \hat\tau_i = (\tau_i + \tau_{i+1}) / 2

    The proposal reads the features without sending gradients into them, and the quantiles send none into the proposal
    (Yang et al. 2019, arXiv 1911.02140). It begins near equal parts.

    The fractions hardly move, and with as many cosines as fractions or more the cosines of different fractions are almost
    orthogonal: an update at one fraction changes the embedding at another by little more than the bias. A unit that is
    zero at a fraction when training begins therefore stays zero there. If all of a few are zero, the quantile at that
    fraction is the same for every observation; therefore a `CosineEmbedding` of few features begins with nearly all active.

    Args:
        width: width W of the features.
        n_fractions: number of fractions M.
        n_cosines: number of cosines of the embedding.
        learning_rate: constant learning rate of the proposal, see `OptimizerStep`.
    """

    def __init__(self, width: int, n_fractions: int, n_cosines: int, learning_rate: float = 2.5e-9) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.cosines = CosineEmbedding(width, n_cosines)
        self.proposal = nn.Linear(width, n_fractions)
        nn.init.xavier_uniform_(self.proposal.weight, gain=0.01)
        nn.init.zeros_(self.proposal.bias)

    def forward(self, x: Tensor, noise: Noise | None = None, acting: bool = False) -> tuple[Tensor, Fractions]:
        """Maps `[N, W]` to `[N, M, W]`; returns it with the fractions. With gradients enabled the output is
        `[N, 2 M - 1, W]`: the inner fractions, for the proposal's loss, come after the midpoints."""
        log_widths = self.proposal(x.detach()).float().log_softmax(-1)
        widths = log_widths.exp()
        inner = widths[..., :-1].cumsum(-1)  # tau_1 .. tau_{M-1}; tau_0 is 0 and tau_M is 1
        ends = nn.functional.pad(nn.functional.pad(inner.detach(), (0, 1), value=1.0), (1, 0))  # [N, M + 1]
        middles = 0.5 * (ends[..., 1:] + ends[..., :-1])
        if acting or not torch.is_grad_enabled():
            return self.cosines(x, middles), Fractions(middles, widths.detach())
        entropy = -(widths * log_widths).sum(-1)
        points = torch.cat([middles, inner.detach()], -1)
        return self.cosines(x, points), Fractions(middles, widths.detach(), inner, entropy)


class FractionValue(NamedTuple):
    """Points of the quantile function at the midpoints of proposed fractions, and inputs of the proposal's loss."""

    points: QuantileValue
    fractions: Tensor
    """The inner fractions `[..., M-1]` float32; gradients flow into the proposal."""
    at_fractions: Tensor
    """The quantile function at the inner fractions, `[..., A, M-1]` float32, without a gradient."""
    entropy: Tensor
    """Entropy of the widths of the fractions, `[...]` float32."""

    @property
    def q(self) -> Tensor:
        """Values `[..., A]` float32, with `ILLEGAL` where an action is masked."""
        return self.points.q

    @property
    def taus(self) -> Tensor:
        """The midpoints, see `QuantileValue`."""
        return self.points.taus

    @property
    def weights(self) -> Tensor | None:
        """The widths of the fractions, see `QuantileValue`."""
        return self.points.weights

    def of(self, action: Tensor) -> Tensor:
        """Returns the quantiles `[..., M]` of `action` `[...]` at the midpoints."""
        return self.points.of(action)

    def soft(self, policy: Tensor, bonus: Tensor) -> Tensor:
        """Returns the mean of the quantile functions under `policy`; see `QuantileValue.soft`."""
        return self.points.soft(policy, bonus)


class FractionHead(Head):
    """Head for quantiles at the midpoints of proposed fractions, and at the inner fractions in learning passes, Z = 1."""

    def forward(
        self, x: Tensor, mask: Tensor | None, noise: Noise | None, fractions: Fractions
    ) -> QuantileValue | FractionValue:
        quantiles, allowed = implicit_quantiles(self.outputs, x, noise), self.allowed(mask)
        taus, weights = with_branch_axis(quantiles, fractions.middles, fractions.widths)
        if fractions.inner is None or fractions.entropy is None:
            return QuantileValue(quantiles, taus, weights, allowed)
        count = taus.shape[-1]
        (inner,) = with_branch_axis(quantiles, fractions.inner)
        points = QuantileValue(quantiles[..., :count], taus, weights, allowed)
        return FractionValue(points, inner, quantiles[..., count:].detach(), fractions.entropy)


@dataclass(frozen=True)
class FractionProposal(Distribution):
    """Quantiles at the midpoints of fractions that the network proposes for each observation.

    Args:
        n_fractions: number of fractions, from 2.
        n_cosines: number of cosines of the embedding, from 1.
        fraction_learning_rate: learning rate of the proposal, which has an optimizer of its own, from 0.
        entropy_coef: see `FractionObjective`, from 0.

    Raises:
        ConfigurationError: an argument is out of range.
    """

    n_fractions: int = 32
    n_cosines: int = 64
    fraction_learning_rate: float = 2.5e-9
    entropy_coef: float = 0.0

    def __post_init__(self) -> None:
        set_fields(
            self,
            n_fractions=check_int("n_fractions", self.n_fractions, 2),
            n_cosines=check_int("n_cosines", self.n_cosines, 1),
            fraction_learning_rate=check_float("fraction_learning_rate", self.fraction_learning_rate, 0.0),
            entropy_coef=check_float("entropy_coef", self.entropy_coef, 0.0),
        )

    def make_embedding(self, width: int) -> FractionEmbedding:
        return FractionEmbedding(width, self.n_fractions, self.n_cosines, self.fraction_learning_rate)

    def make_head(self, outputs: Callable[[int], nn.Module], legal: Tensor | None) -> FractionHead:
        return FractionHead(outputs(1), legal)
