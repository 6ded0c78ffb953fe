"""Recorded episodes as an environment: off-policy algorithms learn from a dataset by the same loop as from a game."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from typing_extensions import Self

from sb_dqn.checks import check_int
from sb_dqn.envs.action_checks import make_action_check
from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.streams.base import Stream, empty_infos
from sb_dqn.errors import CheckpointError, ConfigurationError, SpaceError
from sb_dqn.spaces import (
    Actions,
    ActionShape,
    Space,
    actions_of,
    choices_of,
    flatten_observation,
    flatten_space,
    leaf_dtype,
    leaf_shape,
    with_dicts,
)
from sb_dqn.types import ActionArray, Array, Env, FloatArray, Observation, Rows, Slot, State


class Recording(NamedTuple):
    """One episode of T steps, as rows store it."""

    obs: Observation
    """Observations `[T + 1, *shape]` by key."""
    action: ActionArray
    """Actions `[T, ...]`, 0-based."""
    reward: FloatArray
    """Rewards `[T]`."""
    terminated: bool
    """True if the episode terminated; False if it was truncated."""


class RecordedEpisodes:
    """Environment that plays recorded episodes: the actions of the policy are ignored, the recorded ones are stored.

    `learn` counts recorded steps as env steps, so `learning_starts=num_steps` first stores the whole dataset, and each further step
    stores one more and pays for updates. The first pass is in the order of the dataset, further ones are in random orders.

    Args:
        episodes: objects with `observations` `[T + 1, ...]` (for a Dict space a dict), `actions`, `rewards`, `terminations` and
            `truncations` `[T, ...]`, in the form of `minari.EpisodeData`. An episode that neither terminates nor is truncated at
            its end counts as truncated.
        observation_space: space of one observation.
        action_space: space of one action.
        num_envs: number of lanes, which play different episodes at the same time.

    Raises:
        ConfigurationError: there are no episodes, or the arrays of one do not fit together.
        SpaceError: an observation or action is not of its space.
    """

    def __init__(
        self,
        episodes: Iterable[Any],
        observation_space: Space,
        action_space: Space,
        num_envs: int = 1,
    ) -> None:
        self.num_envs = check_int("num_envs", num_envs, 1)
        self.single_observation_space = observation_space = with_dicts(observation_space)
        self.single_action_space = action_space
        self.metadata: dict[str, Any] = {}
        leaves = flatten_space(observation_space)
        actions = actions_of(action_space)
        self.episodes = [
            _read(number, episode, leaves, action_space, actions) for number, episode in enumerate(episodes)
        ]
        if not self.episodes:
            raise ConfigurationError("episodes must have at least one episode, got none. Record or download some.")
        self.num_steps = sum(len(episode.action) for episode in self.episodes)
        """Number of steps of all episodes."""
        self._rng = np.random.default_rng(0)
        self._order: list[int] = list(range(len(self.episodes)))
        self.playing = np.zeros(self.num_envs, np.int64)
        """Number of the episode in each lane, `[B]`."""
        self.at = np.zeros(self.num_envs, np.int64)
        """Number of the current observation in each lane, `[B]`."""

    @classmethod
    def record(
        cls, env: Env, policy: Callable[[Any], Any], num_steps: int, seed: int | None = None, num_envs: int = 1
    ) -> Self:
        """Plays whole episodes until they have `num_steps` steps or more, and returns them.

        Args:
            env: environment whose episodes end.
            policy: function from an observation to an action of the action space, such as `lambda obs: model.predict(obs)[0]`.
            num_steps: number of steps, >= 1.
            seed: seed of the first reset; None continues with the env's own random generator.
            num_envs: number of lanes that play the episodes.

        Raises:
            ConfigurationError: `env` is no single environment, or `num_steps` is out of range.
            SpaceError: an observation or action is not of its space.
        """
        if not isinstance(env, gymnasium.Env):
            raise ConfigurationError(f"env must be one environment, got {env!r}. Pass gymnasium.make(id), for example.")
        leaves = flatten_space(with_dicts(env.observation_space))
        episodes, left = [], check_int("num_steps", num_steps, 1)
        while left > 0:
            episodes.append(_play(env, policy, leaves, seed))
            left, seed = left - len(episodes[-1].rewards), None
        return cls(episodes, env.observation_space, env.action_space, num_envs)

    def begin(self, seed: int | None) -> None:
        """Starts the next episode in every lane; with a seed, begins with the first one again."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
            self._order = list(range(len(self.episodes)))
        for lane in range(self.num_envs):
            self.start_episode(lane)

    def start_episode(self, lane: int) -> None:
        """Starts the next episode in a lane."""
        if not self._order:
            self._order = self._rng.permutation(len(self.episodes)).tolist()
        self.playing[lane], self.at[lane] = self._order.pop(0), 0

    def state_dict(self) -> State:
        """Returns the positions in the dataset, without the dataset."""
        return {
            "lengths": [len(episode.action) for episode in self.episodes],
            "order": list(self._order),
            "playing": self.playing.tolist(),
            "at": self.at.tolist(),
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: State) -> None:
        """Restores a `state_dict`.

        Raises:
            CheckpointError: the state is of another dataset, or of another number of lanes.
        """
        lengths = [len(episode.action) for episode in self.episodes]
        if list(state["lengths"]) != lengths or len(state["playing"]) != self.num_envs:
            raise CheckpointError(
                f"the dataset must have the episodes and lanes of the checkpoint, {len(state['lengths'])} episodes of "
                f"{sum(state['lengths'])} steps in {len(state['playing'])} lanes, got {len(lengths)} of {sum(lengths)} in "
                f"{self.num_envs}. Use the same dataset."
            )
        self._order = list(state["order"])
        self.playing[:], self.at[:] = state["playing"], state["at"]
        self._rng.bit_generator.state = state["rng"]

    def close(self) -> None:
        """Does nothing; the episodes stay in memory with this object."""


