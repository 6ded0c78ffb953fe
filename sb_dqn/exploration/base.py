"""What every kind of exploration can do, and the uniform draw that all of them begin with."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sb_dqn.schedules import Schedule
from sb_dqn.spaces import ActionShape
from sb_dqn.types import BoolArray, IntArray

Act = Callable[[], npt.NDArray[Any]]
"""Asks the nets about the open rows: greedy actions `[B]` (`[B, D]` for branches), or, for an exploration that
`needs_values`, the values `[B, (D,) A]` of all actions."""


class Exploration(ABC):
    """Chooses the actions of B lanes while learning, and those of any number of rows for `predict`.

    It never rises again: after a load, or in a second `learn`, it goes on where it was.

    Args:
        actions: what there is to choose from.
        num_lanes: B.
        rng: draws of this part alone.
        evaluation: explores for `predict(deterministic=False)`; None: this one, at its present rate.
    """

    needs_values: ClassVar[bool] = False
    schedule: Schedule
    """Of epsilon or of a temperature, over env steps."""
    off_after: int | None
    """Env step from which the rate is 0."""

    def __init__(
        self, actions: ActionShape, num_lanes: int, rng: np.random.Generator, evaluation: Exploration | None = None
    ) -> None:
        self.actions = actions
        self.num_lanes = num_lanes
        self.rng = rng
        self.evaluation: Exploration = self if evaluation is None else evaluation

    def uniform(self, mask: BoolArray | None = None) -> IntArray:
        """`[B]` (`[B, D]`) actions at random, legal ones where there is a mask `[B, (D,) A]`."""
        return self.actions.uniform(self.num_lanes, self.rng, mask)

    @property
    @abstractmethod
    def rate(self) -> float:
        """How much is explored at present, for the log: an epsilon or a temperature."""

    @abstractmethod
    def advance(self, step: int, horizon: int) -> None:
        """Follows the schedule to env step `step` of a run of `horizon` steps."""

    @abstractmethod
    def select(self, act: Act, mask: BoolArray | None = None) -> IntArray:
        """`[B]` (`[B, D]`) actions of the lanes."""

    @abstractmethod
    def explore(self, act: Act, rows: int, rng: np.random.Generator, mask: BoolArray | None = None) -> IntArray:
        """`[rows]` (`[rows, D]`) actions at the present rate, the same for all rows, with draws of `rng`."""

    def tell_if_held(self) -> None:
        """Says so where the rate that was reached is below all that the schedule asks for, so that it changes nothing."""
        (reached,), final = self.state_dict().values(), self.schedule.ends()[1]
        if reached < final and self.off_after != 0:
            warnings.warn(
                f"exploration goes on from {reached:g}, which the model had reached, and never rises; the schedule that was given "
                f"ends at {final:g} and has no effect. To explore anew, make a model and give it these parameters: "
                f"new.set_parameters(old.get_parameters())",
                stacklevel=3,
            )

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The rate that was reached."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there, or from the rate it has if that is lower."""
