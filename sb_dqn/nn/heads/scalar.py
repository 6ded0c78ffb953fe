"""Base classes of value heads, their shared output layer (dueling, noisy, branching), and the head of scalar values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sb_dqn.nn.layers.linear import MakeLinear
from sb_dqn.nn.layers.noise import Noise


class Outputs(nn.Module):
    r"""Output layer of a value head: Z numbers per action, computed in float32 for features of any dtype.

    Dueling (Wang et al. 2016, arXiv 1511.06581), for each of the Z numbers:

    .. math:: q(o, a) = v(o) + A(o, a) - \frac{1}{|A|} \sum_b A(o, b)

    Args:
        linear: function that makes the layers.
        width: number H of features of one stream.
        depth: number Z of outputs per action.
        branches: number of actions of each branch, (A,) for one Discrete space; shorter branches are padded.
        branched: True if the output has an axis D of branches.
        dueling: True for a state value and advantages: of features `[..., 2 H]`, those of two streams, or of the same `[..., H]`.
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
        self.width = width
        self.of_actions = linear(width, len(branches) * max(branches) * depth)
        self.of_state = linear(width, depth) if dueling else None
        self.even = min(branches) == max(branches)
        legal = torch.arange(max(branches)) < torch.tensor(branches).unsqueeze(-1)  # [D, A]
        self.register_buffer("share", (legal / legal.sum(-1, keepdim=True)).unsqueeze(-1), persistent=False)

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        """Maps features `[..., H]`, or `[..., 2 H]`, to outputs `[..., (D,) A, Z]`."""
        x = x.float()
        if self.of_state is None:
            return self.of_actions(x, noise).unflatten(-1, self.shape)  # type: ignore[no-any-return]  # nn.Module.__call__
        of_state, of_actions = (x, x) if x.shape[-1] == self.width else x.chunk(2, -1)
        advantage: Tensor = self.of_actions(of_actions, noise).unflatten(-1, self.shape)
        mean = advantage.mean(-2, keepdim=True) if self.even else (advantage * self.share).sum(-2, keepdim=True)
        value: Tensor = self.of_state(of_state, noise).unflatten(-1, (1,) * (len(self.shape) - 1) + self.shape[-1:])
        return value + (advantage - mean)


class Head(nn.Module):
    """Base class of value heads.

    Args:
        outputs: output layer.
        legal: `[D, A]` bool, the actions that exist if branches are uneven. If None, all actions exist.
    """

    padding: Tensor | None

    def __init__(self, outputs: nn.Module, legal: Tensor | None = None) -> None:
        super().__init__()
        self.outputs = outputs
        self.register_buffer("padding", legal, persistent=False)

    def allowed(self, mask: Tensor | None) -> Tensor | None:
        """Returns `[N, (D,) A]` bool, True for actions that exist and are legal, or None if all actions are."""
        if self.padding is None or mask is None:
            return self.padding if mask is None else mask
        return mask & self.padding


ILLEGAL = -(2.0**100)
"""Value of an illegal action: finite, so that 0 times it is 0, and below all learned values."""


class ScalarValue(NamedTuple):
    """One value per action.

    All value objects have `q` for action selection, and `of(action)` and `soft(policy, bonus)` for losses.
    """

    q: Tensor
    """Values `[..., A]` float32, with `ILLEGAL` where an action is masked."""

    def of(self, action: Tensor) -> Tensor:
        """Returns the value `[...]` of `action` `[...]`."""
        return self.q.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def soft(self, policy: Tensor, bonus: Tensor) -> Tensor:
        """Returns the expectation `[...]` of value plus `bonus` `[..., A]` under `policy` `[..., A]`."""
        return (policy * (self.q + bonus)).sum(-1)


class ScalarHead(Head):
    """Head for one value per action, Z = 1."""

    def forward(
        self, x: Tensor, mask: Tensor | None = None, noise: Noise | None = None, fractions: object = None
    ) -> ScalarValue:
        return ScalarValue(mask_illegal(self.outputs(x, noise).squeeze(-1), self.allowed(mask)))


class Distribution(ABC):
    """Representation of the return: its mean or its distribution. Subclasses are frozen dataclasses of scalars."""

    @property
    def num_online(self) -> int:
        """Uniform random numbers per row in a learning pass of the online network."""
        return 0

    @property
    def num_target(self) -> int:
        """Uniform random numbers per row in a learning pass of the target network."""
        return 0

    @property
    def num_acting(self) -> int:
        """Uniform random numbers per row when acting."""
        return 0

    def make_embedding(self, width: int) -> nn.Module | None:
        """Returns the embedding of quantile fractions, which is applied before the last hidden layer, or None if there is none.

        It is a module `(x, noise, acting) -> (x', fractions)` with x `[N, width]` and x' `[N, M, width]`; `acting=True`
        applies the risk distortion.
        """
        return None

    @abstractmethod
    def make_head(self, outputs: Callable[[int], nn.Module], legal: Tensor | None) -> nn.Module:
        """Returns a head `(x, mask, noise, fractions) -> value`.

        Args:
            outputs: function that makes the output layer for a depth Z.
            legal: see `Head`.
        """


@dataclass(frozen=True)
class Scalar(Distribution):
    """The mean of the return."""

    def make_head(self, outputs: Callable[[int], nn.Module], legal: Tensor | None) -> nn.Module:
        return ScalarHead(outputs(1), legal)


def mask_illegal(q: Tensor, legal: Tensor | None) -> Tensor:
    """Returns values `[..., A]` with `ILLEGAL` where `legal` is False. If `legal` is None, all actions are legal."""
    return q if legal is None else torch.where(legal, q, ILLEGAL)


def gather_action(x: Tensor, action: Tensor) -> Tensor:
    """Returns the entries `[..., Z]` of `x` `[..., A, Z]` at `action` `[...]`."""
    place = action[..., None, None].expand(*action.shape, 1, x.shape[-1])
    return x.gather(-2, place).squeeze(-2)
