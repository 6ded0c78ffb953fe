"""Action spaces: zero-based discrete choices, or numbers within bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from gymnasium import spaces

from sb_dqn.errors import SpaceError
from sb_dqn.types import BoolArray, FloatArray, IntArray

Space = spaces.Space[Any]


@dataclass(frozen=True, eq=False)
class Choices:
    """Ranges of a discrete space; arrays of the shape of one element, `()` for Discrete."""

    count: IntArray
    """Number of values of each entry."""
    start: IntArray
    """Smallest value of each entry."""


@singledispatch
def choices_of(space: Space) -> Choices | None:
    """Returns the ranges of a Discrete, MultiDiscrete or MultiBinary space; None for any other space."""
    return None


@choices_of.register
def _(space: spaces.Discrete) -> Choices:
    return Choices(np.array(space.n, np.int64), np.array(space.start, np.int64))


@choices_of.register
def _(space: spaces.MultiDiscrete) -> Choices:
    return Choices(space.nvec.astype(np.int64), space.start.astype(np.int64))


@choices_of.register
def _(space: spaces.MultiBinary) -> Choices:
    return Choices(np.full(space.shape, 2), np.zeros(space.shape, np.int64))


@dataclass(frozen=True)
class ActionShape:
    """Structure of discrete actions: one choice, or one per branch of a MultiDiscrete; zero-based inside this library."""

    branches: tuple[int, ...]
    """Number of choices of each branch; `(A,)` for Discrete."""
    starts: tuple[int, ...]
    """Number of the first choice of each branch in the environment."""
    branched: bool = False
    """True if actions have an axis D: for MultiDiscrete and MultiBinary, even with one branch."""

    @classmethod
    def of(cls, space: Space) -> ActionShape:
        """Returns the structure of the actions of a discrete space.

        Raises:
            SpaceError: the space is neither Discrete nor a MultiDiscrete or MultiBinary of one axis.
        """
        choices = choices_of(space)
        if choices is None or choices.count.ndim > 1 or not choices.count.size:
            raise SpaceError(
                f"the action space of a Q-agent must be Discrete(n, start=...), MultiDiscrete([n, ...], start=...) or "
                f"MultiBinary(n) of one axis, got {space}. "
                f"For continuous actions use SAC or PPO, or discretize them with a gymnasium.ActionWrapper."
            )
        branches, starts = tuple(choices.count.ravel().tolist()), tuple(choices.start.ravel().tolist())
        return cls(branches, starts, branched=choices.count.ndim == 1)

    @property
    def num_actions(self) -> int:
        """A, the number of choices of the largest branch."""
        return max(self.branches)

    @property
    def num_branches(self) -> int:
        """D, the number of branches; 0 if actions have no such axis."""
        return len(self.branches) if self.branched else 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action: `()` or `(D,)`."""
        return (len(self.branches),) if self.branched else ()

    @property
    def start(self) -> IntArray:
        """Offset of the environment's actions from zero-based ones: `[]` or `[D]`, broadcasts over a batch."""
        return np.array(self.starts, np.int64).reshape(self.shape)

    @property
    def legal(self) -> BoolArray:
        """Mask of existing actions, `[A]` or `[D, A]`: False only where a branch has fewer than A choices."""
        return (np.arange(self.num_actions) < np.array(self.branches)[:, None]).reshape(*self.shape, self.num_actions)

    def uniform(self, rows: int, rng: np.random.Generator, mask: BoolArray | None = None) -> IntArray:
        """Samples actions uniformly, each branch independently.

        Args:
            rows: number of actions.
            rng: generator.
            mask: `[rows, A]` (`[rows, D, A]`), True where legal; a row without a legal action allows all.

        Returns:
            `[rows]` (`[rows, D]`), zero-based.
        """
        if mask is None:
            if not self.branched:
                return rng.integers(self.num_actions, size=rows)
            return rng.integers(self.branches, size=(rows, len(self.branches)))
        mask = mask | ~mask.any(-1, keepdims=True)
        if self.branched:
            mask = mask & self.legal
        rank = rng.integers(mask.sum(-1))  # zero-based index among the legal actions
        drawn: IntArray = (mask.cumsum(-1) > rank[..., None]).argmax(-1)
        return drawn


@dataclass(frozen=True, eq=False)
class BoxActions:
    """Structure of continuous actions: numbers in the environment's units, within finite bounds."""

    space: spaces.Box
    low: FloatArray
    """`[*shape]` lower bounds."""
    high: FloatArray
    """`[*shape]` upper bounds, greater than `low` everywhere."""
    branched = False
    num_actions = 0
    """0, since continuous actions cannot be counted."""

    @classmethod
    def of(cls, space: Space) -> BoxActions:
        """Returns the structure of the actions of a Box space.

        Raises:
            SpaceError: the space is not a Box of floats, an axis has length 0, or the bounds are infinite or equal.
        """
        if not isinstance(space, spaces.Box) or np.dtype(space.dtype).kind != "f" or 0 in space.shape:
            raise SpaceError(
                f"a continuous action space must be Box(low, high, shape) of a floating-point dtype with no axis of "
                f"length 0, got {space}. For integers use MultiDiscrete."
            )
        with np.errstate(over="ignore"):
            low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise SpaceError(
                f"bounds of a continuous action space must be finite float32 numbers with low < high, got {space}. Wrap the "
                f"env in gymnasium.wrappers.RescaleAction, or set the bounds that it uses."
            )
        return cls(space, low, high)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return self.low.shape

    @property
    def start(self) -> FloatArray:
        """Offset of the environment's actions from stored ones: 0."""
        return np.zeros((), np.float32)

    def uniform(self, rows: int, rng: np.random.Generator, mask: BoolArray | None = None) -> FloatArray:
        """Samples `[rows, *shape]` actions uniformly between the bounds; `mask` is ignored."""
        drawn = rng.random((rows, *self.shape), np.float32)
        return self.clip(self.low + drawn * (self.high - self.low))

    def clip(self, action: FloatArray) -> FloatArray:
        """Clips actions to the bounds, which rounding may exceed."""
        return np.minimum(np.maximum(action, self.low), self.high)


Actions = ActionShape | BoxActions
"""Discrete or continuous actions; both have `shape`, `start`, `num_actions` (0 for a Box) and `uniform`."""


def actions_of(space: Space) -> Actions:
    """Returns the structure of the actions of a space.

    Raises:
        SpaceError: the space is not Discrete, MultiDiscrete, MultiBinary or Box, or not supported in this form.
    """
    return BoxActions.of(space) if isinstance(space, spaces.Box) else ActionShape.of(space)
