"""Lambda-returns: backward recursions over `[T, B]`.

Transition t starts at row t and ends at the next row. The suffix `_t` marks quantities of the end of the transition, `_tm1`
those of its start. There is no `done`: `discount_t` is gamma, or 0 after a termination; `lambda_t` is lambda, or 0 where the
stream ends (by a time limit too), so that nothing crosses a reset. The result at a pair of rows that is no transition (a
final row and the reset row after it) has no meaning and is not used.
"""

from __future__ import annotations

import torch
from torch import Tensor


def discounted_sums(x_t: Tensor, decay_t: Tensor) -> Tensor:
    r"""Solves a linear backward recursion.

    .. math:: y_t = x_t + d_t \, y_{t+1}, \quad y_T = 0

    Uses doubling: after k rounds y_t contains the terms t .. t + 2^k - 1. T steps take log2(T) rounds of a few tensor
    operations, so a traced graph of them stays short.

    Args:
        x_t: `[T, ...]`.
        decay_t: `[T, ...]`, the same shape.

    Returns:
        `[T, ...]`.
    """
    total = x_t
    factor = decay_t
    span = 1  # terms in each total
    while span < len(x_t):
        incomplete = len(x_t) - span
        total = torch.cat([total[:incomplete] + factor[:incomplete] * total[span:], total[incomplete:]])
        length = max(len(factor) - span, 0)
        factor = factor[:length] * factor[len(factor) - length :]
        span *= 2
    return total


def lambda_returns(r_t: Tensor, discount_t: Tensor, v_t: Tensor, lambda_t: Tensor) -> Tensor:
    r"""Returns lambda-returns, mixtures of all n-step returns.

    .. math:: G_t = r_t + \gamma_t \big((1 - \lambda_t) v_t + \lambda_t G_{t+1}\big), \quad G_T = v_T

    With state values v, :math:`G_t - v_{t-1}` is the generalized advantage estimate (Schulman et al. 2016, arXiv
    1506.02438). With v the largest Q value, these are the targets of Peng's Q(lambda): Peng and Williams 1996
    (doi 10.1007/BF00114731) do not cut the trace at non-greedy actions, and neither does PQN (Gallici et al. 2024, arXiv
    2407.04811).

    Args:
        r_t: `[T, B]` rewards.
        discount_t: `[T, B]` discounts, 0 after a termination.
        v_t: `[T, B]` values of the rows at which the transitions end.
        lambda_t: `[T, B]` in [0, 1], 0 where the stream ends; ignored for the last transition.

    Returns:
        `[T, B]`, detached.

    Raises:
        ValueError: the shapes differ.
    """
    shapes = [tuple(tensor.shape) for tensor in (r_t, discount_t, v_t, lambda_t)]
    if r_t.dim() < 1 or len(set(shapes)) > 1:
        raise ValueError(f"shapes must all be the same [T, B], got {shapes}. Reshape them.")
    lambda_t = torch.cat([lambda_t[:-1], torch.zeros_like(lambda_t[-1:])])
    return discounted_sums(r_t + discount_t * (1.0 - lambda_t) * v_t, discount_t * lambda_t).detach()
