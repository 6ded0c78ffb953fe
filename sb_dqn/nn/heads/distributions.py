"""Distributions over actions, as pure tensor operations with random numbers as arguments.

All of them have the methods of `ActionDistribution`; some ignore the sample of `entropy`.
Log-probabilities and entropies `[N]` are sums over the components of an action.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

LOG_2 = math.log(2.0)
LOG_2_PI = math.log(2.0 * math.pi)


class ActionDistribution(Protocol):
    """Interface of the distributions."""

    def sample(self, drawn: Tensor) -> Tensor: ...
    def mode(self) -> Tensor: ...
    def log_prob(self, sample: Tensor) -> Tensor: ...
    def entropy(self, sample: Tensor) -> Tensor: ...


class Categorical(NamedTuple):
    """Categorical distribution over the choices of one branch, or of several independent branches."""

    logp: Tensor
    """Log-probabilities `[N, A]`, or `[N, D, A]` for branches; about -1e9 for illegal actions, whose probability is 0."""
    branched: bool = False

    def sample(self, drawn: Tensor) -> Tensor:
        """Returns `[N]` (`[N, D]`) int64 by the Gumbel trick from Gumbel numbers `drawn` `[N, A]` (`[N, D A]`)."""
        return (self.logp + drawn.view_as(self.logp)).argmax(-1)

    def mode(self) -> Tensor:
        """Returns the most probable choices `[N]` (`[N, D]`) int64."""
        return self.logp.argmax(-1)

    def log_prob(self, sample: Tensor) -> Tensor:
        """Returns log-probabilities `[N]` of actions `[N]` (`[N, D]`) int64."""
        return self._whole(self.logp.gather(-1, sample.unsqueeze(-1)).squeeze(-1))

    def entropy(self, sample: Tensor | None = None) -> Tensor:
        r"""Returns :math:`-\sum_a \pi(a) \log \pi(a)` `[N]`; illegal actions contribute 0."""
        return self._whole(-(self.logp.exp() * self.logp).sum(-1))

    def _whole(self, x: Tensor) -> Tensor:
        return x.sum(-1) if self.branched else x


class DiagonalGaussian(NamedTuple):
    """Normal distribution of D independent numbers."""

    mean: Tensor
    """Means `[N, D]`."""
    log_std: Tensor
    """Log standard deviations `[D]` or `[N, D]`."""

    def sample(self, drawn: Tensor) -> Tensor:
        """Returns `[N, D]` from standard normal numbers `drawn` `[N, D]`."""
        return self.mean + self.log_std.exp() * drawn

    def mode(self) -> Tensor:
        """Returns the mean `[N, D]`."""
        return self.mean

    def log_prob(self, sample: Tensor) -> Tensor:
        r"""Returns log-densities `[N]` of samples `[N, D]`, :math:`-\sum_d \tfrac12 z_d^2 + \log \sigma_d + \tfrac12 \log 2 \pi`."""
        z = self._standard(sample)
        return -(0.5 * z * z + self.log_std + 0.5 * LOG_2_PI).sum(-1)

    def _standard(self, sample: Tensor) -> Tensor:
        return (sample - self.mean) * (-self.log_std).exp()

    def entropy(self, sample: Tensor | None = None) -> Tensor:
        r"""Returns :math:`\sum_d \log \sigma_d + \tfrac12 (1 + \log 2 \pi)`."""
        return (self.log_std + 0.5 * (1.0 + LOG_2_PI)).expand_as(self.mean).sum(-1)


class SquashedGaussian(DiagonalGaussian):
    """`tanh(u)` of D independent normal numbers u; mean, standard deviation and samples in all methods are those of u.

    Haarnoja et al. 2018, arXiv 1801.01290, appendix C. An action in the units of the environment is
    `low + (tanh(u) + 1) / 2 * (high - low)`; densities are those of `tanh(u)`, whose bounds are -1 and 1.
    """

    def log_prob(self, sample: Tensor) -> Tensor:
        r"""Returns the log-density of `tanh(u)`.

        .. math:: \log \pi = \sum_d \log N(u_d) - \log(1 - \tanh^2 u_d), \quad
            \log(1 - \tanh^2 u) = 2 (\log 2 - u - \mathrm{softplus}(-2u))

        The second form is finite where tanh rounds to 1.

        Args:
            sample: `[N, D]`, u.

        Returns:
            `[N]`.
        """
        z = self._standard(sample)
        normal = -0.5 * z * z - self.log_std - 0.5 * LOG_2_PI
        return (normal - log_slope(sample)).sum(-1)

    def entropy(self, sample: Tensor) -> Tensor:  # type: ignore[override]  # without a sample there is no entropy
        r"""Returns a one-sample estimate of the entropy of `tanh(u)`, unbiased as is its gradient; there is no closed form.

        .. math:: H = \sum_d \log \sigma_d + \tfrac12 (1 + \log 2 \pi) + E \log(1 - \tanh^2 u_d)

        Args:
            sample: `[N, D]`, u, drawn from this distribution or a similar one.

        Returns:
            `[N]`.
        """
        u = self.mean + self.log_std.exp() * self._standard(sample).detach()  # reparameterised
        return (self.log_std + 0.5 * (1.0 + LOG_2_PI) + log_slope(u)).sum(-1)


def to_bounds(u: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Maps u `[..., D]` into the bounds `low` and `high` `[D]`, ends included, exactly in spite of rounding."""
    return torch.minimum(torch.maximum(low + 0.5 * (u.tanh() + 1.0) * (high - low), low), high)


def log_slope(u: Tensor) -> Tensor:
    r"""Returns :math:`\log(1 - \tanh^2 u)`, the log of the slope of tanh, elementwise."""
    return 2.0 * (LOG_2 - u - functional.softplus(-2.0 * u))


def masked(logits: Tensor, mask: Tensor | None, padding: Tensor | None) -> Tensor:
    """Returns log-probabilities with illegal actions masked.

    Args:
        logits: `[N, (D,) A]`.
        mask: `[N, (D,) A]` bool, legal actions; a row without any means all that exist. If None, all actions are legal.
        padding: `[D, A]` bool, the actions that exist if branches are uneven. If None, all actions exist.

    Returns:
        `[N, (D,) A]`, about -1e9 for illegal actions.
    """
    if mask is not None:
        logits = torch.where(mask, logits, ILLEGAL)
    if padding is not None:
        # below the illegal ones: if no action is legal, those that exist remain
        logits = torch.where(padding, logits, 2.0 * ILLEGAL)
    return logits.log_softmax(-1)


ILLEGAL = -1e9
"""Logit of an illegal action: finite, so that 0 times it is 0."""
