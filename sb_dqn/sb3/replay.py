"""The replay buffer and the rollout of a model with the methods and array names of Stable-Baselines3's."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer as TheirReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.her import HerReplayBuffer
from torch import Tensor

from sb_dqn.acting.predictor import single_frames
from sb_dqn.buffers import ReplayBuffer
from sb_dqn.buffers.frame_stack import observations_at
from sb_dqn.buffers.sequences import SequenceView
from sb_dqn.errors import ConfigurationError
from sb_dqn.sb3.distributions import to_actions
from sb_dqn.spaces import (
    Actions,
    BoxActions,
    actions_of,
    as_observation,
    flatten_observation,
    flatten_space,
    leaf_dtype,
    leaf_shape,
)
from sb_dqn.types import ActionArray, Array, Blueprint, BoolArray, EnvLike, Info, ModelLike, Observation, Rows, Slot


def stream_of(blueprint: Blueprint, action_mask: str | None) -> Any:
    """Returns an object with the attributes of a stream that the shape of a replay buffer depends on."""
    return SimpleNamespace(
        num_envs=blueprint.num_envs,
        blueprint=blueprint,
        observation_space=single_frames(blueprint) if blueprint.frame_stack > 1 else blueprint.observation_space,
        action_shape=actions_of(blueprint.action_space),
        has_masks=action_mask is not None,
    )


class ReplayArrays(NamedTuple):
    """Transitions of a replay buffer, oldest first, as arrays `[K, n_envs, ...]`; K is the fewest that an environment has."""

    observations: Any
    """Observations, or a dict of them."""
    next_observations: Any
    actions: Array
    """`[K, n_envs, D]`, those of a Box between -1 and 1."""
    rewards: Array
    dones: Array
    """1 where the episode ended with the transition."""
    timeouts: Array
    """1 where it ended without being terminated, as at a time limit."""

    @property
    def pos(self) -> int:
        """K."""
        return len(self.rewards)

    def size(self) -> int:
        """Returns K."""
        return self.pos


class ReplayView:
    """View of a replay buffer: `add`, `extend`, `sample`, `size`, `buffer_size`, `n_envs`, `pos`, `full`, `device`, and the
    arrays of `ReplayArrays`.

    Each reading of an array makes a new one; keep it, or a `copy.deepcopy` of the buffer, which has all. Actions of a Box are
    between -1 and 1, as `policy.scale_action` returns them.

    Args:
        model: the model of the buffer.
    """

    def __init__(self, model: ModelLike) -> None:
        self.model = model
        self.replay: ReplayBuffer = model.replay
        self.action_space: Actions = model.predictor.actions
        self.gamma = float(model.discount)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("replay", "model"):  # while it is copied
            raise AttributeError(name)
        return getattr(self.replay, name)

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """Returns the number of transitions in each environment, on average; `buffer_size` of a full buffer."""
        ring = self.replay.ring
        if (ring.cursor >= ring.rows).all():
            return ring.rows
        slots = min(int(ring.cursor.max()), ring.rows)
        ended = ring.last.take(torch.arange(slots * ring.num_lanes, device=ring.device)).cpu().numpy()
        has_next = np.arange(slots)[:, np.newaxis] < ring.cursor - 1
        return int((has_next & ~ended.reshape(has_next.shape)).sum()) // ring.num_lanes

    @property
    def n_envs(self) -> int:
        return self.replay.ring.num_lanes

    @property
    def buffer_size(self) -> int:
        """Capacity in rows of each environment."""
        return self.replay.ring.rows

    @property
    def full(self) -> bool:
        return self.size() >= self.buffer_size

    @property
    def pos(self) -> int:
        """Number of transitions in the arrays, which hold them in the order of time also in a full buffer."""
        return int(self._places()[0].shape[0])

    @property
    def n_steps(self) -> int:
        """Number of rewards before the bootstrap in the transitions that `sample` returns."""
        return self.replay.ring.n_steps

    def _places(self) -> tuple[Tensor, Tensor]:
        """Returns lanes and absolute rows `[K, n_envs]` of the transitions that all environments have."""
        ring = self.replay.ring
        held = []
        for lane, (low, stop) in enumerate(zip(ring.intervals()[0], ring.cursor - 1, strict=True)):
            rows = torch.arange(int(low), max(int(low), int(stop)), device=ring.device)
            held.append(rows[~ring.last.take(ring.cells(torch.full_like(rows, lane), rows))])
        count = min(len(rows) for rows in held)
        row = torch.stack([rows[len(rows) - count :] for rows in held], 1)
        return torch.arange(len(held), device=ring.device).expand_as(row), row

    def _observed(self, later: int) -> Any:
        lane, row = self._places()
        obs = observations_at(self.replay.ring, lane.flatten(), row.flatten() + later)
        arrays = {key: value.reshape(*row.shape, *value.shape[1:]).cpu().numpy() for key, value in obs.items()}
        return as_observation(arrays, self.model.observation_space)

    def _after(self, column: Tensor) -> Array:
        lane, row = self._places()
        values: Array = column.take(self.replay.ring.cells(lane, row + 1)).float().cpu().numpy()
        return values

    @property
    def observations(self) -> Any:
        return self._observed(0)

    @property
    def next_observations(self) -> Any:
        return self._observed(1)

    @property
    def actions(self) -> Array:
        lane, row = self._places()
        actions = self._scaled(self.replay.ring.actions_at(self.replay.ring.cells(lane, row).flatten())).cpu().numpy()
        started: Array = actions if isinstance(self.action_space, BoxActions) else actions + self.action_space.start
        return started.reshape(*row.shape, -1)

    @property
    def rewards(self) -> Array:
        return self._after(self.replay.ring.reward)

    @property
    def dones(self) -> Array:
        return self._after(self.replay.ring.last)

    @property
    def timeouts(self) -> Array:
        return self._after(self.replay.ring.last & ~self.replay.ring.terminal)

    def _scaled(self, action: Tensor) -> Tensor:
        """Returns actions of a Box between -1 and 1, others unchanged."""
        if not isinstance(self.action_space, BoxActions):
            return action
        low, high = (
            torch.from_numpy(bound).to(action.device) for bound in (self.action_space.low, self.action_space.high)
        )
        return 2.0 * (action - low) / (high - low) - 1.0

    def __deepcopy__(self, memo: dict[int, object]) -> ReplayArrays:
        """Returns the arrays, which stay as they are while the model learns on."""
        return ReplayArrays(*(getattr(self, name) for name in ReplayArrays._fields))

    def extend(self, *columns: Any) -> None:
        """Stores transitions one after the other: `add` for each entry of its arguments; or a tick of this library, `Rows`."""
        if len(columns) == 1:
            self.replay.extend(columns[0])
            return
        for transition in zip(*columns, strict=True):
            self.add(*transition)

    @property
    def device(self) -> Any:
        return self.replay.ring.device

    def add(
        self, obs: object, next_obs: object, action: object, reward: object, done: object, infos: Sequence[Info]
    ) -> None:
        """Stores one transition of each environment, such as those of demonstrations; the next `learn` resets the environments.

        A transition whose `obs` is the `next_obs` before it takes one row of the buffer, another takes two.

        Args:
            obs: observations as the environment of the model returns them, `[n_envs, ...]`, or a dict of them.
            next_obs: observations after the step; at the end of an episode the last of it, not the first of the next.
            action: actions.
            reward: rewards `[n_envs]`.
            done: True where the episode ends.
            infos: with `TimeLimit.truncated` where it ends by a time limit, which is no termination.

        Raises:
            ConfigurationError: `learn` is running, or rows have frame stacks, masks or sequences.
        """
        self._check_add()
        before, after, taken = self._observations(obs), self._observations(next_obs), self._action_rows(action)
        ended = np.asarray(done, np.bool_).reshape(self.n_envs)
        terminal = ended & ~np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        rewards = np.asarray(reward, np.float32).reshape(self.n_envs)
        none, zero = np.zeros(self.n_envs, np.bool_), np.zeros(self.n_envs, np.float32)
        begins = ~self._continues(before)
        if begins.any():
            first = Slot(before, zero, zero, none, none, begins, full=bool(begins.all()))
            self.replay.extend(Rows(None, (first,), none, 0, departed=none))
        self.replay.extend(Rows(taken, (Slot(after, rewards, rewards, terminal, ended, ~none),), ~none, 0))
        if self.model.collector is not None:
            self.model.collector.drop_latest()  # the open rows are no longer those of the environment

    def _check_add(self) -> None:
        if self.model.learning:
            raise ConfigurationError(
                "replay_buffer.add must be called between two learns, got one during learn, which stores its own rows. Call it "
                "before or after learn."
            )
        ring = self.replay.ring
        for name, is_there in (
            ("frame stacks", ring.frame_stack > 1),
            ("action masks", ring.mask is not None),
            ("sequences", isinstance(self.replay.view, SequenceView)),
        ):
            if is_there:
                raise ConfigurationError(
                    f"rows of the buffer must be single transitions for replay_buffer.add, got {name}. Call replay.extend(rows) with "
                    f"the rows of a stream."
                )

    def _observations(self, obs: object) -> Observation:
        spaces = flatten_space(self.model.blueprint.observation_space)
        found = flatten_observation(obs, spaces)
        return {
            key: np.array(found[key], leaf_dtype(space)).reshape(self.n_envs, *leaf_shape(space))
            for key, space in spaces.items()
        }

    def _action_rows(self, action: object) -> ActionArray:
        """Returns actions as the buffer stores them: from 0, or in the units of the environment."""
        actions = np.asarray(action).reshape(self.n_envs, *self.action_space.shape)
        if isinstance(self.action_space, BoxActions):
            low, high = self.action_space.low, self.action_space.high
            scaled: ActionArray = (low + 0.5 * (actions + 1.0) * (high - low)).astype(np.float32)
            return scaled
        return actions - self.action_space.start

    def _continues(self, obs: Observation) -> BoolArray:
        """Returns the environments `[n_envs]` whose newest row has these observations and ends no episode."""
        ring = self.replay.ring
        if not ring.cursor.all():
            return np.zeros(self.n_envs, np.bool_)
        newest = self.replay.open_observation()
        lanes = torch.arange(self.n_envs, device=ring.device)
        last = ring.last.take(ring.cells(lanes, torch.from_numpy(ring.cursor - 1).to(ring.device)))
        same: BoolArray = ~last.cpu().numpy()
        for key, value in obs.items():
            same &= (newest[key].cpu().numpy() == value).reshape(self.n_envs, -1).all(1)
        return same

    def sample(self, batch_size: int, env: EnvLike = None) -> ReplayBufferSamples | DictReplayBufferSamples:
        """Returns transitions with `observations`, `actions` `[N, 1]`, `next_observations`, `dones`, `rewards` and `discounts`.

        Args:
            batch_size: N.
            env: not used: observations are those that the environment returned.

        Raises:
            ConfigurationError: the model is recurrent, or nothing is stored yet.
        """
        if isinstance(self.replay.view, SequenceView):
            raise ConfigurationError(
                "replay_buffer.sample must be called on a feed-forward model, got sequences. Call replay.sample(n)."
            )
        batch = self.replay.sample(batch_size)
        space = self.model.observation_space
        dones = (batch.discount == 0).float() if self.gamma else batch.discount.new_zeros(len(batch.discount))
        action = batch.action if batch.action.dim() > 1 else batch.action.unsqueeze(-1)
        discounts = batch.discount.where(dones == 0, batch.discount.new_tensor(self.gamma))
        columns = (
            self._scaled(action),
            as_observation(batch.next_obs, space),
            *(column.unsqueeze(-1) for column in (dones, batch.return_, discounts)),
        )
        kind: Any = DictReplayBufferSamples if isinstance(space, spaces.Dict) else ReplayBufferSamples
        samples: ReplayBufferSamples | DictReplayBufferSamples = kind(as_observation(batch.obs, space), *columns)
        return samples


class NStepView(ReplayView):
    """View of a replay buffer of n-step transitions."""


class DictView(ReplayView):
    """View of a replay buffer with Dict observations."""


class HindsightView(DictView):
    """View of a replay buffer with hindsight."""


for ours, theirs in (
    (ReplayView, TheirReplayBuffer),
    (NStepView, NStepReplayBuffer),
    (DictView, DictReplayBuffer),
    (HindsightView, HerReplayBuffer),
):
    theirs.register(ours)  # for isinstance


def view_of(model: ModelLike) -> ReplayView:
    """Returns the view of a model's replay buffer, an instance of the class that Stable-Baselines3 takes for it."""
    if model.replay.relabeler is not None:
        return HindsightView(model)
    if isinstance(model.observation_space, spaces.Dict):
        return DictView(model)
    return (NStepView if model.replay.ring.n_steps > 1 else ReplayView)(model)


