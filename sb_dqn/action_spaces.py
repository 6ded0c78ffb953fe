"""Action spaces at the door: choices that are counted from 0, or numbers within bounds."""

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
    """How a space counts: arrays of the shape of one of its elements, `()` for Discrete."""

    count: IntArray
    """How many values each number has."""
    start: IntArray
    """The smallest."""


@singledispatch
def choices_of(space: Space) -> Choices | None:
    """What each number of a Discrete, MultiDiscrete or MultiBinary may be; None for any other space."""
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
    """What one action is made of: a single choice, or one for each branch of a MultiDiscrete; 0-based in this house."""

    branches: tuple[int, ...]
    """How many choices each branch has; `(A,)` for Discrete."""
    starts: tuple[int, ...]
    """The number that the env gives to the first choice of each branch."""
    branched: bool = False
    """Whether actions have an axis D: so for MultiDiscrete and MultiBinary, be it of length 1."""

    @classmethod
    def of(cls, space: Space) -> ActionShape:
        """What an action of this space is made of, if it is one that a Q-agent can act in.

        Raises:
            SpaceError: it is no Discrete, and no MultiDiscrete or MultiBinary of one axis.
        """
        choices = choices_of(space)
        if choices is None or choices.count.ndim > 1 or not choices.count.size:
            raise SpaceError(
                f"action space {space} is not supported by a Q-agent; allowed: Discrete(n, start=...), "
                f"MultiDiscrete([n, ...], start=...) and MultiBinary(n) of one axis. "
                f"For continuous actions, discretise them with a gymnasium.ActionWrapper"
            )
        branches, starts = tuple(choices.count.ravel().tolist()), tuple(choices.start.ravel().tolist())
        return cls(branches, starts, branched=choices.count.ndim == 1)

    @property
    def num_actions(self) -> int:
        """A, the choices of the largest branch."""
        return max(self.branches)

    @property
    def num_branches(self) -> int:
        """D; 0 where actions have no such axis."""
        return len(self.branches) if self.branched else 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one action: `()`, or `(D,)`."""
        return (len(self.branches),) if self.branched else ()

    @property
    def start(self) -> IntArray:
        """What to add to 0-based actions for the env: `[]` or `[D]`, so that it broadcasts over a batch."""
        return np.array(self.starts, np.int64).reshape(self.shape)

    @property
    def legal(self) -> BoolArray:
        """The widest mask, `[A]` or `[D, A]`: false only where a branch has fewer than A choices."""
        return (np.arange(self.num_actions) < np.array(self.branches)[:, None]).reshape(*self.shape, self.num_actions)

    def uniform(self, rows: int, rng: np.random.Generator, mask: BoolArray | None = None) -> IntArray:
        """Actions drawn uniformly, each branch by itself; from the legal ones where there is a mask.

        Args:
            rows: how many.
            rng: draws.
            mask: `[rows, A]` (`[rows, D, A]`) True where legal; a row without any allows all.

        Returns:
            `[rows]` (`[rows, D]`), 0-based.
        """
        if mask is None:
            if not self.branched:
                return rng.integers(self.num_actions, size=rows)
            return rng.integers(self.branches, size=(rows, len(self.branches)))
        mask = mask | ~mask.any(-1, keepdims=True)
        if self.branched:
            mask = mask & self.legal
        rank = rng.integers(mask.sum(-1))  # which of the legal ones, counted from 0
        drawn: IntArray = (mask.cumsum(-1) > rank[..., None]).argmax(-1)
        return drawn


@dataclass(frozen=True, eq=False)
class BoxActions:
    """What one action of a Box is made of: numbers in the env's own units, within finite bounds."""

    space: spaces.Box
    low: FloatArray
    """`[*shape]`, the smallest that is allowed."""
    high: FloatArray
    """`[*shape]`, the largest; above `low` everywhere."""
    branched = False
    num_actions = 0
    """None of them can be counted."""

    @classmethod
    def of(cls, space: Space) -> BoxActions:
        """What an action of this space is made of.

        Raises:
            SpaceError: it is no Box of floating-point numbers, an axis is empty, or a bound is infinite or leaves no room.
        """
        if not isinstance(space, spaces.Box) or np.dtype(space.dtype).kind != "f" or 0 in space.shape:
            raise SpaceError(
                f"action space {space} is not continuous; allowed: Box(low, high, shape) of a floating-point dtype with no "
                f"axis of length 0; whole numbers are choices: give MultiDiscrete"
            )
        with np.errstate(over="ignore"):
            low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise SpaceError(
                f"action space {space} needs bounds that are finite float32 numbers with low < high; wrap the env in "
                f"gymnasium.wrappers.RescaleAction, or set bounds that it really uses"
            )
        return cls(space, low, high)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one action."""
        return self.low.shape

    @property
    def start(self) -> FloatArray:
        """What to add to stored actions for the env: 0."""
        return np.zeros((), np.float32)

    def uniform(self, rows: int, rng: np.random.Generator, mask: BoolArray | None = None) -> FloatArray:
        """`[rows, *shape]` actions drawn uniformly between the bounds; there are no masks here."""
        drawn = rng.random((rows, *self.shape), np.float32)
        return self.clip(self.low + drawn * (self.high - self.low))

    def clip(self, action: FloatArray) -> FloatArray:
        """The nearest actions within the bounds (rounding may step over them)."""
        return np.minimum(np.maximum(action, self.low), self.high)


Actions = ActionShape | BoxActions
"""Either of the two; both know `shape`, `start`, `num_actions` (0 for a Box) and how to draw `uniform` ones."""


def actions_of(space: Space) -> Actions:
    """What an action of this space is made of.

    Raises:
        SpaceError: it is none of Discrete, MultiDiscrete, MultiBinary and Box, or one that cannot be acted in.
    """
    return BoxActions.of(space) if isinstance(space, spaces.Box) else ActionShape.of(space)
