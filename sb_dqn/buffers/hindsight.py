"""Hindsight experience replay: sampled transitions of goal-conditioned tasks with goals that were achieved later.

Andrychowicz et al. 2017, *Hindsight Experience Replay*, arXiv 1707.01495.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.buffers.n_step_transitions import TransitionView
from sb_dqn.buffers.ring import Ring
from sb_dqn.checks import check_choice, check_int, set_fields
from sb_dqn.errors import ConfigurationError, EnvironmentFault
from sb_dqn.types import Array, Batch, EnvLike, Info, IntArray

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
STRATEGIES = ("future", "final", "episode")
UNENDED = np.iinfo(np.int64).max
"""Last row of an episode that has not ended."""

RewardFunction = Callable[[Array, Array, list[Info]], Any]
"""From achieved goals `[n, *shape]`, desired goals `[n, *shape]` and n empty infos to rewards `[n]`."""


@dataclass(frozen=True)
class Hindsight:
    """Settings of hindsight experience replay.

    Args:
        n_sampled_goal: transitions with another goal for each one with its own, k >= 1: a share k / (k + 1) of each batch.
        goal_selection_strategy: rows whose achieved goal may be the other goal: "future", those after the transition in its
            episode; "final", the last of its episode; "episode", all of its episode.
    """

    n_sampled_goal: int = 4
    goal_selection_strategy: str = "future"

    def __post_init__(self) -> None:
        set_fields(self, n_sampled_goal=check_int("hindsight['n_sampled_goal']", self.n_sampled_goal, 1))
        check_choice("hindsight['goal_selection_strategy']", self.goal_selection_strategy, STRATEGIES)

    @property
    def share(self) -> float:
        """Share of the transitions that get another goal."""
        return self.n_sampled_goal / (self.n_sampled_goal + 1)


class EpisodeBounds:
    """First and last row of the episode of each stored row.

    Args:
        ring: the ring, in memory that the CPU can address.
    """

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._last_flags = ring.last.numpy()
        self.reset()

    def reset(self) -> None:
        """Clears everything, so that `refresh` reads all rows; called after rows were loaded."""
        ring = self.ring
        self._first = np.zeros((ring.rows, ring.num_lanes), np.int64)
        self._last = np.full((ring.rows, ring.num_lanes), UNENDED)
        self._read = np.zeros(ring.num_lanes, np.int64)  # rows of each lane that were read
        self._begin = np.zeros(ring.num_lanes, np.int64)  # first row of the episode under way
        self._oldest = np.zeros(ring.num_lanes, np.int64)

    def refresh(self) -> None:
        """Reads the rows that have departed since the last call; only then it is final whether they are the last ones."""
        self._oldest, _ = self.ring.intervals()
        for lane in np.flatnonzero(self.ring.cursor - 1 > self._read):
            self._read_lane(int(lane))

    def _read_lane(self, lane: int) -> None:
        stored, lanes = self.ring.rows, self.ring.num_lanes
        oldest, stop = int(self._oldest[lane]), int(self.ring.cursor[lane]) - 1
        begin = int(self._begin[lane]) if oldest <= self._read[lane] else oldest
        rows = np.arange(max(int(self._read[lane]), oldest), stop)
        for end in rows[self._last_flags[rows % stored * lanes + lane]]:
            self._mark(lane, begin, int(end) + 1, int(end))
            begin = int(end) + 1
        self._mark(lane, begin, stop, UNENDED)
        self._read[lane], self._begin[lane] = stop, begin

    def _mark(self, lane: int, begin: int, stop: int, last: int) -> None:
        """Records the episode of the rows from `begin` up to `stop`, as far as they are stored."""
        slots = np.arange(max(begin, int(self._oldest[lane])), stop) % self.ring.rows
        self._first[slots, lane], self._last[slots, lane] = begin, last

    def find(self, lane: IntArray, row: IntArray) -> tuple[IntArray, IntArray]:
        """Returns the first and the last stored row of the episodes of rows `[N]` of lanes `[N]` that have departed."""
        slot = row % self.ring.rows
        first = np.maximum(self._first[slot, lane], self._oldest[lane])
        return first, np.minimum(self._last[slot, lane], self.ring.cursor[lane] - 1)


class GoalRelabeler:
    r"""Replaces the goals of a share of the transitions by goals that were achieved in the same episode.

    .. math:: g' = a(s_j), \quad r'_k = r(a(s_k), g'), \quad j \sim U\{t + 1, \dots, T\} \text{ for "future"}

    a is the achieved goal of an observation, k runs over the n steps of the transition, and T is the last row of the episode,
    or the newest one. Terminations stay as they were.

    Args:
        view: reads the transitions from a ring with the keys "achieved_goal" and "desired_goal", in memory that the CPU can
            address.
        settings: share and choice of the goals.
        reward: reward function of the environment.

    Raises:
        ConfigurationError: the observations have no goals, or goals of different shapes, or are stacked frames.
    """

    noise_rows = 2
    """Uniform numbers for each transition."""

    def __init__(self, view: TransitionView, settings: Hindsight, reward: RewardFunction) -> None:
        ring = view.ring
        shapes = {key: tuple(column.shape[1:]) for key, column in ring.obs.items()}
        goals = [shapes.get(key) for key in (ACHIEVED, DESIRED)]
        if None in goals or goals[0] != goals[1] or ring.stacked_keys & {ACHIEVED, DESIRED}:
            raise ConfigurationError(
                f"the observation space must be a Dict with {ACHIEVED!r} and {DESIRED!r} of one shape with hindsight, and without "
                f"frame stacks of them, got {shapes}. Use a goal-conditioned environment, or remove hindsight."
            )
        self.view = view
        self.ring = ring
        self.settings = settings
        self.reward = reward
        self.episodes = EpisodeBounds(ring)

    def relabel(self, batch: Batch, noise: Tensor) -> Batch:
        """Returns a batch in which a share of the transitions has other goals and the rewards for them.

        Args:
            batch: the transitions, in memory that the CPU can address.
            noise: `[2, N]` uniform in [0, 1): which transitions, and which goals.

        Raises:
            ConfigurationError: the reward function returns another shape.
            EnvironmentFault: it returns NaN or infinity.
        """
        which, position = noise.numpy()
        chosen = torch.from_numpy((which < self.settings.share) & (batch.weight.numpy() > 0))
        lane, row = batch.place
        source = torch.from_numpy(self._goal_rows(lane.numpy(), row.numpy(), position))
        goal = self.ring.obs[ACHIEVED].index_select(0, self.ring.cells(lane, source))
        return_ = batch.return_.clone()
        if chosen.any():
            return_[chosen] = self._returns(lane[chosen], row[chosen], goal[chosen])
        here = chosen.view(-1, *[1] * (goal.dim() - 1))
        obs, next_obs = (
            {**each, DESIRED: torch.where(here, goal.to(each[DESIRED].dtype), each[DESIRED])}
            for each in (batch.obs, batch.next_obs)
        )
        return batch._replace(obs=obs, next_obs=next_obs, return_=return_)

    def _goal_rows(self, lane: IntArray, row: IntArray, position: npt.NDArray[np.float64]) -> IntArray:
        """Returns the rows `[N]` whose achieved goals are the new goals, by uniform numbers `[N]`."""
        first, last = self.episodes.find(lane, row)
        if self.settings.goal_selection_strategy == "final":
            return last
        earliest = (row if self.settings.goal_selection_strategy == "future" else first) + 1
        found: IntArray = np.minimum(earliest + (position * (last + 1 - earliest)).astype(np.int64), last)
        return found

    def _returns(self, lane: Tensor, row: Tensor, goal: Tensor) -> Tensor:
        """Returns the n-step returns `[N]` of the transitions at rows `[N]` for other goals `[N, *shape]`."""
        steps = self.view.n_steps
        ahead = self.ring.cells(lane[:, None], row[:, None] + torch.arange(1, steps + 1))
        achieved = self.ring.obs[ACHIEVED].index_select(0, ahead.flatten())
        rewards = self._rewards(achieved.numpy(), goal.repeat_interleave(steps, 0).numpy())
        return self.view.accumulate(ahead, self.view.scale(rewards).view(-1, steps))[0]

    def _rewards(self, achieved: Array, goal: Array) -> Tensor:
        count = len(goal)
        rewards = np.asarray(self.reward(achieved, goal, [{} for _ in range(count)]), np.float32)
        if rewards.shape != (count,):
            raise ConfigurationError(
                f"compute_reward must return one reward for each of {count} goals, got shape {rewards.shape}. Let it work on "
                f"batches, for example by np.linalg.norm(achieved - desired, axis=-1)."
            )
        if not np.isfinite(rewards).all():
            raise EnvironmentFault(
                "compute_reward must return finite rewards, got NaN or infinity. Fix the environment."
            )
        return torch.from_numpy(rewards)


class GoalRewards:
    """`compute_reward` of an environment of a stream, with rewards clipped where the stream clips them.

    It is that of lane 0 where this process steps it, else that of one more environment, which is made and reset for it. That one is
    closed by `close`, with this object, or when the process ends.

    Args:
        stream: the environments.

    Raises:
        ConfigurationError: the environment has no such method, or no further one can be made.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._function: Any = None
        self._end: Callable[[], object] | None = None
        self._open()

    def __call__(self, achieved: Array, desired: Array, infos: list[Info]) -> Any:
        """Returns rewards `[n]`, see `RewardFunction`."""
        if self._function is None:
            self._open()
        try:
            rewards = self._function(achieved, desired, infos)
        except Exception as error:
            raise EnvironmentFault(
                f"compute_reward(achieved_goal, desired_goal, info) must return rewards for goals of shape {achieved.shape} and a "
                f"list of {len(infos)} empty infos, got {type(error).__name__}: {error}. Fix the environment."
            ) from error
        return np.sign(rewards) if self._stream.options.clip_reward else rewards

    def close(self) -> None:
        """Closes the environment that was made; the next call makes another one."""
        if self._end is not None:
            self._end()
            self._function = None

    def _open(self) -> None:
        env, is_made = self._stream.one_environment()
        if is_made:
            self._end = weakref.finalize(self, _close, env, os.getpid())
            env.reset(seed=0)  # the reward may read what a reset sets
        found = env.has_wrapper_attr("compute_reward")
        self._function = env.get_wrapper_attr("compute_reward") if found else None
        if self._function is None:
            raise ConfigurationError(
                f"the environment must have compute_reward(achieved_goal, desired_goal, info) with hindsight, got {env} without it. "
                f"Use a goal-conditioned environment, or remove hindsight."
            )


def _close(env: EnvLike, pid: int) -> None:
    """Closes an environment in the process that made it, not in a fork of it that ends."""
    if os.getpid() == pid:
        env.close()