class RolloutArrays:
    """View of a rollout: arrays `[n_steps, n_envs, ...]` to read in `_on_rollout_end`.

    A step in which the environments only begin again, because an earlier `learn` ended within the rollout, leaves zeros at the end.

    Args:
        model: the model of the rollout.
    """

    def __init__(self, model: ModelLike) -> None:
        self.model = model
        self.rollout = model.rollout

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"rollout_buffer has no attribute {name!r}: the training loop fills and reads the rollout. Read its arrays in "
            f"_on_rollout_end, or change the loss as the page 'Adding a variant' shows."
        )

    @property
    def buffer_size(self) -> int:
        """Steps of a rollout in each environment."""
        return int(self.rollout.n_steps)

    @property
    def n_envs(self) -> int:
        return int(self.rollout.ring.num_lanes)

    @property
    def full(self) -> bool:
        """True in `_on_rollout_end`."""
        return bool(self.rollout.is_complete)

    @property
    def pos(self) -> int:
        """Steps that are stored in each environment."""
        return int(self.rollout.ticks)

    def size(self) -> int:
        """Returns the number of stored steps in each environment."""
        return self.pos

    def _shaped(self, values: Tensor) -> Array:
        """Returns values of all places `[n_steps * n_envs, ...]` as an array; zeros where there is no sample."""
        if not self.full:
            raise ConfigurationError(
                f"rollout_buffer must be read when the rollout is full, got {self.pos} of {self.buffer_size} steps. Read it in "
                f"_on_rollout_end of a callback."
            )
        weight = self.rollout.view.weight[:-1].view(-1, *[1] * (values.dim() - 1))
        kept = values.where(weight > 0, torch.zeros_like(values))
        return kept.cpu().numpy().reshape(self.buffer_size, self.n_envs, *values.shape[1:])

    def _cells(self, later: int = 0) -> Tensor:
        view = self.rollout.view
        cells: Tensor = view.ring.cells(view.lane[:-1], view.row[:-1] + later)
        return cells

    @property
    def observations(self) -> Any:
        """Observations, or a dict of them."""
        view = self.rollout.view
        obs, _ = view.observe(view.lane[:-1], view.row[:-1])
        arrays = {key: self._shaped(value) for key, value in obs.items()}
        return as_observation(arrays, self.model.observation_space)

    @property
    def actions(self) -> Array:
        """Actions `[n_steps, n_envs, D]`, those of a Gaussian before they were clipped to the bounds of the environment."""
        if "u" in (extra := self.rollout.view.extra):
            drawn = self._shaped(to_actions(self.model.policy.action_head, extra["u"][:-1]))
            return drawn.reshape(self.buffer_size, self.n_envs, -1)
        stored = self._shaped(self.rollout.ring.actions_at(self._cells()))
        actions: Array = stored + self.model.predictor.actions.start
        return actions.reshape(self.buffer_size, self.n_envs, -1)

    @property
    def rewards(self) -> Array:
        return self._shaped(self.rollout.ring.reward.take(self._cells(1)))

    @property
    def episode_starts(self) -> Array:
        """1 where an episode starts."""
        row = self.rollout.view.row[:-1]
        starts = (row == 0) | self.rollout.ring.last.take(self._cells(-1))
        return self._shaped(starts.float())

    @property
    def values(self) -> Array:
        return self._shaped(self.rollout.view.extra["value"][:-1])

    @property
    def log_probs(self) -> Array:
        return self._shaped(self.rollout.view.extra["log_prob"][:-1])

    @property
    def returns(self) -> Array:
        """Lambda-returns, the targets of the values."""
        return self._shaped(self.rollout.view.return_[:-1])

    @property
    def advantages(self) -> Array:
        difference: Array = np.subtract(self.returns, self.values)
        return difference
