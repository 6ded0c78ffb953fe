"""Heads: from features to a value object; dueling, noisy and branching lie in `Outputs`, below all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sb_dqn.nn.layers.linear import MakeLinear
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.parameters.fraction_optimizer import FractionOptimizer


class Outputs(nn.Module):
    r"""The last layer: Z numbers for each action, in float32 whatever the features are.

    Dueling (Wang et al. 2016, arXiv 1511.06581), for each of the Z numbers:

    .. math:: q(o, a) = v(o) + A(o, a) - \frac{1}{|A|} \sum_b A(o, b)

    Args:
        linear: makes its layers.
        width: H, of the features that one stream reads.
        depth: Z.
        branches: actions of each branch, (A,) for one Discrete space; fewer than the most are padded.
        branched: give the answer an axis D of branches.
        dueling: the features are `[..., 2 H]`, of a value stream and an advantage stream.
    """

    share: Tensor

    def __init__(
        self,
        linear: MakeLinear,
        width: int,
        depth: int,
        branches: tuple[int, ...],
        branched: bool = False,
        dueling: bool = False,
    ) -> None:
        super().__init__()
        self.shape = (len(branches), max(branches), depth) if branched else (max(branches), depth)
        self.of_actions = linear(width, len(branches) * max(branches) * depth)
        self.of_state = linear(width, depth) if dueling else None
        self.even = min(branches) == max(branches)
        legal = torch.arange(max(branches)) < torch.tensor(branches).unsqueeze(-1)  # [D, A]
        self.register_buffer("share", (legal / legal.sum(-1, keepdim=True)).unsqueeze(-1), persistent=False)

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        """`[..., H]`, or `[..., 2 H]` -> `[..., (D,) A, Z]`."""
        x = x.float()
        if self.of_state is None:
            return self.of_actions(x, noise).unflatten(-1, self.shape)  # type: ignore[no-any-return]  # nn.Module.__call__
        of_state, of_actions = x.chunk(2, -1)
        advantage: Tensor = self.of_actions(of_actions, noise).unflatten(-1, self.shape)
        mean = advantage.mean(-2, keepdim=True) if self.even else (advantage * self.share).sum(-2, keepdim=True)
        value: Tensor = self.of_state(of_state, noise).unflatten(-1, (1,) * (len(self.shape) - 1) + self.shape[-1:])
        return value + (advantage - mean)


class Head(nn.Module):
    """Parent of all heads.

    Args:
        legal: `[D, A]` bool, actions that exist, where branches are uneven; None: all.
    """

    padding: Tensor | None

    def __init__(self, legal: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("padding", legal, persistent=False)

    def allowed(self, mask: Tensor | None) -> Tensor | None:
        """`[N, (D,) A]` bool of actions that exist and are legal; None: all."""
        if self.padding is None or mask is None:
            return self.padding if mask is None else mask
        return mask & self.padding


ILLEGAL = -(2.0**100)
"""Value of an illegal action: finite, so that 0 times it is 0, and below all learned values."""


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


class ScalarHead(Head):
    """One number per action.

    Args:
        outputs: last layer, Z = 1.
        legal: see `Head`.
    """

    def __init__(self, outputs: nn.Module, legal: Tensor | None = None) -> None:
        super().__init__(legal)
        self.outputs = outputs

    def forward(
        self, x: Tensor, mask: Tensor | None = None, noise: Noise | None = None, fractions: Any = None
    ) -> ScalarValue:
        q = self.outputs(x, noise).squeeze(-1)
        allowed = self.allowed(mask)
        return ScalarValue(q if allowed is None else torch.where(allowed, q, ILLEGAL))


class Distribution(ABC):
    """What is learned of the return: its mean alone, or all of it. Leaves are frozen dataclasses of scalars."""

    @property
    def num_online(self) -> int:
        """Uniform numbers that a learning pass of the online net takes per row."""
        return 0

    @property
    def num_target(self) -> int:
        """The same for the target net."""
        return 0

    @property
    def num_acting(self) -> int:
        """The same for acting."""
        return 0

    def make_embedding(self, width: int) -> nn.Module | None:
        """What multiplies the features `[N, width]` before the last hidden layer: a module `(x, noise, acting) ->
        (x', fractions)` with x' `[N, M, width]`; `acting` asks for distorted fractions; None: nothing."""
        return None

    def make_apart(self, net: nn.Module, flat: Tensor) -> FractionOptimizer | None:
        """What steps the parameters of a net that have a rate of their own; `flat` is what all are views of."""
        return None

    @abstractmethod
    def make_head(self, outputs: Callable[[int], nn.Module], legal: Tensor | None) -> nn.Module:
        """A head `(x, mask, noise, fractions) -> value`.

        Args:
            outputs: from Z to the last layer.
            legal: see `Head`.
        """


@dataclass(frozen=True)
class Scalar(Distribution):
    """The mean of the return."""

    def make_head(self, outputs: Callable[[int], nn.Module], legal: Tensor | None) -> nn.Module:
        return ScalarHead(outputs(1), legal)


def mask_illegal(q: Tensor, legal: Tensor | None) -> Tensor:
    """Returns values `[..., A]` with `ILLEGAL` where `legal` is False; None: all are legal."""
    return q if legal is None else torch.where(legal, q, ILLEGAL)


def gather_action(x: Tensor, action: Tensor) -> Tensor:
    """Returns the entries `[..., Z]` of `x` `[..., A, Z]` at `action` `[...]`."""
    place = action[..., None, None].expand(*action.shape, 1, x.shape[-1])
    return x.gather(-2, place).squeeze(-2)
