"""The normal distribution squashed by tanh: actions that never leave the bounds of a Box."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

LOG_2, LOG_2_PI = math.log(2.0), math.log(2.0 * math.pi)


class SquashedGaussian(NamedTuple):
    """`tanh(u)` of a normal u, each of D numbers by itself; the sample that all methods speak of is u.

    Haarnoja et al. 2018, arXiv 1801.01290, appendix C. An action in the env's units is `low + (tanh(u) + 1) / 2 * (high -
    low)`; densities are those of `tanh(u)`, in which every action has the bounds -1 and 1.
    """

    mean: Tensor
    """`[N, D]`, of u."""
    log_std: Tensor
    """`[D]` or `[N, D]`, of u."""

    def sample(self, drawn: Tensor) -> Tensor:
        """`[N, D]`, u; `drawn` `[N, D]` are standard normal numbers."""
        return self.mean + self.log_std.exp() * drawn

    def mode(self) -> Tensor:
        """`[N, D]`, the u of the middle of the distribution."""
        return self.mean

    def log_prob(self, sample: Tensor) -> Tensor:
        r"""Log-density of `tanh(u)`.

        .. math:: \log \pi = \sum_d \log N(u_d) - \log(1 - \tanh^2 u_d), \quad
            \log(1 - \tanh^2 u) = 2 (\log 2 - u - \mathrm{softplus}(-2u))

        The second form stays finite where tanh has become 1.

        Args:
            sample: `[N, D]`, u.

        Returns:
            `[N]`.
        """
        z = self._standard(sample)
        normal = -0.5 * z * z - self.log_std - 0.5 * LOG_2_PI
        return (normal - log_slope(sample)).sum(-1)

    def entropy(self, sample: Tensor) -> Tensor:
        r"""What one sample says of the entropy of `tanh(u)`, for which there is no formula; right in the mean, gradient too.

        .. math:: H = \sum_d \log \sigma_d + \tfrac12 (1 + \log 2 \pi) + E \log(1 - \tanh^2 u_d)

        Args:
            sample: `[N, D]`, u, drawn from this distribution or one near to it.

        Returns:
            `[N]`.
        """
        u = self.mean + self.log_std.exp() * self._standard(sample).detach()  # it moves with the distribution
        return (self.log_std + 0.5 * (1.0 + LOG_2_PI) + log_slope(u)).sum(-1)

    def _standard(self, sample: Tensor) -> Tensor:
        return (sample - self.mean) * (-self.log_std).exp()


def to_bounds(u: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """`[..., D]` within `low` and `high`, `[D]` each, ends included; rounding may not step over them."""
    return torch.minimum(torch.maximum(low + 0.5 * (u.tanh() + 1.0) * (high - low), low), high)


def log_slope(u: Tensor) -> Tensor:
    r""":math:`\log(1 - \tanh^2 u)`, the log of the slope of tanh; the shape of `u`."""
    return 2.0 * (LOG_2 - u - functional.softplus(-2.0 * u))
