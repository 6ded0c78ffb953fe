"""Invertible transforms of values: R2D2's rescaling and symlog."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor


class ValueTransform(NamedTuple):
    """A function h of values and its inverse; a network that learns h(q) is read by the inverse."""

    apply: Callable[[Tensor], Tensor]
    invert: Callable[[Tensor], Tensor]

    def target(self, return_: Tensor, discount: Tensor, value_t: Tensor) -> Tensor:
        r"""Returns the TD target of a transformed value.

        .. math:: y = h\big(R + \gamma_t \, h^{-1}(v_t)\big)

        Args:
            return_: `[...]` n-step return, not transformed.
            discount: `[...]` gamma^m, 0 after a termination.
            value_t: `[...]` transformed value of the observation after the n steps.

        Returns:
            `[...]`.
        """
        return self.apply(return_ + discount * self.invert(value_t))


def identity(x: Tensor) -> Tensor:
    """Returns `x`."""
    return x


def symlog(x: Tensor) -> Tensor:
    r"""Returns :math:`\mathrm{sgn}(x) \ln(1 + |x|)`; the inverse of `symexp` (Hafner et al. 2023, arXiv 2301.04104)."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    r"""Returns :math:`\mathrm{sgn}(x) (e^{|x|} - 1)`."""
    return x.sign() * x.abs().expm1()


def rescale(x: Tensor, eps: float = 1e-3) -> Tensor:
    r"""Compresses large returns, so that games with different score ranges can share a learning rate.

    .. math:: h(x) = \mathrm{sgn}(x) \big(\sqrt{|x| + 1} - 1\big) + \epsilon x

    Args:
        x: any shape.
        eps: slope for large values, >= 0.

    Returns:
        The shape of `x`.

    Pohlen et al. 2018, arXiv 1805.11593; in R2D2: Kapturowski et al. 2019 (ICLR).
    """
    return x / ((x.abs() + 1.0).sqrt() + 1.0) + eps * x  # equals sgn(x) (sqrt(|x| + 1) - 1), without cancellation


def unscale(y: Tensor, eps: float = 1e-3) -> Tensor:
    r"""Inverts `rescale`.

    .. math:: h^{-1}(y) = \mathrm{sgn}(y) \left(\Big(\frac{\sqrt{1 + 4 \epsilon (|y| + 1 + \epsilon)} - 1}
        {2 \epsilon}\Big)^2 - 1\right)

    The fraction is computed as :math:`u = 2 (|y| + 1 + \epsilon) / (1 + \sqrt{\cdot})`, which is accurate for small values
    and defined for an epsilon of 0.

    Args:
        y: any shape.
        eps: epsilon of `rescale`.

    Returns:
        The shape of `y`.
    """
    size = y.abs()
    u = 2.0 * (size + 1.0 + eps) / (1.0 + torch.sqrt(1.0 + 4.0 * eps * (size + 1.0 + eps)))
    return y.sign() * (u * u - 1.0)


def rescaling(eps: float) -> ValueTransform:
    """Returns the pair of `rescale` and `unscale` with an epsilon, >= 0."""
    return ValueTransform(partial(rescale, eps=eps), partial(unscale, eps=eps))


IDENTITY = ValueTransform(identity, identity)
"""Values are returns."""
SYMLOG = ValueTransform(symlog, symexp)
