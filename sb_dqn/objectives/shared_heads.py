"""Objective of several heads on the same features, each the target of the next (iS-QL): no target network."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sb_dqn.nn.layers.noise import NO_NOISE, Noise
from sb_dqn.types import Batch, Network, Objective

PER_ROW = ("action", "return_", "discount", "weight", "mask", "next_mask")
"""Fields of a batch that are repeated for each head."""


class SharedHeads:
    r"""Applies another objective to each of the heads 1 to K of one network, with the head before as its target network (Vincent et
    al. 2026, arXiv 2506.04398).

    .. math:: l = \sum_{k=1}^{K} l_{\mathrm{inner}}(q_k, q_{k-1})

    The features of `obs` and of `next_obs` are computed once for all heads, those of `next_obs` without a gradient: in one pass for
    both, half of the backward pass would be that of zeros. What the inner objective calls the target network has no gradient either,
    so head 0 has none. The priority is the mean over heads; reports are over all of them.

    Args:
        inner: objective on transitions; its networks are called with `obs` or `next_obs` of its batch.
        iterations: number K of heads that learn.
    """

    def __init__(self, inner: Objective, iterations: int) -> None:
        self.inner = inner
        self.iterations = iterations
        self.reports = inner.reports
        self.bootstrap = getattr(inner, "bootstrap", None)

    def __call__(self, online: Network, target: Network, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        heads = self.iterations
        here: Any = _Features.of(online, batch.obs, heads)
        with torch.no_grad():
            there: Any = _Features.of(target, batch.next_obs, heads)
        repeated = {name: for_each(getattr(batch, name), heads) for name in PER_ROW}
        rows = batch._replace(obs=here, next_obs=there, **repeated)
        loss, extras = self.inner(_read, _read_targets, rows)
        priority = {"priority": extras["priority"].view(heads, -1).mean(0)} if "priority" in extras else {}
        return loss.view(heads, -1).sum(0), {**extras, **priority}


class _Features(NamedTuple):
    """Features of N observations, in place of the observations."""

    net: Any
    x: Tensor
    """Features `[N, ..., H]`, which the head maps to values."""
    fractions: Any
    """Fractions of an implicit head, for K N rows."""
    noise: Noise

    @classmethod
    def of(cls, network: Network, obs: dict[str, Tensor], heads: int) -> _Features:
        net: Any = network.func if isinstance(network, partial) else network
        noise = network.keywords["noise"] if isinstance(network, partial) else None
        x, fractions = net.embed(obs, noise)
        return cls(net, x, for_each(fractions, heads), NO_NOISE if noise is None else noise)


def _read(features: _Features, mask: Tensor | None = None, heads: slice = slice(1, None)) -> Any:
    """Returns the values of K heads, 1 to K, as those of K N rows."""
    return features.net.head(features.x, mask, features.noise._replace(heads=heads), features.fractions)


@torch.no_grad()
def _read_targets(features: _Features, mask: Tensor | None = None) -> Any:
    """Returns the values of the heads 0 to K - 1."""
    return _read(features, mask, slice(-1))


def for_each(x: Any, heads: int) -> Any:
    """Repeats rows for several heads.

    Args:
        x: tensor `[N, ...]`, tuple of such tensors, or None.
        heads: number K.

    Returns:
        `[K N, ...]`, the rows of one head after those of another; None for None.
    """
    if x is None or heads == 1:
        return x
    if isinstance(x, Tensor):
        return x.repeat(heads, *(1,) * (x.dim() - 1))
    return type(x)(*(for_each(part, heads) for part in x))
