"""Distributions over actions: pure tensor operations, their random numbers given from outside.

All of them have `sample(drawn)`, `mode()`, `log_prob(sample)` and `entropy(sample)`, for which only some need the sample.
Log-probabilities and entropies are sums over the parts of an action, `[N]`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

LOG_2_PI = math.log(2.0 * math.pi)


class Categorical(NamedTuple):
    """One choice, or one for each branch, independent of each other."""

    logp: Tensor
    """`[N, A]` log-probabilities, `[N, D, A]` of branches; an action that is not allowed has about -1e9, and probability 0."""
    branched: bool = False

    def sample(self, drawn: Tensor) -> Tensor:
        """`[N]` (`[N, D]`) int64, by the Gumbel trick; `drawn` `[N, A]` (`[N, D A]`) are Gumbel numbers."""
        return (self.logp + drawn.view_as(self.logp)).argmax(-1)

    def mode(self) -> Tensor:
        """`[N]` (`[N, D]`) int64, the most probable."""
        return self.logp.argmax(-1)

    def log_prob(self, sample: Tensor) -> Tensor:
        """`[N]` of actions `[N]` (`[N, D]`) int64."""
        return self._whole(self.logp.gather(-1, sample.unsqueeze(-1)).squeeze(-1))

    def entropy(self, sample: Tensor | None = None) -> Tensor:
        r"""`[N]`, :math:`-\sum_a \pi(a) \log \pi(a)`; what is not allowed counts for nothing."""
        return self._whole(-(self.logp.exp() * self.logp).sum(-1))

    def _whole(self, x: Tensor) -> Tensor:
        return x.sum(-1) if self.branched else x


class DiagonalGaussian(NamedTuple):
    """Normal, each of D numbers by itself."""

    mean: Tensor
    """`[N, D]`."""
    log_std: Tensor
    """`[D]` or `[N, D]`."""

    def sample(self, drawn: Tensor) -> Tensor:
        """`[N, D]`; `drawn` `[N, D]` are standard normal numbers."""
        return self.mean + self.log_std.exp() * drawn

    def mode(self) -> Tensor:
        """`[N, D]`."""
        return self.mean

    def log_prob(self, sample: Tensor) -> Tensor:
        r"""`[N]` of samples `[N, D]`: :math:`-\sum_d \tfrac12 z_d^2 + \log \sigma_d + \tfrac12 \log 2 \pi`."""
        z = (sample - self.mean) * (-self.log_std).exp()
        return -(0.5 * z * z + self.log_std + 0.5 * LOG_2_PI).sum(-1)

    def entropy(self, sample: Tensor | None = None) -> Tensor:
        r"""`[N]`, :math:`\sum_d \log \sigma_d + \tfrac12 (1 + \log 2 \pi)`."""
        return (self.log_std + 0.5 * (1.0 + LOG_2_PI)).expand_as(self.mean).sum(-1)


def masked(logits: Tensor, mask: Tensor | None, padding: Tensor | None) -> Tensor:
    """Log-probabilities of what is allowed.

    Args:
        logits: `[N, (D,) A]`.
        mask: `[N, (D,) A]` bool, legal actions; a row without any allows all that exist. None: all.
        padding: `[D, A]` bool, actions that exist, where branches are uneven. None: all.

    Returns:
        `[N, (D,) A]`, about -1e9 where not allowed.
    """
    if mask is not None:
        logits = torch.where(mask, logits, ILLEGAL)
    if padding is not None:
        logits = torch.where(
            padding, logits, 2.0 * ILLEGAL
        )  # below the illegal: where nothing is legal, those are left
    return logits.log_softmax(-1)


ILLEGAL = -1e9
"""Logit of an action that is not allowed: finite, so that 0 times it is 0."""
