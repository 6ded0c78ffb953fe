"""Fractions that a net proposes by itself, and the head that answers for them (FQF)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sb_dqn.checks import check_float, check_int
from sb_dqn.nn.apart import Apart
from sb_dqn.nn.heads import Distribution, Head
from sb_dqn.nn.noise import Noise
from sb_dqn.nn.quantile import CosineEmbedding, beside, implicit_quantiles
from sb_dqn.nn.values import FractionValue, QuantileValue

WIDE = 512
"""Width of the features from which on the embedding begins as in IQN; see `FractionEmbedding`."""


class Fractions(NamedTuple):
    """Fractions that are proposed for each observation."""

    middles: Tensor
    """`[N, M]` float32, no gradient: where the quantile function is asked for."""
    widths: Tensor
    """`[N, M]` float32, no gradient, sum 1."""
    proposed: Proposed | None = None
    """What teaches the proposal; None in passes that do not learn."""


class Proposed(NamedTuple):
    """What gradients lead back from, to the proposal."""

    inner: Tensor
    """`[N, M-1]` float32: where one fraction ends and the next begins; the quantile function is asked for here too."""
    entropy: Tensor
    """`[N]` float32, of the widths."""


class FractionEmbedding(nn.Module):
    r"""Asks for the quantile function in the middle of fractions that are proposed for each observation.

    .. math:: q = \mathrm{softmax}(W x + b), \qquad \tau_i = \sum_{k < i} q_k, \qquad
        \hat\tau_i = (\tau_i + \tau_{i+1}) / 2

    The proposal reads the features without sending gradients into them, and the quantiles send none into the proposal
    (Yang et al. 2019, arXiv 1911.02140). It begins near equal parts.

    The fractions hardly move, and with as many cosines as fractions or more the cosines of different fractions are almost
    orthogonal: an update at one fraction changes the embedding at another by little more than the bias. A unit that is
    zero at a fraction when training begins therefore stays zero there. Enough of the thousands of features of an image
    remain; if all of a few are zero, the quantile at that fraction is the same for every observation. Below 512 features
    the bias of the embedding begins at 1, about 2.4 standard deviations above zero, so that nearly every unit is active.

    Args:
        width: W, of the features.
        n_fractions: M.
        n_cosines: of the embedding.
    """

    def __init__(self, width: int, n_fractions: int, n_cosines: int) -> None:
        super().__init__()
        self.cosines = CosineEmbedding(width, n_cosines, bias=1.0 if width < WIDE else None)
        self.proposal = nn.Linear(width, n_fractions)
        nn.init.xavier_uniform_(self.proposal.weight, gain=0.01)
        nn.init.zeros_(self.proposal.bias)

    def forward(self, x: Tensor, noise: Noise | None = None, acting: bool = False) -> tuple[Tensor, Fractions]:
        """`[N, W]` -> `[N, M, W]`, and the fractions; `[N, 2 M - 1, W]` where gradients are wanted: the inner fractions,
        which only the proposal's loss asks for, come after the middles."""
        log_widths = self.proposal(x.detach()).float().log_softmax(-1)
        widths = log_widths.exp()
        inner = widths[..., :-1].cumsum(-1)  # tau_1 .. tau_{M-1}; tau_0 is 0 and tau_M is 1
        ends = nn.functional.pad(nn.functional.pad(inner.detach(), (0, 1), value=1.0), (1, 0))  # [N, M + 1]
        middles = 0.5 * (ends[..., 1:] + ends[..., :-1])
        if acting or not torch.is_grad_enabled():
            return self.cosines(x, middles), Fractions(middles, widths.detach())
        entropy = -(widths * log_widths).sum(-1)
        asked = torch.cat([middles, inner.detach()], -1)
        return self.cosines(x, asked), Fractions(middles, widths.detach(), Proposed(inner, entropy))


class FractionHead(Head):
    """Quantiles in the middle of proposed fractions, and at the inner ones where those were asked for.

    Args:
        outputs: last layer, Z = 1.
        legal: see `Head`.
    """

    def __init__(self, outputs: nn.Module, legal: Tensor | None = None) -> None:
        super().__init__(legal)
        self.outputs = outputs

    def forward(
        self, x: Tensor, mask: Tensor | None, noise: Noise | None, fractions: Fractions
    ) -> QuantileValue | FractionValue:
        everywhere, allowed = implicit_quantiles(self.outputs, x, noise), self.allowed(mask)
        taus, weights = beside(everywhere, fractions.middles, fractions.widths)
        if fractions.proposed is None:
            return QuantileValue(everywhere, taus, weights, allowed)
        count, (inner, entropy) = taus.shape[-1], fractions.proposed
        (inner,) = beside(everywhere, inner)
        points = QuantileValue(everywhere[..., :count], taus, weights, allowed)
        return FractionValue(points, inner, everywhere[..., count:].detach(), entropy)


@dataclass(frozen=True)
class FractionProposal(Distribution):
    """Quantiles in the middle of fractions that a net proposes for each observation.

    Args:
        n_fractions: how many, 2 or more.
        n_cosines: of the embedding.
        fraction_learning_rate: of the proposal, which has an optimiser of its own.
        entropy_coef: see `FractionObjective`.

    Raises:
        ConfigurationError: a scalar is out of its range.
    """

    n_fractions: int = 32
    n_cosines: int = 64
    fraction_learning_rate: float = 2.5e-9
    entropy_coef: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_fractions", check_int("n_fractions", self.n_fractions, 2))
        object.__setattr__(self, "n_cosines", check_int("n_cosines", self.n_cosines, 1))
        for name in ("fraction_learning_rate", "entropy_coef"):
            object.__setattr__(self, name, check_float(name, getattr(self, name), 0.0))

    def make_embedding(self, width: int) -> FractionEmbedding:
        return FractionEmbedding(width, self.n_fractions, self.n_cosines)

    def make_head(self, outputs: Callable[[int], nn.Module], legal: Tensor | None) -> FractionHead:
        return FractionHead(outputs(1), legal)

    def make_apart(self, net: nn.Module, flat: Tensor) -> Apart:
        """The optimiser of the proposal, for a net whose parameters are views of `flat`."""
        (embedding,) = (part for part in net.modules() if type(part) is FractionEmbedding)
        return Apart(list(net.parameters()), list(embedding.proposal.parameters()), flat, self.fraction_learning_rate)
