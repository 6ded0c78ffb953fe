"""Epsilon-greedy: at random with probability epsilon, which falls with time and may differ from lane to lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sb_dqn.exploration.base import Act, Exploration
from sb_dqn.exploration.ladders import Ladder
from sb_dqn.schedules import Schedule
from sb_dqn.spaces import ActionShape
from sb_dqn.types import BoolArray, IntArray


class EpsilonGreedy(Exploration):
    """With probability epsilon a lane acts uniformly at random, else greedily: P(greedy) = 1 - epsilon + epsilon / A.

    With branches one draw decides for all branches of a lane.

    Args:
        schedule: epsilon over env steps.
        actions: what there is to choose from.
        num_lanes: B.
        rng: draws of this part alone.
        ladder: each lane falls to a final epsilon of its own; None: to that of the schedule.
        off_after: env step from which epsilon is 0; None: never.
        evaluation: explores for `predict`.
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
    ) -> None:
        super().__init__(actions, num_lanes, rng, evaluation)
        self.schedule = schedule
        self.ladder = ladder
        self.off_after = off_after
        self.start, self.final = schedule.ends()
        self.epsilon = 0.0 if off_after == 0 else schedule(0, 1)

    @property
    def rate(self) -> float:
        """Mean epsilon of the lanes."""
        return self.epsilon if self.ladder is None else float(self.lane_epsilons.mean())

    @property
    def lane_epsilons(self) -> npt.NDArray[Any]:
        """`[B]` epsilon of each lane.

        On a ladder each lane falls from the start to its own end in step with the schedule; once epsilon is below the
        schedule's end, since it is switched off or was lower before, all lanes shrink alike.
        """
        if self.ladder is None:
            return np.full(self.num_lanes, self.epsilon)
        finals = self.ladder.finals(self.final, self.num_lanes)
        if self.epsilon <= self.final:
            return finals * (self.epsilon / self.final)
        left = (self.epsilon - self.final) / (self.start - self.final)  # 1 at the start, 0 at the end
        return finals + left * (self.start - finals)

    def advance(self, step: int, horizon: int) -> None:
        switched_off = self.off_after is not None and step >= self.off_after
        self.epsilon = 0.0 if switched_off else min(self.epsilon, self.schedule(step, horizon))

    def select(self, act: Act, mask: BoolArray | None = None) -> IntArray:
        """Actions of the lanes; the nets are asked only if some lane needs them."""
        epsilon = self.epsilon if self.ladder is None else self.lane_epsilons
        return self._mix(act, self.num_lanes, epsilon, self.rng, mask)

    def explore(self, act: Act, rows: int, rng: np.random.Generator, mask: BoolArray | None = None) -> IntArray:
        return self._mix(act, rows, self.rate, rng, mask)

    def _mix(
        self,
        act: Act,
        rows: int,
        epsilon: float | npt.NDArray[Any],
        rng: np.random.Generator,
        mask: BoolArray | None,
    ) -> IntArray:
        explores = rng.random(rows) < epsilon
        explorers = np.count_nonzero(explores)
        if explorers == rows:
            return self.actions.uniform(rows, rng, mask)
        best = act()
        if not explorers:
            return best
        if self.actions.branched:
            explores = explores[:, None]
        return np.where(explores, self.actions.uniform(rows, rng, mask), best)

    def state_dict(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # a file may come from another kind of exploration, or from one that explored more than the new one ever does
        self.epsilon = min(self.epsilon, float(state.get("epsilon", self.epsilon)))
