"""`predict` of a policy that remembers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from sb_dqn.core.network_runner import NetworkRunner, See, as_they_are
from sb_dqn.core.predictor import Door, DrawingPredictor, ValuePredictor
from sb_dqn.errors import SpaceError
from sb_dqn.exploration import Exploration
from sb_dqn.policies.base import Policy
from sb_dqn.policies.drawing import StochasticPolicy
from sb_dqn.policies.remembering import Remembering
from sb_dqn.types import ActionArray, Blueprint, BoolArray, Observation

Values = npt.NDArray[Any]
Rng = np.random.Generator | None
Told = tuple[ActionArray, Values, Values]
"""Last action, last reward, state."""


class RecurrentPredictor(ABC):
    """The state that `predict` returns carries memory, last action, and frames if there are any. Subclasses say how an action
    is chosen.

    Args:
        policy: the nets.
        blueprint: spaces and frame stack of the model.
        action_mask: where the legal actions are told.
        see: from observations as they are to observations as the nets see them.
    """

    def __init__(
        self, policy: Remembering, blueprint: Blueprint, action_mask: str | None = None, see: See = as_they_are
    ) -> None:
        self.door = Door(blueprint, action_mask)
        self.policy: Any = policy
        self.actions = self.door.actions
        self.see = see

    def __call__(
        self,
        observation: Any,
        state: Any,
        episode_start: BoolArray | None,
        action_masks: Any,
        exploration: Exploration | None,
        rng: np.random.Generator | None,
        reward: Any = None,
    ) -> tuple[ActionArray, Any]:
        """Actions of the action space and the next state; greedy where there are no random numbers."""
        if state is not None and not (isinstance(state, dict) and {"memory", "action", "frames"} <= state.keys()):
            raise SpaceError(
                f"state={state!r} is no state of this policy; pass what the last predict returned, or None"
            )
        frames = None if state is None else state["frames"]
        obs, vectorised, frames = self.door.admit(observation, frames, episode_start)
        count = len(next(iter(obs.values())))
        begins = self._begins(state, episode_start, count)
        memory, action = self._remembered(state, begins)
        mask = self.door.legal(obs, action_masks, count)
        told = (action, self._reward(reward, begins), memory)
        chosen, memory = self._choose(obs, mask, told, exploration, rng)
        answer = chosen + self.actions.start
        following = {"memory": memory, "action": chosen, "frames": frames}
        return answer if vectorised else answer[0], following

    @abstractmethod
    def _choose(
        self, obs: Observation, mask: BoolArray | None, told: Told, exploration: Exploration | None, rng: Rng
    ) -> tuple[ActionArray, Values]:
        """Actions from 0 and the next state; greedy where there are no random numbers."""

    def _begins(self, state: Any, episode_start: BoolArray | None, count: int) -> BoolArray:
        begins = (
            np.full(count, state is None) if episode_start is None else np.atleast_1d(episode_start).astype(np.bool_)
        )
        if begins.shape != (count,):
            raise SpaceError(f"episode_start has shape {begins.shape}; allowed: ({count},), one for each observation")
        if state is None and not begins.all():
            raise SpaceError(
                f"episode_start says that observation {int(np.argmin(begins))} begins no episode, but state is None; pass "
                f"the state that the last predict returned"
            )
        return begins

    def _remembered(self, state: Any, begins: BoolArray) -> tuple[Values, ActionArray]:
        """State `[N, P]` and last action `[N]` or `[N, D]`, those of a beginning where one is."""
        none = self.policy.no_action(len(begins))
        shape = none.shape
        memory = np.zeros((len(begins), self.policy.state_size), np.float32) if state is None else state["memory"]
        action = none if state is None else state["action"]
        if np.shape(memory) != (len(begins), self.policy.state_size) or np.shape(action) != shape:
            raise SpaceError(
                f"state holds {np.shape(memory)} numbers and actions {np.shape(action)}, but there are {len(begins)} "
                f"observations: allowed are {(len(begins), self.policy.state_size)} and {shape}; pass what the last predict "
                f"returned for as many, or None"
            )
        of_lane = begins.reshape(-1, *(1,) * (len(shape) - 1))
        return np.where(begins[:, None], 0.0, memory).astype(np.float32), np.where(of_lane, none, action)

    def _reward(self, reward: Any, begins: BoolArray) -> Values:
        if reward is None:
            if self.policy.reads_reward and not begins.all():
                raise SpaceError(
                    "this policy reads the last reward, and an episode is going on; pass predict(..., reward=...), or train "
                    "with policy_kwargs=dict(previous_reward=False)"
                )
            reward = np.zeros(len(begins))
        given = np.atleast_1d(np.asarray(reward, np.float32))
        if given.shape != begins.shape or not np.isfinite(given).all():
            raise SpaceError(
                f"reward={reward!r} is not allowed; give {len(begins)} finite numbers, one for each observation"
            )
        return np.where(begins, 0.0, given).astype(np.float32)


class RecurrentValuePredictor(RecurrentPredictor):
    """Chooses by values.

    Args: those of `RecurrentPredictor`.
    """

    def __init__(self, policy: Any, *parts: Any) -> None:
        super().__init__(policy, *parts)
        self.step = NetworkRunner(policy, policy.step, "eager", self.see)

    def _choose(
        self, obs: Observation, mask: BoolArray | None, told: Told, exploration: Exploration | None, rng: Rng
    ) -> tuple[ActionArray, Values]:
        q, memory = self.step(obs, mask, *told)
        if exploration is None or rng is None:
            return q.argmax(-1), memory
        explorer = exploration.evaluation
        return explorer.explore(lambda: q if explorer.needs_values else q.argmax(-1), len(q), rng, mask), memory


class RecurrentDrawingPredictor(RecurrentPredictor):
    """The policy draws by itself.

    Args: those of `RecurrentPredictor`.
    """

    def __init__(self, policy: Any, *parts: Any) -> None:
        super().__init__(policy, *parts)
        self.greedy = NetworkRunner(policy, policy.greedy_step, "eager", self.see)
        self.drawn = NetworkRunner(policy, policy.drawn_step, "eager", self.see)

    def _choose(
        self, obs: Observation, mask: BoolArray | None, told: Told, exploration: Exploration | None, rng: Rng
    ) -> tuple[ActionArray, Values]:
        if rng is None:
            action, memory = self.greedy(obs, mask, *told)
        else:
            action, memory = self.drawn(obs, mask, self.policy.draw(rng, len(told[0])), *told)
        return action, memory


PREDICTORS: dict[tuple[bool, bool], Any] = {
    (False, False): ValuePredictor,
    (False, True): DrawingPredictor,
    (True, False): RecurrentValuePredictor,
    (True, True): RecurrentDrawingPredictor,
}
"""By whether a policy remembers, and whether it draws."""


def predictor_of(policy: Policy, blueprint: Blueprint, action_mask: str | None, see: See) -> Any:
    """What answers `predict`, for the arguments see there."""
    kind = PREDICTORS[policy.recurrent, isinstance(policy, StochasticPolicy)]
    return kind(policy, blueprint, action_mask, see)
