"""Soft actor-critic losses, continuous (Haarnoja et al. 2018, arXiv 1812.05905) and discrete (arXiv 1910.07207)."""

from __future__ import annotations

from torch import Tensor


def soft_value(q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
    r"""Returns the soft state value, estimated from one sampled action.

    .. math:: V = \min_c Q_c(s, a) - \alpha \log \pi(a \mid s)

    Args:
        q: `[C, N]`, value of the sampled action by each critic.
        log_prob: `[N]`, log-probability of the sampled action.
        alpha: scalar temperature, >= 0.

    Returns:
        `[N]`.
    """
    return q.amin(0) - alpha * log_prob


def expected_soft_value(q: Tensor, logp: Tensor, alpha: Tensor) -> Tensor:
    r"""Returns the soft state value of a discrete policy, as an exact expectation over all actions.

    .. math:: V = \sum_a \pi(a \mid s) (\min_c Q_c(s, a) - \alpha \log \pi(a \mid s))

    Args:
        q: `[C, N, A]`.
        logp: `[N, A]`, log-probabilities; finite, far below 0 for an illegal action.
        alpha: scalar temperature, >= 0.

    Returns:
        `[N]`.
    """
    return (logp.exp() * (q.amin(0) - alpha * logp)).sum(-1)


def critic_loss(q: Tensor, target: Tensor) -> Tensor:
    r"""Returns the summed squared TD error of the critics, :math:`\frac12 \sum_c (Q_c - y)^2`.

    Args:
        q: `[C, N]`, value of the action taken by each critic.
        target: `[N]`, without gradient.

    Returns:
        `[N]`.
    """
    return 0.5 * (q - target).square().sum(0)


def temperature_loss(log_alpha: Tensor, entropy: Tensor, target_entropy: Tensor | float) -> Tensor:
    r"""Returns the temperature loss, which adjusts alpha until the policy has the target entropy.

    .. math:: J(\alpha) = \log \alpha \, (H - \bar H)

    Entropy above the target lowers alpha, entropy below raises it. For one sampled action, H is :math:`-\log \pi(a \mid s)`.

    Args:
        log_alpha: scalar.
        entropy: `[N]` in nats, without gradient.
        target_entropy: :math:`\bar H` in nats; scalar or `[N]`.

    Returns:
        `[N]`.
    """
    return log_alpha * (entropy - target_entropy)
