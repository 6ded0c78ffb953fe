"""`predict`: from a user's observation to an action."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces

from sb_dqn.accelerate import Mode, accelerate, are_small
from sb_dqn.errors import SpaceError
from sb_dqn.policies.base import Policy
from sb_dqn.spaces import batch_observation, flatten_space, leaf_shape
from sb_dqn.types import Blueprint, BoolArray, IntArray, Observation


class GreedyActor:
    """The greedy action for a flat dict of arrays with a fixed number of lanes.

    Args:
        policy: the nets.
        mode: how they are run; anything but "eager" needs the nets on the CPU.
    """

    def __init__(self, policy: Policy, mode: Mode) -> None:
        self.policy = policy
        self.mode: Mode = mode if are_small([policy], next(policy.parameters()).device) else "eager"
        self.keys = list(flatten_space(policy.observation_space))
        self.device = next(policy.parameters()).device
        self._run: Any = None
        self._inputs: list[torch.Tensor] = []

    def __call__(self, obs: Observation) -> IntArray:
        if self.mode == "eager":
            tensors = [torch.from_numpy(np.ascontiguousarray(obs[key])).to(self.device) for key in self.keys]
            return self._greedy(*tensors).cpu().numpy()
        if self._run is None or len(self._inputs[0]) != len(obs[self.keys[0]]):
            self._inputs = [torch.from_numpy(np.array(obs[key])) for key in self.keys]
            self._arrays = [tensor.numpy() for tensor in self._inputs]
            self._run = accelerate(self._greedy, tuple(self._inputs), self.mode)
        for key, array in zip(self.keys, self._arrays, strict=True):
            array[...] = obs[key]
        return self._run(*self._inputs).numpy()  # type: ignore[no-any-return]  # a callable of unknown type

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
        depth, count = self.blueprint.frame_stack, len(next(iter(frame.values())))
        empty = {
            key: np.zeros((count, depth * array.shape[1], *array.shape[2:]), array.dtype)
            for key, array in frame.items()
        }
        stacks: Any = empty if state is None else state
        if not isinstance(stacks, dict) or any(np.shape(stacks.get(key, ())) != empty[key].shape for key in empty):
            raise SpaceError(
                "state belongs to another number of observations; pass what the last predict returned, or None"
            )
        begins = np.zeros(count, bool) if episode_start is None else np.atleast_1d(episode_start)
        if begins.shape != (count,):
            raise SpaceError(f"episode_start has shape {begins.shape}; allowed: ({count},), one for each observation")
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
