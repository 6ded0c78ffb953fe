"""`predict`: from a user's observation to an action."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces

from sb_dqn.accelerate import Mode
from sb_dqn.algorithms.asking import NetCall, See, as_they_are
from sb_dqn.errors import SpaceError
from sb_dqn.exploration import Exploration
from sb_dqn.policies import QPolicy
from sb_dqn.policies.base import Policy
from sb_dqn.policies.drawing import DrawingPolicy
from sb_dqn.spaces import Actions, BoxActions, actions_of, batch_observation, flatten_space, leaf_shape
from sb_dqn.types import ActionArray, Blueprint, BoolArray, Observation


class GreedyActor:
    """What the nets say to a flat dict of arrays: the greedy action, or the values of all actions.

    Args:
        policy: the nets.
        mode: how they are run; anything but "eager" needs the nets on the CPU.
        values: answer with `[B, (D,) A]` values instead of `[B(, D)]` actions.
        generator: draws the nets' random numbers anew for each call; None: mean weights and fixed fractions.
        see: from observations as they are to observations as the nets see them; pure tensor operations.
    """

    def __init__(
        self,
        policy: QPolicy,
        mode: Mode,
        *,
        values: bool = False,
        generator: torch.Generator | None = None,
        see: See = as_they_are,
    ) -> None:
        ask = policy.values if values else policy.greedy
        self._ask = NetCall(policy, ask, mode, see, generator).alone

    def __call__(self, obs: Observation, mask: BoolArray | None = None) -> npt.NDArray[Any]:
        return self._ask(obs, mask)


class Predictor(ABC):
    """Checks an observation, carries the frame stack, chooses an action. Subclasses say how it is chosen.

    Args:
        policy: the nets.
        blueprint: spaces and frame stack of the model.
        action_mask: where the legal actions are told; if by a key of the observation, they are read there.
        see: from observations as they are to observations as the nets see them.
    """

    def __init__(
        self, policy: Policy, blueprint: Blueprint, action_mask: str | None = None, see: See = as_they_are
    ) -> None:
        self.door = Door(blueprint, action_mask)
        self.actions = self.door.actions
        # eager, since the number of observations changes from call to call
        self.greedy = NetCall(policy, policy.greedy, "eager", see)

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
        """Actions of the action space and the next state; greedy where there are no random numbers. The last reward is for
        policies that remember."""
        obs, vectorised, state = self.door.admit(observation, state, episode_start)
        count = len(next(iter(obs.values())))
        mask = self.door.legal(obs, action_masks, count)
        action = self.greedy.alone(obs, mask) if rng is None else self._draw(obs, mask, count, exploration, rng)
        action = action + self.actions.start
        return action if vectorised else action[0], state

    @abstractmethod
    def _draw(
        self,
        obs: Observation,
        mask: BoolArray | None,
        count: int,
        exploration: Exploration | None,
        rng: np.random.Generator,
    ) -> ActionArray:
        """`[N, ...]` actions from 0, as by chance as while learning."""


class ValuePredictor(Predictor):
    """An exploration chooses by the values of a Q-policy, mean weights throughout.

    Args: those of `Predictor`.
    """

    def __init__(
        self, policy: QPolicy, blueprint: Blueprint, action_mask: str | None = None, see: See = as_they_are
    ) -> None:
        super().__init__(policy, blueprint, action_mask, see)
        self.values = NetCall(policy, policy.values, "eager", see)

    def _draw(
        self,
        obs: Observation,
        mask: BoolArray | None,
        count: int,
        exploration: Exploration | None,
        rng: np.random.Generator,
    ) -> ActionArray:
        assert exploration is not None  # every Q-agent has one
        explorer = exploration.evaluation
        ask = self.values if explorer.needs_values else self.greedy
        return explorer.explore(lambda: ask.alone(obs, mask), count, rng, mask)


class DrawingPredictor(Predictor):
    """The policy draws by itself.

    Args: those of `Predictor`.
    """

    def __init__(
        self, policy: DrawingPolicy, blueprint: Blueprint, action_mask: str | None = None, see: See = as_they_are
    ) -> None:
        super().__init__(policy, blueprint, action_mask, see)
        self.sampled, self.numbers = NetCall(policy, policy.sample, "eager", see), policy.draw

    def _draw(
        self,
        obs: Observation,
        mask: BoolArray | None,
        count: int,
        exploration: Exploration | None,
        rng: np.random.Generator,
    ) -> ActionArray:
        return self.sampled.alone(obs, mask, self.numbers(rng, count))


class Door:
    """What a user's observation must pass on its way to the nets: checks, frame stack, masks.

    Args:
        blueprint: spaces and frame stack of the model.
        action_mask: where the legal actions are told; if by a key of the observation, they are read there.
    """

    def __init__(self, blueprint: Blueprint, action_mask: str | None = None) -> None:
        self.blueprint = blueprint
        self.mask_key = None if action_mask == "info" else action_mask
        self.actions = actions_of(blueprint.action_space)
        self.frame_space = single_frames(blueprint) if blueprint.frame_stack > 1 else None

    def legal(self, obs: Observation, action_masks: Any, count: int) -> BoolArray | None:
        """`[B, (D,) A]`, as the caller says, else as the observation says; None: all."""
        if action_masks is not None:
            return batch_masks(self.actions, action_masks, count)
        if self.mask_key is None:
            return None
        mask = batch_masks(self.actions, obs[self.mask_key], count, empty=True)
        return mask | ~mask.any(-1, keepdims=True)  # in a final observation nothing need be legal

    def admit(self, observation: Any, state: Any, episode_start: BoolArray | None) -> tuple[Observation, bool, Any]:
        """Observations `[B, ...]` by key, frames stacked; whether there was an axis B; and the state of the stacks."""
        if self.frame_space is None:
            return *batch_observation(self.blueprint.observation_space, observation), state
        observation = self._with_channels_first(observation)
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

    def _with_channels_first(self, observation: Any) -> Any:
        """Returns frames and stacks `[..., H, W, C]`, as Stable-Baselines3 makes them, as `[..., C, H, W]`."""
        shape = np.shape(observation)[-3:] if isinstance(observation, np.ndarray) else ()
        stack, frame = self.blueprint.observation_space, self.frame_space
        known = [leaf_shape(space) for space in (stack, frame) if space is not None]
        turned = [(*rest, channels) for channels, *rest in known]
        return np.moveaxis(observation, -1, -3) if shape in turned and shape not in known else observation


def single_frames(blueprint: Blueprint) -> spaces.Space[Any]:
    """Space of one frame where the blueprint's holds a stack of K along the first axis."""
    (leaf,) = flatten_space(blueprint.observation_space).values()
    depth, *rest = leaf_shape(leaf)
    return spaces.Box(0, 255, (depth // blueprint.frame_stack, *rest), dtype=np.uint8)


def batch_masks(actions: Actions, given: Any, count: int, *, empty: bool = False) -> BoolArray:
    """`predict`'s masks of legal actions, one for all observations or one for each, as `[count, (D,) A]` bool.

    Args:
        actions: what an action is made of.
        given: `[A]` or `[count, A]`, bool or 0 and 1; for branches `[sum of branches]`, one branch after the other, or
            `[D, A]`, each with or without an axis `count`.
        count: observations.
        empty: whether a mask may allow nothing.

    Raises:
        SpaceError: shape or dtype does not fit, or nothing is legal; or actions are no choices.
    """
    if isinstance(actions, BoxActions):
        raise SpaceError(
            "action_masks name legal choices, but actions are numbers between bounds (a Box); leave them out"
        )
    legal = actions.legal
    flat = (sum(actions.branches),) if actions.branched else legal.shape
    shapes = [(*batch, *one) for one in dict.fromkeys((flat, legal.shape)) for batch in ((), (count,))]
    masks = _truths(given)
    if masks is None or masks.shape not in shapes:
        raise SpaceError(
            f"action_masks={given!r} do not fit; allowed: bool, or 0 and 1, of one of the shapes "
            f"{', '.join(map(str, shapes))}"
        )
    if actions.branched and masks.shape[-1:] == flat:
        padded = np.zeros((*masks.shape[:-1], *legal.shape), np.bool_)
        padded[..., legal] = masks
        masks = padded
    found: BoolArray = np.broadcast_to(masks & legal, (count, *legal.shape)).copy()
    if not empty and not found.any(-1).all():
        raise SpaceError(
            f"action_masks allow no action for observation {int(np.argwhere(~found.any(-1))[0, 0])}; let them allow one "
            f"(all of them in a final observation, whose action nobody takes)"
        )
    return found


def _truths(given: Any) -> BoolArray | None:
    """As bool, if it is an array of that, or of 0 and 1."""
    try:
        array = np.asarray(given)
    except ValueError:  # numpy's, for lists of unequal length
        return None
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        return None
    truths: BoolArray = array.astype(np.bool_)
    return truths
