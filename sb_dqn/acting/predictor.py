"""`predict`: from a user's observation to an action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from sb_dqn.acting.network_runner import Function, NetworkRunner, Transform, unchanged
from sb_dqn.errors import SpaceError
from sb_dqn.exploration import Exploration
from sb_dqn.policies.base import Policy, StochasticPolicy
from sb_dqn.spaces import Actions, BoxActions, Space, actions_of, batch_observation, flatten_space, leaf_shape
from sb_dqn.types import ActionArray, Array, Blueprint, BoolArray, Observation


class PredictCall(NamedTuple):
    """Inputs of the networks for one call."""

    obs: Observation
    mask: BoolArray | None
    """`[N, (D,) A]`, legal actions; None: all."""
    inputs: tuple[Array, ...]
    """Recurrent inputs; empty for a feed-forward policy."""
    batched: bool
    """True if the observations came with a batch axis."""
    frames: Any
    """Frame stacks for the next call."""


class Predictor:
    """Computes the actions of `predict`; keeps no state between calls.

    Networks run eagerly, since the number of observations changes from call to call, and without noise in their weights.

    Args:
        policy: the networks.
        blueprint: spaces and frame stack of the model.
        action_mask: source of the legal actions: "info", a key of the observation, or None.
        transform: from stored observations to network inputs (normalization).
    """

    def __init__(
        self, policy: Policy, blueprint: Blueprint, action_mask: str | None = None, transform: Transform = unchanged
    ) -> None:
        self.policy: Any = policy
        self.blueprint = blueprint
        self.mask_key = None if action_mask == "info" else action_mask
        self.actions = actions_of(blueprint.action_space)
        self.frame_space = single_frames(blueprint) if blueprint.frame_stack > 1 else None
        self.transform = transform
        self.samples = isinstance(policy, StochasticPolicy)
        self.greedy = self._runner("greedy_step")
        self.explore = self._runner("sample_step" if self.samples else "values_step")

    def _runner(self, method: str) -> NetworkRunner:
        return NetworkRunner(self.policy, getattr(self.policy, method), "eager", self.transform)

    def __call__(
        self,
        observation: Any,
        state: Any,
        episode_start: BoolArray | None,
        action_masks: object,
        exploration: Exploration | None,
        rng: np.random.Generator | None,
        reward: object = None,
    ) -> tuple[ActionArray, Any]:
        """Returns actions of the action space and the state for the next call; greedy if `rng` is None.

        The state holds the frame stacks; of a recurrent policy also the recurrent state and the previous action.

        Args: see `BaseAlgorithm.predict`; `exploration` is that of a Q-policy.
        """
        call = self._prepare(observation, state, episode_start, action_masks, reward)
        chosen, *next_state = self._select(call.obs, call.mask, call.inputs, exploration, rng)
        action = self.actions.in_space(chosen) if isinstance(self.actions, BoxActions) else chosen + self.actions.start
        state = call.frames
        if self.policy.recurrent:
            state = {"memory": next_state[0], "action": chosen, "frames": call.frames}
        return action if call.batched else action[0], state

    def evaluate(
        self,
        function: Function,
        observation: Any,
        state: Any,
        episode_start: BoolArray | None,
        action_masks: object,
        reward: object,
    ) -> tuple[Array, ...]:
        """Returns the outputs of a function of the networks, without the batch axis for one observation.

        Args: `function` as in `NetworkRunner`; the others as in `BaseAlgorithm.predict`.
        """
        call = self._prepare(observation, state, episode_start, action_masks, reward)
        outputs = NetworkRunner(self.policy, function, "eager", self.transform)(call.obs, call.mask, *call.inputs)
        return outputs if call.batched else tuple([output[0] for output in outputs])

    def _prepare(
        self, observation: Any, state: Any, episode_start: BoolArray | None, action_masks: object, reward: object
    ) -> PredictCall:
        """Checks the arguments of a call and returns the inputs of the networks."""
        recurrent = self.policy.recurrent
        frames = _frames_of(state) if recurrent else state
        obs, batched, frames = self._observations(observation, frames, episode_start)
        count = len(next(iter(obs.values())))
        inputs: tuple[Array, ...] = ()
        if recurrent:
            begins = self._begins(state, episode_start, count)
            memory, previous = self._previous(state, begins)
            inputs = previous, self._reward(reward, begins), memory
        return PredictCall(obs, self._mask(obs, action_masks, count), inputs, batched, frames)

    def _mask(self, obs: Observation, action_masks: object, count: int) -> BoolArray | None:
        """Returns the legal actions `[N, (D,) A]` from `action_masks`, else from the observation; None: all."""
        if action_masks is not None:
            return batch_masks(self.actions, action_masks, count)
        if self.mask_key is None:
            return None
        mask = batch_masks(self.actions, obs[self.mask_key], count, empty=True)
        return mask | ~mask.any(-1, keepdims=True)  # a final observation may have no legal action

    def _observations(
        self, observation: Any, stacks: object, episode_start: BoolArray | None
    ) -> tuple[Observation, bool, Any]:
        """Returns observations `[N, *shape]` by key, True if they came as a batch, and the frame stacks for the next call.

        Args:
            observation: one or N observations; single frames where the model stacks frames.
            stacks: frame stacks that the last call returned; None: empty ones.
            episode_start: `[N]`, True where the stack is cleared; None: nowhere.
        """
        space = self.blueprint.observation_space
        if self.frame_space is None:
            return *batch_observation(space, observation), stacks
        observation = self._with_channels_first(observation)
        try:
            return *batch_observation(space, observation), stacks
        except SpaceError as error:
            try:
                frame, batched = batch_observation(self.frame_space, observation)
            except SpaceError:
                raise error from None
        depth = self.blueprint.frame_stack
        count = len(next(iter(frame.values())))
        empty = {
            key: np.zeros((count, depth * array.shape[1], *array.shape[2:]), array.dtype)
            for key, array in frame.items()
        }
        before: Any = empty if stacks is None else stacks
        if not isinstance(before, dict) or any(np.shape(before.get(key, ())) != empty[key].shape for key in empty):
            raise SpaceError(
                f"state must hold the frame stacks of {count} observations, got those of another number. Pass the state that "
                f"the last predict returned, or None."
            )
        begins = _episode_starts(episode_start, count)
        after = {}
        for key, array in frame.items():
            kept = np.where(begins.reshape(-1, *(1,) * (array.ndim - 1)), 0, before[key][:, array.shape[1] :])
            after[key] = np.concatenate([kept.astype(array.dtype), array], axis=1)
        return after, batched, after

    def _with_channels_first(self, observation: Any) -> Any:
        """Returns frames and stacks `[..., H, W, C]`, as Stable-Baselines3 makes them, as `[..., C, H, W]`."""
        shape = np.shape(observation)[-3:] if isinstance(observation, np.ndarray) else ()
        stack, frame = self.blueprint.observation_space, self.frame_space
        known = [leaf_shape(space) for space in (stack, frame) if space is not None]
        turned = [(*rest, channels) for channels, *rest in known]
        return np.moveaxis(observation, -1, -3) if shape in turned and shape not in known else observation

    def _select(
        self,
        obs: Observation,
        mask: BoolArray | None,
        inputs: tuple[Array, ...],
        exploration: Exploration | None,
        rng: np.random.Generator | None,
    ) -> tuple[Array, ...]:
        """Returns zero-based actions; of a recurrent policy also the next state."""
        if rng is None:
            return self.greedy(obs, mask, *inputs)
        count = len(next(iter(obs.values())))
        if self.samples:
            return self.explore(obs, mask, self.policy.draw(rng, count), *inputs)
        assert exploration is not None  # every Q-agent has one
        strategy = exploration.evaluation
        runner = self.explore if strategy.needs_values else self.greedy
        outputs = runner(obs, mask, *inputs)
        return strategy.explore(lambda: outputs[0], count, rng, mask), *outputs[1:]

    def _begins(self, state: Any, episode_start: BoolArray | None, count: int) -> BoolArray:
        if episode_start is None:
            return np.full(count, state is None)
        begins = _episode_starts(episode_start, count)
        if state is None and not begins.all():
            raise SpaceError(
                f"episode_start must be True for all observations if state is None, got False for observation "
                f"{int(np.argmin(begins))}. Pass the state that the last predict returned."
            )
        return begins

    def _previous(self, state: Any, begins: BoolArray) -> tuple[Array, ActionArray]:
        """Returns recurrent state `[N, P]` and previous action `[N, ...]`, both reset where an episode begins."""
        none = self.policy.no_action(len(begins))
        shape = none.shape
        size = (len(begins), self.policy.state_size)
        memory = np.zeros(size, np.float32) if state is None else state["memory"]
        action = none if state is None else state["action"]
        if np.shape(memory) != size or np.shape(action) != shape:
            raise SpaceError(
                f"state must hold arrays of shape {size} and {shape} for {len(begins)} observations, got {np.shape(memory)} and "
                f"{np.shape(action)}. Pass the state that the last predict returned for as many, or None."
            )
        of_lane = begins.reshape(-1, *(1,) * (len(shape) - 1))
        return np.where(begins[:, None], 0.0, memory).astype(np.float32), np.where(of_lane, none, action)

    def _reward(self, reward: object, begins: BoolArray) -> Array:
        """Returns the previous reward `[N]`, 0 where an episode begins."""
        if reward is None:
            if self.policy.reads_reward and not begins.all():
                raise SpaceError(
                    "reward must be the last reward inside an episode, got None: this policy reads it. Pass predict(..., "
                    "reward=...), or train with policy_kwargs=dict(previous_reward=False)."
                )
            reward = np.zeros(len(begins))
        rewards = np.atleast_1d(np.asarray(reward, np.float32))
        if rewards.shape != begins.shape or not np.isfinite(rewards).all():
            raise SpaceError(
                f"reward must be {len(begins)} finite numbers, one for each observation, got {reward!r}. Give the last rewards."
            )
        return np.where(begins, 0.0, rewards).astype(np.float32)


def _frames_of(state: Any) -> Any:
    """Returns the frame stacks in the state of a recurrent policy; None if the state is None."""
    if state is None:
        return None
    if not isinstance(state, dict) or not {"memory", "action", "frames"} <= state.keys():
        raise SpaceError(
            f"state must be None or the state that the last predict returned, got {state!r}. Pass one of them."
        )
    return state["frames"]


def _episode_starts(episode_start: Any, count: int) -> BoolArray:
    begins = np.zeros(count, bool) if episode_start is None else np.atleast_1d(episode_start).astype(np.bool_)
    if begins.shape != (count,):
        raise SpaceError(
            f"episode_start must have shape ({count},), got {begins.shape}. Give one value for each observation."
        )
    return begins


def single_frames(blueprint: Blueprint) -> Space:
    """Returns the space of one frame, given a blueprint with a stack of K along the first axis."""
    leaf: Any = next(iter(flatten_space(blueprint.observation_space).values()))
    depth = leaf_shape(leaf)[0] // blueprint.frame_stack
    return spaces.Box(leaf.low[-depth:], leaf.high[-depth:], dtype=leaf.dtype.type)


def batch_masks(actions: Actions, action_masks: object, count: int, *, empty: bool = False) -> BoolArray:
    """Returns the action masks of `predict` as `[count, (D,) A]` bool.

    Args:
        actions: the action space.
        action_masks: `[A]` or `[count, A]`, bool or 0 and 1; for branches `[sum of branches]`, one branch after the other, or
            `[D, A]`, each with or without an axis `count`.
        count: number of observations.
        empty: accept masks without a legal action.

    Raises:
        SpaceError: shape or dtype does not fit, or nothing is legal; or actions are no choices.
    """
    if isinstance(actions, BoxActions):
        raise SpaceError(
            "action_masks must be None where actions are numbers between bounds (a Box), got masks. Leave them out."
        )
    legal = actions.legal
    flat = (sum(actions.branches),) if actions.branched else legal.shape
    shapes = [(*batch, *one) for one in dict.fromkeys((flat, legal.shape)) for batch in ((), (count,))]
    masks = _as_bool(_joined(action_masks, actions.branches))
    if masks is None or masks.shape not in shapes:
        raise SpaceError(
            f"action_masks must be bool, or 0 and 1, of one of the shapes {', '.join(map(str, shapes))}, got {action_masks!r}. "
            f"Reshape them."
        )
    if actions.branched and masks.shape[-1:] == flat:
        padded = np.zeros((*masks.shape[:-1], *legal.shape), np.bool_)
        padded[..., legal] = masks
        masks = padded
    found: BoolArray = np.broadcast_to(masks & legal, (count, *legal.shape)).copy()
    if not empty and not found.any(-1).all():
        raise SpaceError(
            f"action_masks must allow an action for each observation, got none for observation "
            f"{int(np.argwhere(~found.any(-1))[0, 0])}. Allow one, or all of them in a final observation, whose action is not used."
        )
    return found


def _joined(action_masks: Any, branches: Sequence[int]) -> Any:
    """Returns masks of branches of unequal numbers of actions as one `[sum of branches]`; other masks unchanged."""
    if isinstance(action_masks, np.ndarray) and action_masks.dtype == object:  # one such tuple for each observation
        return np.stack([_joined(one, branches) for one in action_masks])
    unequal = len(set(branches)) > 1 and isinstance(action_masks, (tuple, list)) and len(action_masks) == len(branches)
    if unequal and all(np.shape(one)[-1:] == (count,) for one, count in zip(action_masks, branches, strict=True)):
        return np.concatenate(action_masks, -1)
    return action_masks


def _as_bool(action_masks: object) -> BoolArray | None:
    """Returns an array of bool, or of 0 and 1, as bool; None for anything else."""
    try:
        array = np.asarray(action_masks)
    except ValueError:  # numpy's, for lists of unequal length
        return None
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        return None
    booleans: BoolArray = array.astype(np.bool_)
    return booleans
