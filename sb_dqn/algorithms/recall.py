"""Acting with a memory: what is remembered of each lane, while learning and for `predict`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sb_dqn.accelerate import Mode
from sb_dqn.algorithms.asking import NetCall, See, as_they_are
from sb_dqn.algorithms.prediction import Door, DrawingPredictor, ValuePredictor
from sb_dqn.errors import SpaceError
from sb_dqn.exploration import Exploration
from sb_dqn.policies.base import Policy
from sb_dqn.policies.drawing import DrawingPolicy
from sb_dqn.policies.recurrent import RecurrentQPolicy
from sb_dqn.types import ActionArray, Blueprint, BoolArray, Observation, Rows

Values = npt.NDArray[Any]


class LaneMemory:
    """The recurrent state of each lane that is learned from, zeroed where an episode begins.

    Args:
        policy: the nets.
        num_lanes: B.
        mode, see, generator: see `NetCall`.
    """

    def __init__(
        self, policy: RecurrentQPolicy, num_lanes: int, mode: Mode, generator: torch.Generator, see: See = as_they_are
    ) -> None:
        self.policy = policy
        self.step = NetCall(policy, policy.step, mode, see, generator)
        self.state = np.zeros((num_lanes, policy.state_size), np.float32)
        """`[B, P]` after the last rows that were acted on."""
        self.last = np.ones(num_lanes, np.bool_)
        """`[B]` an episode ended at these rows."""
        self._declared: dict[str, Values] = {}
        self.values: Values = np.zeros(0)
        """`[B, (D,) A]` of the open rows."""

    def take_in(self, rows: Rows, obs: Observation, mask: BoolArray | None) -> None:
        """The open rows: they are remembered from now on."""
        begins = np.ones_like(self.last) if rows.action is None else np.zeros_like(self.last)
        for slot in rows.slots:
            begins |= slot.valid & self.last
            self.last = np.where(slot.valid, slot.last, self.last)
        action = np.full(begins.shape, -1) if rows.action is None else rows.action
        if rows.action is None and self.policy.actions.branched:
            action = np.full((len(begins), len(self.policy.actions.branches)), -1)
        action = np.where(begins.reshape(-1, *(1,) * (action.ndim - 1)), -1, action)
        reward = np.where(begins, 0.0, rows.slots[-1].reward).astype(np.float32)
        before = np.where(begins[:, None], 0.0, self.state).astype(np.float32)
        self.values, self.state = self.step(obs, mask, action, reward, before)
        self._declared = {"state": before}

    def acted(self, action: ActionArray) -> None:
        """Which actions were chosen."""
        taken = np.take_along_axis(self.values, action[..., None], -1)[..., 0]
        self._declared |= {"q_taken": over_branches(taken), "q_best": over_branches(self.values.max(-1))}

    def declared(self) -> dict[str, Values]:
        """For the replay: the state in which the open rows were met, the value taken and the largest."""
        return self._declared

    def state_dict(self) -> dict[str, Any]:
        return {"state": torch.from_numpy(self.state.copy()), "last": torch.from_numpy(self.last.copy())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.state, self.last = state["state"].numpy().copy(), state["last"].numpy().copy()


class RecurrentPredictor:
    """`predict` of a recurrent policy: the state that it returns carries memory, last action, and frames if there are any.

    Args:
        policy: the nets.
        blueprint: spaces and frame stack of the model.
        action_mask: where the legal actions are told.
        see: from observations as they are to observations as the nets see them.
    """

    def __init__(
        self, policy: RecurrentQPolicy, blueprint: Blueprint, action_mask: str | None = None, see: See = as_they_are
    ) -> None:
        self.door = Door(blueprint, action_mask)
        self.policy, self.actions = policy, self.door.actions
        self.step = NetCall(policy, policy.step, "eager", see)

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
        q, memory = self.step(obs, mask, action, self._reward(reward, begins), memory)
        if exploration is None or rng is None:
            chosen = q.argmax(-1)
        else:
            explorer = exploration.evaluation
            chosen = explorer.explore(lambda: q if explorer.needs_values else q.argmax(-1), count, rng, mask)
        answer = chosen + self.actions.start
        following = {"memory": memory, "action": chosen, "frames": frames}
        return answer if vectorised else answer[0], following

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
        actions = self.policy.actions
        shape = (len(begins), len(actions.branches)) if actions.branched else begins.shape
        memory = np.zeros((len(begins), self.policy.state_size), np.float32) if state is None else state["memory"]
        action = np.full(shape, -1) if state is None else state["action"]
        if np.shape(memory) != (len(begins), self.policy.state_size) or np.shape(action) != shape:
            raise SpaceError(
                f"state holds {np.shape(memory)} numbers and actions {np.shape(action)}, but there are {len(begins)} "
                f"observations: allowed are {(len(begins), self.policy.state_size)} and {shape}; pass what the last predict "
                f"returned for as many, or None"
            )
        of_lane = begins.reshape(-1, *(1,) * (len(shape) - 1))
        return np.where(begins[:, None], 0.0, memory).astype(np.float32), np.where(of_lane, -1, action)

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


def over_branches(x: Values) -> Values:
    """`[B]` as it is, `[B, D]` -> `[B]`: the mean of the branches; float32."""
    return (x.mean(-1) if x.ndim > 1 else x).astype(np.float32)


def predictor_of(policy: Policy, blueprint: Blueprint, action_mask: str | None, see: See) -> Any:
    """What answers `predict`, for the arguments see there."""
    drawn = isinstance(policy, DrawingPolicy)
    kind: Any = RecurrentPredictor if policy.recurrent else DrawingPredictor if drawn else ValuePredictor
    return kind(policy, blueprint, action_mask, see)
