"""Exploration base class and uniform random actions."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from sb_dqn.schedules import Schedule
from sb_dqn.spaces import ActionShape
from sb_dqn.types import Array, BoolArray, IntArray, State

Act = Callable[[], Array]
"""Runs the network on the current observations: returns greedy actions `[B]` (`[B, D]` for branches) or, for an exploration
that `needs_values`, the values `[B, (D,) A]` of all actions."""


class Exploration(ABC):
    """Selects the actions of B lanes during training, and of any number of observations for `predict`.

    The exploration rate never increases, except where its schedule does: after `load` and in a second `learn` it continues from the
    rate reached so far. A class of your own needs `rate`, `advance`, `select`, `explore` and the two methods for its state.

    Args:
        actions: shape of the action space.
        num_lanes: number of lanes B, > 0.
        rng: generator used by this object only.
        evaluation: exploration of `predict(deterministic=False)`. If None, this object explores at its current rate.
    """

    needs_values: ClassVar[bool] = False
    """True if `Act` must return action values instead of greedy actions."""
    schedule: Schedule | None = None
    """Epsilon or temperature over env steps. If None, the exploration has none."""
    off_after: int | None = None
    """Env step from which the rate is 0. If None, there is no such step."""

    def __init__(
        self, actions: ActionShape, num_lanes: int, rng: np.random.Generator, evaluation: Exploration | None = None
    ) -> None:
        self.actions = actions
        self.num_lanes = num_lanes
        self.rng = rng
        self.evaluation: Exploration = self if evaluation is None else evaluation

    def uniform(self, mask: BoolArray | None = None) -> IntArray:
        """Samples uniform random actions `[B]` (`[B, D]`); legal actions only if there is a mask `[B, (D,) A]`."""
        return self.actions.uniform(self.num_lanes, self.rng, mask)

    @property
    @abstractmethod
    def rate(self) -> float:
        """Current exploration rate for the log: an epsilon or a temperature."""

    @abstractmethod
    def advance(self, step: int, horizon: int) -> None:
        """Updates the rate to env step `step` of a run of `horizon` steps."""

    @abstractmethod
    def select(self, act: Act, mask: BoolArray | None = None) -> IntArray:
        """Returns the actions of the lanes, `[B]` (`[B, D]`), during training."""

    @abstractmethod
    def explore(self, act: Act, rows: int, rng: np.random.Generator, mask: BoolArray | None = None) -> IntArray:
        """Returns actions `[rows]` (`[rows, D]`) at the current rate, the same for all rows, with random numbers of `rng`."""

    def warn_if_ineffective(self) -> None:
        """Warns if the rate reached by a loaded model is below the final value of the schedule, which then has no effect."""
        if self.schedule is None or self.schedule.rises():
            return
        state = self.state_dict()
        reached = state.get("epsilon", state.get("temperature"))
        final = self.schedule.ends()[1]
        if reached is not None and reached < final and self.off_after != 0:
            warnings.warn(
                f"exploration schedule has no effect: it ends at {final:g}, but the loaded model has reached {reached:g} and "
                f"exploration never increases. To explore again, create a new model and copy the parameters: "
                f"new.set_parameters(old.get_parameters()).",
                stacklevel=3,
            )

    @abstractmethod
    def state_dict(self) -> State:
        """Returns the current rate."""

    @abstractmethod
    def load_state_dict(self, state: State) -> None:
        """Sets the rate to the stored one, or keeps the current one if that is lower."""
