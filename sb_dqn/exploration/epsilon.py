"""Epsilon-greedy exploration with an optional epsilon per lane."""

from __future__ import annotations

import numpy as np

from sb_dqn.exploration.base import Act, Exploration
from sb_dqn.exploration.ladders import Ladder
from sb_dqn.schedules import Schedule
from sb_dqn.spaces import ActionShape
from sb_dqn.types import Array, BoolArray, IntArray, State


class EpsilonGreedy(Exploration):
    """Selects a uniform random action with probability epsilon, and otherwise the greedy one: P(greedy) = 1 - epsilon +
    epsilon / A.

    A lane with action branches explores in all of its branches or in none.

    Args:
        schedule: epsilon over env steps, [0, 1].
        actions: shape of the action space.
        num_lanes: number of lanes B, > 0.
        rng: generator used by this object only.
        ladder: final epsilon of each lane. If None, it is that of the schedule.
        off_after: env step from which epsilon is 0. If None, there is no such step.
        evaluation: exploration of `predict(deterministic=False)`. If None, this object explores at its current rate.
        share: k and K, for one of K learners: a ladder over K * B lanes, of which this object has the lanes k, k + K, ...
    """

    def __init__(
        self,
        schedule: Schedule,
        actions: ActionShape,
        num_lanes: int,
        rng: np.random.Generator,
        *,
        ladder: Ladder | None = None,
        off_after: int | None = None,
        evaluation: Exploration | None = None,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        super().__init__(actions, num_lanes, rng, evaluation)
        self.schedule: Schedule = schedule
        self.ladder = ladder
        self.off_after = off_after
        self.share = share
        self.start, self.final = max(schedule.values()), schedule.ends()[1]
        self.epsilon = 0.0 if off_after == 0 else schedule(0, 1)
        self.rises = schedule.rises()

    @property
    def rate(self) -> float:
        """Mean epsilon of the lanes."""
        return self.epsilon if self.ladder is None else float(self.lane_epsilons.mean())

    @property
    def lane_epsilons(self) -> Array:
        """Epsilon of each lane, `[B]`.

        With a ladder, each lane decays from the initial epsilon to its own final epsilon at the pace of the schedule. If
        epsilon is below the end of the schedule (switched off, or reached by a loaded model), all lanes are scaled down
        by the same factor.
        """
        if self.ladder is None:
            return np.full(self.num_lanes, self.epsilon)
        first, every = self.share
        finals = self.ladder.finals(self.final, self.num_lanes * every)[first::every]
        if self.epsilon <= self.final:
            return finals * (self.epsilon / self.final)
        remaining = (self.epsilon - self.final) / (self.start - self.final)  # 1 at the start, 0 at the end
        return finals + remaining * (self.start - finals)

    def advance(self, step: int, horizon: int) -> None:
        switched_off = self.off_after is not None and step >= self.off_after
        value = self.schedule(step, horizon)
        self.epsilon = 0.0 if switched_off else value if self.rises else min(self.epsilon, value)

    def select(self, act: Act, mask: BoolArray | None = None) -> IntArray:
        """Returns the actions of the lanes; runs the network only if at least one lane acts greedily."""
        epsilon = self.epsilon if self.ladder is None else self.lane_epsilons
        return self._epsilon_greedy(act, self.num_lanes, epsilon, self.rng, mask)

    def explore(self, act: Act, rows: int, rng: np.random.Generator, mask: BoolArray | None = None) -> IntArray:
        return self._epsilon_greedy(act, rows, self.rate, rng, mask)

    def _epsilon_greedy(
        self, act: Act, rows: int, epsilon: float | Array, rng: np.random.Generator, mask: BoolArray | None
    ) -> IntArray:
        explores = rng.random(rows) < epsilon
        num_exploring = np.count_nonzero(explores)
        if num_exploring == rows:
            return self.actions.uniform(rows, rng, mask)
        greedy = act()
        if not num_exploring:
            return greedy
        if self.actions.branched:
            explores = explores[:, None]
        return np.where(explores, self.actions.uniform(rows, rng, mask), greedy)

    def state_dict(self) -> State:
        return {"epsilon": self.epsilon}

    def load_state_dict(self, state: State) -> None:
        # the state may come from another kind of exploration, or have a higher rate than the new schedule ever has
        value = float(state.get("epsilon", self.epsilon))
        self.epsilon = value if self.rises else min(self.epsilon, value)
