"""What a head returns: `.q` for whoever selects an action, `.of(action)` and `.soft(policy, bonus)` for the loss."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

ILLEGAL = -(2.0**100)
"""Value of an action that is not allowed: finite, so that 0 times it is 0, and below everything that is learned."""


class ScalarValue(NamedTuple):
    """One number per action."""

    q: Tensor
    """`[..., A]` float32; `ILLEGAL` where an action is masked."""

    def of(self, action: Tensor) -> Tensor:
        """Value `[...]` of `action` `[...]`."""
        return self.q.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def soft(self, policy: Tensor, bonus: Tensor) -> Tensor:
        """Value `[...]` of drawing the action from `policy` `[..., A]` and earning `bonus` `[..., A]` for it."""
        return (policy * (self.q + bonus)).sum(-1)


class CategoricalValue(NamedTuple):
    """Probabilities of fixed returns, for each action."""

    logits: Tensor
    """`[..., A, Z]` float32."""
    support: Tensor
    """`[Z]` float32, the returns."""
    legal: Tensor | None = None
    """`[..., A]` bool; None: all."""

    @property
    def q(self) -> Tensor:
        """`[..., A]` float32; `ILLEGAL` where an action is masked."""
        return _masked(self.logits.softmax(-1) @ self.support, self.legal)

    def of(self, action: Tensor) -> Tensor:
        """Log-probabilities `[..., Z]` of `action` `[...]`."""
        return _taken(self.logits, action).log_softmax(-1)

    def soft(self, policy: Tensor, bonus: Tensor) -> tuple[Tensor, Tensor]:
        """Returns and their probabilities, both `[..., A Z]`, of drawing the action from `policy` `[..., A]` and earning
        `bonus` `[..., A]` for it."""
        atoms = self.support + bonus.unsqueeze(-1)
        return atoms.flatten(-2), (policy.unsqueeze(-1) * self.logits.softmax(-1)).flatten(-2)


class QuantileValue(NamedTuple):
    """Points of the quantile function of the return, for each action."""

    quantiles: Tensor
    """`[..., A, M]` float32."""
    taus: Tensor
    """`[..., M]` float32 in [0, 1], where the function was asked; what is left of `...` broadcasts."""
    weights: Tensor | None = None
    """`[..., M]` float32, how much each point counts, sum 1; None: all alike."""
    legal: Tensor | None = None
    """`[..., A]` bool; None: all."""

    @property
    def q(self) -> Tensor:
        """`[..., A]` float32; `ILLEGAL` where an action is masked."""
        if self.weights is None:
            return _masked(self.quantiles.mean(-1), self.legal)
        return _masked((self.quantiles * self.weights.unsqueeze(-2)).sum(-1), self.legal)

    def of(self, action: Tensor) -> Tensor:
        """Quantiles `[..., M]` of `action` `[...]`."""
        return _taken(self.quantiles, action)

    def soft(self, policy: Tensor, bonus: Tensor) -> Tensor:
        """Mean `[..., M]` of the quantile functions under `policy` `[..., A]`, each moved by its `bonus` `[..., A]`."""
        return (policy.unsqueeze(-1) * (self.quantiles + bonus.unsqueeze(-1))).sum(-2)


class FractionValue(NamedTuple):
    """Points of the quantile function in the middle of proposed fractions, and what teaches the proposal."""

    points: QuantileValue
    fractions: Tensor
    """`[..., M-1]` float32, the inner fractions; gradients lead to the proposal."""
    at_fractions: Tensor
    """`[..., A, M-1]` float32, the quantile function there, no gradient."""
    entropy: Tensor
    """`[...]` float32, of the widths of the fractions."""

    @property
    def q(self) -> Tensor:
        """`[..., A]` float32; `ILLEGAL` where an action is masked."""
        return self.points.q

    def of(self, action: Tensor) -> Tensor:
        """Quantiles `[..., M]` of `action` `[...]`, in the middle of the fractions."""
        return self.points.of(action)

    def soft(self, policy: Tensor, bonus: Tensor) -> Tensor:
        """As `QuantileValue.soft`."""
        return self.points.soft(policy, bonus)

    def at_fractions_of(self, action: Tensor) -> Tensor:
        """Quantiles `[..., M-1]` of `action` `[...]`, at the inner fractions."""
        return _taken(self.at_fractions, action)


def _masked(q: Tensor, legal: Tensor | None) -> Tensor:
    return q if legal is None else torch.where(legal, q, ILLEGAL)


def _taken(x: Tensor, action: Tensor) -> Tensor:
    """`[..., A, Z]` at `action` `[...]` -> `[..., Z]`."""
    place = action[..., None, None].expand(*action.shape, 1, x.shape[-1])
    return x.gather(-2, place).squeeze(-2)
