"""Losses of soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905), continuous and discrete (arXiv 1910.07207)."""

from __future__ import annotations

from torch import Tensor


def soft_value(q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
    r"""Value of a state with the entropy of the policy in it: of one drawn action.

    .. math:: V = \min_c Q_c(s, a) - \alpha \log \pi(a \mid s)

    Args:
        q: `[C, N]`, of each critic.
        log_prob: `[N]`.
        alpha: temperature, >= 0; a scalar.

    Returns:
        `[N]`.
    """
    return q.amin(0) - alpha * log_prob


def expected_soft_value(q: Tensor, logp: Tensor, alpha: Tensor) -> Tensor:
    r"""The same where all actions can be counted: the expectation over them, without a draw.

    .. math:: V = \sum_a \pi(a \mid s) (\min_c Q_c(s, a) - \alpha \log \pi(a \mid s))

    Args:
        q: `[C, N, A]`.
        logp: `[N, A]`, log-probabilities; finite, far below 0 where an action is not allowed.
        alpha: temperature, >= 0; a scalar.

    Returns:
        `[N]`.
    """
    return (logp.exp() * (q.amin(0) - alpha * logp)).sum(-1)


def critic_loss(q: Tensor, target: Tensor) -> Tensor:
    r""":math:`\frac12 \sum_c (Q_c - y)^2`.

    Args:
        q: `[C, N]`, of each critic.
        target: `[N]`, without a gradient.

    Returns:
        `[N]`.
    """
    return 0.5 * (q - target).square().sum(0)


def temperature_loss(log_alpha: Tensor, entropy: Tensor, target_entropy: Tensor | float) -> Tensor:
    r"""Draws the entropy of the policy towards its target.

    .. math:: J(\alpha) = \log \alpha \, (H - \bar H)

    Too much entropy lowers alpha, too little raises it. With one drawn action H is :math:`-\log \pi(a \mid s)`.

    Args:
        log_alpha: a scalar.
        entropy: `[N]`, without a gradient.
        target_entropy: :math:`\bar H`, in nats; a scalar or `[N]`.

    Returns:
        `[N]`.
    """
    return log_alpha * (entropy - target_entropy)
