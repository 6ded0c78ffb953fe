"""Generalized state-dependent exploration: noise that is a function of the features (Raffin et al. 2021, arXiv 2005.05719)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sb_dqn.nn.heads.distributions import DiagonalGaussian, SquashedGaussian
from sb_dqn.nn.heads.policy_heads import GaussianHead, SoftHead, SquashedHead
from sb_dqn.spaces import BoxActions

SMALLEST_VARIANCE = 1e-6


class StateDependentGaussian(NamedTuple):
    r"""Normal distribution whose noise is linear in the features, with weights that several samples may share.

    .. math:: u = \mu(s) + \theta^T z(s), \quad \theta_{ld} \sim N(0, \sigma_{ld}^2), \qquad
        u_d \sim N\big(\mu_d, \textstyle\sum_l z_l^2 \sigma_{ld}^2 + 10^{-6}\big)
    """

    mean: Tensor
    """Means `[N, D]`."""
    features: Tensor
    """`[N, L]`, z."""
    std: Tensor
    """`[L, D]`, sigma."""
    squashed: bool
    """True if the action is tanh(u)."""

    @property
    def marginal(self) -> DiagonalGaussian | SquashedGaussian:
        """Distribution of one sample."""
        variance = self.features.square() @ self.std.square() + SMALLEST_VARIANCE
        return (SquashedGaussian if self.squashed else DiagonalGaussian)(self.mean, 0.5 * variance.log())

    def sample(self, drawn: Tensor) -> Tensor:
        """Returns u `[N, D]` from standard normal numbers `drawn`, `[N, L D]` or `[1, L D]` for weights that all rows share."""
        weights = drawn.view(-1, *self.std.shape) * self.std
        return self.mean + (self.features.unsqueeze(-2) @ weights).squeeze(-2)

    def mode(self) -> Tensor:
        """Returns the mean `[N, D]`."""
        return self.mean

    def log_prob(self, sample: Tensor) -> Tensor:
        """Returns the log-density `[N]` of one sample `[N, D]`, of tanh(u) if squashed."""
        return self.marginal.log_prob(sample)

    def entropy(self, sample: Tensor) -> Tensor:
        """Returns the entropy `[N]`; an estimate from `sample` if squashed."""
        return self.marginal.entropy(sample)


class StateDependentStd(nn.Module):
    """Standard deviations sigma `[L, D]` of the weights.

    Args:
        shape: (L, D).
        log_std_init: initial logarithm.
        full_std: True learns one deviation for each weight, False one for each feature.
        use_expln: True uses exp below 0 and 1 + ln(1 + x) above, which grows more slowly than exp.
    """

    def __init__(self, shape: tuple[int, int], log_std_init: float, full_std: bool, use_expln: bool) -> None:
        super().__init__()
        self.shape = shape
        self.use_expln = use_expln
        self.log = nn.Parameter(torch.full((shape[0], shape[1] if full_std else 1), log_std_init))

    def forward(self) -> Tensor:
        x = self.log
        if not self.use_expln:
            return x.exp().expand(self.shape)
        return torch.where(x > 0, x.clamp(min=0.0).log1p() + 1.0, x.clamp(max=0.0).exp()).expand(self.shape)


class _StateDependent:
    """Base of the heads below: number of weights, and the distribution; `draw` returns the weights of each row."""

    learns_features = False
    """True if the gradient of the noise reaches the features."""
    squashed = False
    outputs: Any
    std: StateDependentStd

    def _make_std(self, features: int, count: int, log_std_init: float, full_std: bool, use_expln: bool) -> None:
        self.std = StateDependentStd((features, count), log_std_init, full_std, use_expln)
        self.width = features * count

    def forward(self, x: Tensor, mask: Tensor | None = None) -> StateDependentGaussian:
        x = x.float()
        return StateDependentGaussian(
            self.outputs(x), x if self.learns_features else x.detach(), self.std(), self.squashed
        )

    def log_facts(self) -> dict[str, float]:
        return {"train/std": float(self.std().detach().mean())}


class StateDependentHead(_StateDependent, GaussianHead):
    """Head for a Box with state-dependent noise; actions are clipped.

    Args:
        in_features: number of features L.
        actions: shape and bounds of the action space.
        log_std_init, full_std, use_expln: see `StateDependentStd`.
    """

    def __init__(
        self, in_features: int, actions: BoxActions, log_std_init: float, full_std: bool, use_expln: bool
    ) -> None:
        super().__init__(in_features, actions)
        del self.log_std
        self._make_std(in_features, actions.low.size, log_std_init, full_std, use_expln)


class SquashedStateDependentHead(StateDependentHead, SquashedHead):
    """Head for a Box with state-dependent noise, squashed by tanh into the bounds.

    Args: those of `StateDependentHead`.
    """

    squashed = True


class SoftStateDependentHead(_StateDependent, SoftHead):  # type: ignore[misc]  # another distribution
    """Head of soft actor-critic with state-dependent noise; the noise trains the features, too.

    Args:
        in_features: number of features L.
        actions: shape and bounds of the action space.
        log_std_init, full_std, use_expln: see `StateDependentStd`.
        clip_mean: bound of the mean of u, which keeps tanh from saturating; 0 does not bound it.
    """

    learns_features = True
    squashed = True

    def __init__(
        self,
        in_features: int,
        actions: BoxActions,
        log_std_init: float,
        full_std: bool,
        use_expln: bool,
        clip_mean: float,
    ) -> None:
        super().__init__(in_features, actions)
        mean = nn.Linear(in_features, actions.low.size)
        self.outputs: Any = nn.Sequential(mean, nn.Hardtanh(-clip_mean, clip_mean)) if clip_mean else mean
        self._make_std(in_features, actions.low.size, log_std_init, full_std, use_expln)
