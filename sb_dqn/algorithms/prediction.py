"""`predict`: from a user's observation to an action."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces

from sb_dqn.accelerate import Mode, accelerate
from sb_dqn.errors import SpaceError
from sb_dqn.policies.base import Policy
from sb_dqn.spaces import batch_observation, flatten_space, leaf_shape
from sb_dqn.types import Blueprint, BoolArray, IntArray, Observation


class GreedyActor:
    """The greedy action for a flat dict of arrays with a fixed number of lanes, as fast as `mode` allows."""

    def __init__(self, policy: Policy, mode: Mode) -> None:
        self.policy, self.mode = policy, mode
        self.keys = list(flatten_space(policy.observation_space))
        self.device = next(policy.parameters()).device
        self._run: Any = None
        self._shape: tuple[int, ...] = ()

    def __call__(self, obs: Observation) -> IntArray:
        tensors = [torch.from_numpy(np.ascontiguousarray(obs[key])).to(self.device) for key in self.keys]
        if self._run is None or tensors[0].shape != self._shape:
            self._shape = tuple(tensors[0].shape)
            self._run = accelerate(self._greedy, tuple(tensors), "traced" if self.mode == "traced" else "eager")
        return self._run(*tensors).cpu().numpy()  # type: ignore[no-any-return]  # a callable of unknown type

    @torch.no_grad()
    def _greedy(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.policy.greedy(dict(zip(self.keys, tensors, strict=True)))


class Predictor:
    """Checks an observation, carries the frame stack, chooses an action.

    Args:
        policy: the nets.
        blueprint: spaces and frame stack of the model.
        mode: how the net is run.
    """

    def __init__(self, policy: Policy, blueprint: Blueprint, mode: Mode) -> None:
        self.greedy = GreedyActor(policy, "eager")  # the number of observations changes from call to call
        self.blueprint = blueprint
        self.num_actions = int(blueprint.action_space.n)  # type: ignore[attr-defined]  # Discrete, checked by the policy
        self.start = int(blueprint.action_space.start)  # type: ignore[attr-defined]
        self.frame_space = single_frames(blueprint) if blueprint.frame_stack > 1 else None

    def __call__(
        self,
        observation: Any,
        state: Any,
        episode_start: BoolArray | None,
        epsilon: float,
        rng: np.random.Generator,
    ) -> tuple[npt.NDArray[np.int64], Any]:
        obs, vectorised, state = self._admit(observation, state, episode_start)
        action = self.greedy(obs)
        if epsilon > 0.0:
            explores = rng.random(len(action)) < epsilon
            action = np.where(explores, rng.integers(self.num_actions, size=len(action)), action)
        action = action + self.start
        return action if vectorised else action[0], state

    def _admit(self, observation: Any, state: Any, episode_start: BoolArray | None) -> tuple[Observation, bool, Any]:
        if self.frame_space is None:
            return *batch_observation(self.blueprint.observation_space, observation), state
        try:
            return *batch_observation(self.blueprint.observation_space, observation), state
        except SpaceError as stacked:
            try:
                frame, vectorised = batch_observation(self.frame_space, observation)
            except SpaceError:
                raise stacked from None
        depth = self.blueprint.frame_stack
        stacks = (
            state
            if state is not None
            else {
                key: np.zeros((len(array), depth * array.shape[1], *array.shape[2:]), array.dtype)
                for key, array in frame.items()
            }
        )
        if len(next(iter(stacks.values()))) != len(next(iter(frame.values()))):
            raise SpaceError(
                "state belongs to another number of observations; pass what the last predict returned, or None"
            )
        begins = (
            np.zeros(len(next(iter(frame.values()))), bool) if episode_start is None else np.atleast_1d(episode_start)
        )
        fresh = {}
        for key, array in frame.items():
            kept = np.where(begins.reshape(-1, *(1,) * (array.ndim - 1)), 0, stacks[key][:, array.shape[1] :])
            fresh[key] = np.concatenate([kept.astype(array.dtype), array], axis=1)
        return fresh, vectorised, fresh


def single_frames(blueprint: Blueprint) -> spaces.Space[Any]:
    """Space of one frame where the blueprint's holds a stack of K along the first axis."""
    (leaf,) = flatten_space(blueprint.observation_space).values()
    depth, *rest = leaf_shape(leaf)
    return spaces.Box(0, 255, (depth // blueprint.frame_stack, *rest), dtype=np.uint8)