class RecordedStream(Stream):
    """Stream of `RecordedEpisodes`: the departures of a tick have the recorded actions."""

    chooses = False
    env: RecordedEpisodes

    def __init__(self, env: RecordedEpisodes, options: StreamOptions) -> None:
        if options.action_mask is not None:
            raise ConfigurationError(
                f"action_mask must be None for recorded episodes, which have no masks, got {options.action_mask!r}. Leave it out."
            )
        super().__init__(env, env.num_envs, env.single_observation_space, env.single_action_space, options)

    def _observations(self) -> Observation:
        env = self.env
        rows = [env.episodes[episode].obs for episode in env.playing.tolist()]
        return {
            key: np.stack([obs[key][at] for obs, at in zip(rows, env.at.tolist(), strict=True)]) for key in self._leaves
        }

    def _reset(self, seed: int | None) -> Rows:
        self.env.begin(seed)
        return self._first_rows(self._observations(), None)

    def _advance(self, action: ActionArray) -> Rows:
        env, resets = self.env, self._last
        recorded = np.zeros_like(action)
        score = np.zeros(self.num_envs, np.float32)
        terminal, last = np.zeros((2, self.num_envs), np.bool_)
        for lane in range(self.num_envs):
            if resets[lane]:
                env.start_episode(lane)
                continue
            episode, at = env.episodes[env.playing[lane]], env.at[lane]
            recorded[lane], score[lane] = episode.action[at], episode.reward[at]
            env.at[lane] += 1
            last[lane] = at + 1 == len(episode.action)
            terminal[lane] = last[lane] and episode.terminated
        self._last = last
        slot = Slot(self._observations(), self._clip(score), score, terminal, last, self._all)
        steps = int(np.count_nonzero(~resets))
        return Rows(recorded, (slot,), ~resets, steps, partial(empty_infos, self.num_envs))


