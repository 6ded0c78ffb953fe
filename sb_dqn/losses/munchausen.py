"""Munchausen reinforcement learning: log-policy and reward bonus (Vieillard et al. 2020, arXiv 2007.14430)."""

from __future__ import annotations

from torch import Tensor


def log_policy(q: Tensor, tau: float) -> Tensor:
    r"""Returns the log-probabilities of the softmax policy; stable for small temperatures.

    .. math:: \log \pi(a) = \frac{q(a) - \max q}{\tau} - \log \sum_b \exp \frac{q(b) - \max q}{\tau}

    Args:
        q: `[..., A]` action values; a large negative value gives an illegal action probability 0.
        tau: temperature, > 0.

    Returns:
        `[..., A]`, <= 0.
    """
    return ((q - q.amax(-1, keepdim=True)) / tau).log_softmax(-1)


def bonus(q_tm1: Tensor, a_tm1: Tensor, alpha: float, tau: float, clip: float) -> Tensor:
    r"""Returns the Munchausen bonus, which is added to the return of the action taken.

    .. math:: \alpha \, \mathrm{clip}(\tau \log \pi(a_{t-1} | o_{t-1}), l_0, 0)

    Args:
        q_tm1: `[..., A]` action values at o_{t-1} of the network that defines the policy.
        a_tm1: `[...]` int64, the action taken.
        alpha: weight of the bonus, [0, 1].
        tau: temperature, > 0.
        clip: lower bound l_0, <= 0.

    Returns:
        `[...]`, between alpha * clip and 0.
    """
    taken = log_policy(q_tm1, tau).gather(-1, a_tm1.unsqueeze(-1)).squeeze(-1)
    return alpha * (tau * taken).clamp(clip, 0.0)
