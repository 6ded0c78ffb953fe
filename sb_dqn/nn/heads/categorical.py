"""Categorical distributions of the return (C51)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sb_dqn.checks import check_float, check_int, set_fields
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.heads.scalar import Distribution, Head, gather_action, mask_illegal
from sb_dqn.nn.layers.noise import Noise

FARTHEST = 1e20
"""Bound of |v_min| and |v_max|: far below |ILLEGAL|, so that differences are finite in float32."""


class CategoricalValue(NamedTuple):
    """Probabilities of fixed returns, per action."""

    logits: Tensor
    """Logits `[..., A, Z]` float32."""
    support: Tensor
    """The returns `[Z]` float32."""
    legal: Tensor | None = None
    """Legal actions `[..., A]` bool. If None, all actions are legal."""
    density: Tensor | None = None
    """Atoms per unit of the return, `[]`, or None if it has not been computed before."""

    @property
    def q(self) -> Tensor:
        """Values `[..., A]` float32, with `ILLEGAL` where an action is masked."""
        return mask_illegal(self.logits.softmax(-1) @ self.support, self.legal)

    def of(self, action: Tensor) -> Tensor:
        """Returns the log-probabilities `[..., Z]` of `action` `[...]`."""
        return gather_action(self.logits, action).log_softmax(-1)

    def soft(self, policy: Tensor, bonus: Tensor) -> tuple[Tensor, Tensor]:
        """Returns atoms and their probabilities, both `[..., A Z]`, of the mixture under `policy` `[..., A]`, with the atoms
        of each action shifted by its `bonus` `[..., A]`."""
        atoms = self.support + bonus.unsqueeze(-1)
        return atoms.flatten(-2), (policy.unsqueeze(-1) * self.logits.softmax(-1)).flatten(-2)


class CategoricalHead(Head):
    """Head for logits of evenly spaced returns (Bellemare et al. 2017, arXiv 1707.06887).

    Args:
        outputs: output layer with Z = n_atoms.
        n_atoms: number of returns.
        v_min: smallest return.
        v_max: largest return.
        legal: see `Head`.
    """

    support: Tensor
    density: Tensor

    def __init__(
        self, outputs: nn.Module, n_atoms: int, v_min: float, v_max: float, legal: Tensor | None = None
    ) -> None:
        super().__init__(outputs, legal)
        self.register_buffer("support", torch.linspace(v_min, v_max, n_atoms), persistent=False)
        density = (n_atoms - 1) / (self.support[-1] - self.support[0])
        self.register_buffer("density", density, persistent=False)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, noise: Noise | None = None, fractions: object = None
    ) -> CategoricalValue:
        return CategoricalValue(self.outputs(x, noise), self.support, self.allowed(mask), self.density)


@dataclass(frozen=True)
class Categorical(Distribution):
    """Probabilities of evenly spaced returns.

    Args:
        n_atoms: number of returns, from 2.
        v_min: smallest return; lower ones are projected onto it.
        v_max: largest return; higher ones are projected onto it.

    Raises:
        ConfigurationError: an argument is out of range.
    """

    n_atoms: int = 51
    v_min: float = -10.0
    v_max: float = 10.0

    def __post_init__(self) -> None:
        set_fields(
            self,
            n_atoms=check_int("n_atoms", self.n_atoms, 2),
            v_min=check_float("v_min", self.v_min, -FARTHEST, FARTHEST),
            v_max=check_float("v_max", self.v_max, -FARTHEST, FARTHEST),
        )
        if self.v_min >= self.v_max:
            raise ConfigurationError(
                f"v_min must be below v_max, got v_min={self.v_min} and v_max={self.v_max}. Give the smallest and the largest "
                f"return to expect."
            )

    def make_head(self, outputs: Callable[[int], nn.Module], legal: Tensor | None) -> CategoricalHead:
        return CategoricalHead(outputs(self.n_atoms), self.n_atoms, self.v_min, self.v_max, legal)
