"""Normal distribution squashed by tanh, for actions within the bounds of a Box."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

LOG_2 = math.log(2.0)
LOG_2_PI = math.log(2.0 * math.pi)


class SquashedGaussian(NamedTuple):
    """`tanh(u)` of D independent normal numbers u; samples in all methods are u.

    Haarnoja et al. 2018, arXiv 1801.01290, appendix C. An action in the units of the environment is
    `low + (tanh(u) + 1) / 2 * (high - low)`; densities are those of `tanh(u)`, whose bounds are -1 and 1.
    """

    mean: Tensor
    """`[N, D]`, mean of u."""
    log_std: Tensor
    """`[D]` or `[N, D]`, log standard deviation of u."""

    def sample(self, drawn: Tensor) -> Tensor:
        """Returns u `[N, D]` from standard normal numbers `drawn` `[N, D]`."""
        return self.mean + self.log_std.exp() * drawn

    def mode(self) -> Tensor:
        """Returns the mean of u, `[N, D]`."""
        return self.mean

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

    def entropy(self, sample: Tensor) -> Tensor:
        r"""Returns a one-sample estimate of the entropy of `tanh(u)`, unbiased as is its gradient; there is no closed form.

        .. math:: H = \sum_d \log \sigma_d + \tfrac12 (1 + \log 2 \pi) + E \log(1 - \tanh^2 u_d)

        Args:
            sample: `[N, D]`, u, drawn from this distribution or a similar one.

        Returns:
            `[N]`.
        """
        u = self.mean + self.log_std.exp() * self._standard(sample).detach()  # reparameterised
        return (self.log_std + 0.5 * (1.0 + LOG_2_PI) + log_slope(u)).sum(-1)

    def _standard(self, sample: Tensor) -> Tensor:
        return (sample - self.mean) * (-self.log_std).exp()


def to_bounds(u: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Maps u `[..., D]` into the bounds `low` and `high` `[D]`, ends included, exactly in spite of rounding."""
    return torch.minimum(torch.maximum(low + 0.5 * (u.tanh() + 1.0) * (high - low), low), high)


def log_slope(u: Tensor) -> Tensor:
    r"""Returns :math:`\log(1 - \tanh^2 u)`, the log of the slope of tanh, elementwise."""
    return 2.0 * (LOG_2 - u - functional.softplus(-2.0 * u))