def _play(env: Env, policy: Callable[[Any], Any], leaves: Mapping[str, Space], seed: int | None) -> SimpleNamespace:
    """Returns an episode in the form that `RecordedEpisodes` takes; the env may change its arrays afterwards."""
    observation, steps, ended = env.reset(seed=seed)[0], [], False
    observations = [_copied(observation, leaves)]
    while not ended:
        action = policy(observation)
        recorded = np.array(action)
        observation, reward, terminated, truncated, _ = env.step(action)
        observations.append(_copied(observation, leaves))
        steps.append((recorded, reward, terminated, truncated))
        ended = terminated or truncated
    actions, rewards, terminations, truncations = map(np.array, zip(*steps, strict=True))
    return SimpleNamespace(
        observations={key: np.stack([each[key] for each in observations]) for key in leaves},
        actions=actions,
        rewards=rewards,
        terminations=terminations,
        truncations=truncations,
    )


def _copied(observation: object, leaves: Mapping[str, Space]) -> Observation:
    return {key: np.array(array) for key, array in flatten_observation(observation, leaves).items()}


def _read(number: int, episode: Any, leaves: Mapping[str, Space], action_space: Space, actions: Actions) -> Recording:
    """Checks an episode and returns it in the dtypes of rows."""
    reward = np.asarray(episode.rewards, np.float32)
    ends = [np.asarray(flags, np.bool_) for flags in (episode.terminations, episode.truncations)]
    length = len(reward)
    if reward.ndim != 1 or not length or any(flags.shape != reward.shape for flags in ends):
        raise ConfigurationError(
            f"rewards, terminations and truncations of episode {number} must have one entry per step, got shapes {reward.shape}, "
            f"{ends[0].shape} and {ends[1].shape}. Give arrays of one length, >= 1."
        )
    if (ends[0] | ends[1])[:-1].any():
        raise ConfigurationError(
            f"episode {number} must end at its last step, {length - 1}, got an end at step {int((ends[0] | ends[1]).argmax())}. "
            f"Split it into several episodes."
        )
    obs = _observations(number, flatten_observation(episode.observations, leaves), leaves, length)
    if not np.isfinite(reward).all():
        raise SpaceError(f"rewards of episode {number} must be finite, got NaN or infinity. Correct the dataset.")
    return Recording(
        obs, _actions(number, np.asarray(episode.actions), action_space, actions, length), reward, bool(ends[0][-1])
    )


def _observations(number: int, found: Observation, leaves: Mapping[str, Space], length: int) -> Observation:
    obs = {}
    for key, leaf in leaves.items():
        shape, dtype, choices = leaf_shape(leaf), leaf_dtype(leaf), choices_of(leaf)
        array = found.get(key, np.zeros(0))
        if array.shape != (length + 1, *shape) or not np.can_cast(array.dtype, dtype, "same_kind"):
            raise SpaceError(
                f"observations {key!r} of episode {number} must have shape {(length + 1, *shape)}, one more than steps, and dtype "
                f"{dtype}, got {array.shape} and {array.dtype}. Correct the dataset or the space."
            )
        obs[key] = array.astype(dtype, copy=False)
        kept = dtype.kind == "f" or (obs[key] == array).all()
        if not kept or not (choices is None or choices.contain(obs[key]).all()):
            raise SpaceError(
                f"observations {key!r} of episode {number} must be in {leaf}, got numbers from {array.min()} to "
                f"{array.max()}. Correct the dataset or the space."
            )
        if dtype.kind == "f" and not np.isfinite(obs[key]).all():
            raise SpaceError(
                f"observations {key!r} of episode {number} must be finite, got NaN or infinity. Correct them."
            )
    return obs


def _actions(number: int, array: Array, space: Space, actions: Actions, length: int) -> ActionArray:
    offset = actions.start if isinstance(actions, ActionShape) else 0
    try:
        return make_action_check(space, actions, length).check(array - offset)
    except SpaceError as error:
        raise SpaceError(
            f"actions of episode {number} must be of the action space, got an error (its steps count as lanes). {error}"
        ) from None
