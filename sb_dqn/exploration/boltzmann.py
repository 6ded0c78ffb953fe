"""Boltzmann (softmax) exploration."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from sb_dqn.exploration.base import Act, Exploration
from sb_dqn.schedules import Schedule
from sb_dqn.spaces import ActionShape
from sb_dqn.types import Array, BoolArray, IntArray, State


class Boltzmann(Exploration):
    """Samples from softmax(q / temperature), each branch independently; temperature 0 is greedy.

    Args:
        schedule: temperature over env steps, >= 0, in units of the action values.
        actions: shape of the action space.
        num_lanes: number of lanes B, > 0.
        rng: generator that no other object uses.
        off_after: env step from which the temperature is 0. If None, there is no such step.
        evaluation: exploration of `predict(deterministic=False)`. If None, this object explores at its current rate.
    """

    needs_values: ClassVar[bool] = True

    def __init__(
        self,
        schedule: Schedule,
        actions: ActionShape,
        num_lanes: int,
        rng: np.random.Generator,
        *,
        off_after: int | None = None,
        evaluation: Exploration | None = None,
    ) -> None:
        super().__init__(actions, num_lanes, rng, evaluation)
        self.schedule: Schedule = schedule
        self.off_after = off_after
        self.temperature = 0.0 if off_after == 0 else schedule(0, 1)
        self.rises = schedule.rises()

    @property
    def rate(self) -> float:
        return self.temperature

    def advance(self, step: int, horizon: int) -> None:
        switched_off = self.off_after is not None and step >= self.off_after
        value = self.schedule(step, horizon)
        self.temperature = 0.0 if switched_off else value if self.rises else min(self.temperature, value)

    def select(self, act: Act, mask: BoolArray | None = None) -> IntArray:
        return self.explore(act, self.num_lanes, self.rng, mask)

    def explore(self, act: Act, rows: int, rng: np.random.Generator, mask: BoolArray | None = None) -> IntArray:
        q = self._legal(act(), mask)
        if self.temperature > 0.0:
            # at a low temperature only unlikely actions overflow after this
            q = q - q.max(-1, keepdims=True)
            with np.errstate(over="ignore"):
                q = q / self.temperature + rng.gumbel(size=q.shape)  # Gumbel-max: the argmax is a softmax sample
        sampled: IntArray = q.argmax(-1)
        return sampled

    def _legal(self, q: Array, mask: BoolArray | None) -> Array:
        """Returns the values as float64, with minus infinity for padding and illegal actions."""
        q = q.astype(np.float64)
        if mask is not None:
            q = np.where(mask | ~mask.any(-1, keepdims=True), q, -np.inf)
        return np.where(self.actions.legal, q, -np.inf) if self.actions.branched else q

    def state_dict(self) -> State:
        return {"temperature": self.temperature}

    def load_state_dict(self, state: State) -> None:
        value = float(state.get("temperature", self.temperature))
        self.temperature = value if self.rises else min(self.temperature, value)
