"""Backward recursions over `[T, B]`: lambda-returns, generalised advantages, return-to-go.

Transition t leaves row t and arrives at the next one. What belongs to that arrival carries the suffix `_t`, as in `td`; what
belongs to row t itself carries `_tm1`. There is no `done` here. `discount_t` is gamma, or 0 where there is no value beyond
the arrival; `lambda_t` is lambda, or 0 where the stream ends there (a time limit too), so that nothing is carried over a
reset. A transition that is none (from a final row to a reset row) needs no care: nobody looks at it.
"""

from __future__ import annotations

import torch
from torch import Tensor


def discounted_sums(x_t: Tensor, decay_t: Tensor) -> Tensor:
    r"""The recursion that all others are made of.

    .. math:: y_t = x_t + d_t \, y_{t+1}, \quad y_T = 0

    Solved by doubling: after k rounds y_t holds the terms t .. t + 2^k - 1. So T steps take log2(T) rounds of a few
    operations, and a recording of them stays short.

    Args:
        x_t: `[T, ...]`.
        decay_t: `[T, ...]`, the same shape.

    Returns:
        `[T, ...]`.
    """
    total, factor, reach = x_t, decay_t, 1
    while reach < len(x_t):
        going_on = len(x_t) - reach
        total = torch.cat([total[:going_on] + factor[:going_on] * total[reach:], total[going_on:]])
        kept = max(len(factor) - reach, 0)
        factor = factor[:kept] * factor[len(factor) - kept :]
        reach *= 2
    return total


def lambda_returns(r_t: Tensor, discount_t: Tensor, v_t: Tensor, lambda_t: Tensor) -> Tensor:
    r"""Mixtures of all n-step returns; with v the largest Q value these are the targets of Peng's Q(lambda).

    .. math:: G_t = r_t + \gamma_t \big((1 - \lambda_t) v_t + \lambda_t G_{t+1}\big), \quad G_T = v_T

    Peng and Williams 1996 (doi 10.1007/BF00114731) do not cut the trace at actions that were not greedy, and neither does
    PQN (Gallici et al. 2024, arXiv 2407.04811).

    Args:
        r_t: `[T, B]` rewards.
        discount_t: `[T, B]`, 0 where there is no value beyond the arrival.
        v_t: `[T, B]` values of the arrivals.
        lambda_t: `[T, B]`, 0 where the stream ends; of the last transition it does not matter.

    Returns:
        `[T, B]`, no gradient.

    Raises:
        ValueError: the shapes differ.
    """
    _same_shapes(r_t, discount_t, v_t, lambda_t)
    lambda_t = torch.cat([lambda_t[:-1], torch.zeros_like(lambda_t[-1:])])
    return discounted_sums(r_t + discount_t * (1.0 - lambda_t) * v_t, discount_t * lambda_t).detach()


def generalised_advantages(r_t: Tensor, discount_t: Tensor, v_tm1: Tensor, v_t: Tensor, lambda_t: Tensor) -> Tensor:
    r"""How much better an action did than its state is worth (Schulman et al. 2016, arXiv 1506.02438).

    .. math:: A_t = \delta_t + \gamma_t \lambda_t A_{t+1}, \quad \delta_t = r_t + \gamma_t v_t - v_{t-1}

    It is the lambda-return less `v_tm1`.

    Args:
        r_t: `[T, B]` rewards.
        discount_t: `[T, B]`, 0 where there is no value beyond the arrival.
        v_tm1: `[T, B]` values of the rows left.
        v_t: `[T, B]` values of the arrivals; where a stream ends by a time limit, of its last observation.
        lambda_t: `[T, B]`, 0 where the stream ends.

    Returns:
        `[T, B]`, no gradient.

    Raises:
        ValueError: the shapes differ.
    """
    _same_shapes(r_t, discount_t, v_tm1, v_t, lambda_t)
    return discounted_sums(r_t + discount_t * v_t - v_tm1, discount_t * lambda_t).detach()


def returns_to_go(r_t: Tensor, discount_t: Tensor) -> Tensor:
    r"""Discounted sum of the rewards to come, of whole episodes.

    .. math:: G_t = r_t + \gamma_t G_{t+1}, \quad G_T = 0

    Args:
        r_t: `[T, B]` rewards.
        discount_t: `[T, B]`, 0 where the stream ends, by a time limit too: there is no value to go on with.

    Returns:
        `[T, B]`, no gradient.

    Raises:
        ValueError: the shapes differ.
    """
    _same_shapes(r_t, discount_t)
    return discounted_sums(r_t, discount_t).detach()


def _same_shapes(*given: Tensor) -> None:
    if given[0].dim() < 1 or len({tensor.shape for tensor in given}) > 1:
        raise ValueError(f"shapes {[tuple(tensor.shape) for tensor in given]} do not belong together: give [T, B] each")
