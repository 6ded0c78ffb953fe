"""Temporal-difference targets and the losses on them.

Time is in the names: `q_tm1` belongs to o_{t-1}, where action `a_tm1` was taken; `r_t`, `discount_t` and `q_t` to the
observation it led to, n steps later for an n-step return. A termination is a discount of 0.
"""

from __future__ import annotations

import torch
from torch import Tensor


def q_target(return_t: Tensor, discount_t: Tensor, q_t: Tensor, selector_t: Tensor | None = None) -> Tensor:
    r"""Target of Q-learning, or of double Q-learning where another net selects the action.

    .. math:: y = R_t + \gamma_t \, q_t(\arg\max_a s_t(a))

    Args:
        return_t: `[N]` n-step sum of discounted rewards.
        discount_t: `[N]` gamma**n, 0 after a termination.
        q_t: `[N, A]` values that evaluate (the target net's).
        selector_t: `[N, A]` values that select; None: those that evaluate (Mnih et al. 2015); the online net's for
            double Q-learning (van Hasselt et al. 2016, arXiv 1509.06461).

    Returns:
        `[N]`, no gradient.

    Raises:
        ValueError: the shapes do not fit.
    """
    _same_batch(return_t, discount_t, q_t)
    if selector_t is None:
        value_t = q_t.amax(-1)
    else:
        value_t = q_t.gather(-1, selector_t.argmax(-1, keepdim=True)).squeeze(-1)
    return (return_t + discount_t * value_t).detach()


def huber(error: Tensor, kappa: float = 1.0) -> Tensor:
    r"""Quadratic up to kappa, linear beyond: :math:`\frac12 \delta^2` or :math:`\kappa(|\delta| - \frac12 \kappa)`.

    Args:
        error: any shape.
        kappa: where the line begins, > 0.

    Returns:
        The shape of `error`.
    """
    return torch.nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=kappa)


def squared(error: Tensor) -> Tensor:
    r"""Half of the square, :math:`\frac12 \delta^2`, so that its gradient is the error, as Huber's is near 0."""
    return 0.5 * error * error


def weighted_mean(loss: Tensor, weight: Tensor) -> Tensor:
    r"""Mean over the rows that count.

    .. math:: \sum_i w_i l_i / \max(1, |\{i : w_i > 0\}|)

    Args:
        loss: `[N]`; rows of weight 0 may hold anything, NaN included.
        weight: `[N]`, >= 0.

    Returns:
        A scalar.
    """
    counts = weight > 0
    return torch.dot(weight / counts.sum().clamp_min(1), torch.where(counts, loss, 0.0))


def _same_batch(return_t: Tensor, discount_t: Tensor, q_t: Tensor) -> None:
    if return_t.shape != discount_t.shape or return_t.shape != q_t.shape[:-1]:
        raise ValueError(
            f"return {tuple(return_t.shape)}, discount {tuple(discount_t.shape)} and values {tuple(q_t.shape)} "
            f"do not belong together: give [N], [N] and [N, A]"
        )
