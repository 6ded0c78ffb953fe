"""Base class of the environment streams: checks of observations, lives, masks, checkpoints and errors."""

from __future__ import annotations

import copy
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from sb_dqn.checks import check_int
from sb_dqn.envs.action_checks import SMALL_SIZE, make_action_check
from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.streams.action_masks import make_mask_reader
from sb_dqn.envs.vector.env_checks import with_fix
from sb_dqn.envs.vector.env_state import NoEnvState, env_state, restored_env
from sb_dqn.envs.vector.worker_processes import end_workers, raising_lanes, worker_failures
from sb_dqn.errors import ConfigurationError, EnvironmentFault, SpaceError
from sb_dqn.spaces import (
    Space,
    actions_of,
    choices_of,
    flatten_observation,
    flatten_space,
    leaf_dtype,
    leaf_shape,
    with_dicts,
)
from sb_dqn.types import (
    ActionArray,
    Array,
    ArraySpec,
    Blueprint,
    BoolArray,
    EnvLike,
    FloatArray,
    Info,
    IntArray,
    Observation,
    Rows,
    Slot,
    State,
    any_true,
)

FIRE = 1
"""Index of FIRE in every ALE action set that has it."""
ZERO = np.float32(0)


class Stream(ABC):
    """Base class of the streams of rows from an environment: the same interface for every kind of environment and autoreset
    mode."""

    repeated_frames = 1
    """Number of observations in which each frame occurs where the environment's own stacks are stored whole."""
    chooses = True
    """False if the actions of `step` are ignored, and recorded ones are in the rows."""

    def __init__(
        self,
        env: EnvLike,
        num_envs: int,
        observation_space: Space,
        action_space: Space,
        options: StreamOptions,
        frame_channels: int = 1,  # of a single frame `[C, H, W]` where the library stacks frames
    ) -> None:
        check_int("frame_stack", options.frame_stack, 1)
        observation_space = with_dicts(observation_space)
        self.env = env
        self.num_envs = num_envs
        self.options = options
        self.observation_space = observation_space
        self.action_space = action_space
        self.action_shape = actions_of(action_space)
        """Kind and shape of one action; the choices passed to `step` are 0-based."""
        if options.fire_after_life_loss and (self.action_shape.shape or not self.action_shape.num_actions):
            raise ConfigurationError(
                f"the action space must be Discrete with fire_after_life_loss=True, got {action_space}. Set "
                f"fire_after_life_loss=False in StreamOptions."
            )
        self.blueprint = Blueprint(
            stacked_space(observation_space, options.frame_stack, frame_channels),
            self.action_space,
            num_envs,
            options.frame_stack,
        )
        self.first_lane = 0
        """Number of the first lane in messages."""
        self.first_seed: int | None = None
        """Seed of the next `begin` without a seed; None afterwards."""
        self.copies = False
        """True if observations are copied, because the environment steps while rows are in use and may reuse its arrays."""
        leaves = flatten_space(observation_space)
        self._leaves = {key: ((num_envs, *leaf_shape(leaf)), leaf_dtype(leaf)) for key, leaf in leaves.items()}
        self._float_keys = [key for key, (_, dtype) in self._leaves.items() if dtype.kind == "f"]
        self._choices = {key: choices for key, leaf in leaves.items() if (choices := choices_of(leaf)) is not None}
        self._all = read_only(np.ones(num_envs, np.bool_))
        self._none = read_only(np.zeros(num_envs, np.bool_))
        self._action_check = make_action_check(action_space, self.action_shape, num_envs)
        self._mask_reader = make_mask_reader(options.action_mask, leaves, self.action_shape, num_envs)
        self._reads_lives = options.terminal_on_life_loss or options.fire_after_life_loss
        self._begun = False
        self._warned: set[str] = set()
        self._action: ActionArray | None = None
        self._clear()

    def _clear(self) -> None:
        """Clears the state of the episodes under way."""
        self._tick = 0
        self._last = self._none
        self._lives = np.zeros(self.num_envs, np.int64)
        self._fire: BoolArray | None = None

    @abstractmethod
    def _reset(self, seed: int | None) -> Rows:
        """Resets every lane of the env, with lane b seeded by `seed` + b.

        Returns `_first_rows` of checked observations (`_observe`), and of the infos where the env has masks.
        """

    @abstractmethod
    def _advance(self, action: ActionArray) -> Rows:
        """Steps the env with checked, 0-based actions and returns the rows that arrive.

        A subclass steps the lanes (actions as the env wants them: `_action_check.to_env`), checks what arrives (`_observe`,
        `_check_score`), clips rewards (`_clip`) and returns `Rows` of one slot, or of two where final and reset observations
        arrive in one step (`_two_slots`). In lanes with NEXT_STEP autoreset it sets `_last` to the ends of this step, and
        returns a reset row where `_last` was set. `RecordedStream` is the shortest example.
        """

    @property
    def leaves(self) -> dict[str, ArraySpec]:
        """Shape `[B, ...]` and dtype of each array of a slot's observation, by key."""
        return dict(self._leaves)

    @property
    def has_masks(self) -> bool:
        """True if every slot has a mask of legal actions."""
        return self._mask_reader is not None

    def number_lanes(self, first: int) -> None:
        """Numbers the lanes in messages from `first`, as within a model of which this stream has some lanes."""
        self.first_lane = first
        if self._mask_reader is not None:
            self._mask_reader.first_lane = first

    def begin(self, seed: int | None = None) -> Rows:
        """Resets every lane. `action` of the returned rows is None, since open rows are cut without a departure.

        Args:
            seed: seed of lane 0, >= 0; lane b gets seed + b where the env can be seeded. None continues with the env's
                own random generators.

        Raises:
            EnvironmentFault: the env raised, or returned NaN or infinity.
        """
        seed, self.first_seed = (self.first_seed if seed is None else seed), None
        seed = None if seed is None else check_int("seed", seed, 0)
        self._begun, self._action = False, None
        self._clear()
        rows = self._reset(seed)
        self._begun = True
        return rows

    def step(self, action: ActionArray) -> Rows:
        """Takes one step in every lane. A lane whose row was `last` is reset instead, and its action is ignored.

        Args:
            action: `[B]` integers, or `[B, D]` for branches, 0-based (the `start` of the space is added here); for a Box
                `[B, *shape]` numbers within its bounds.

        Raises:
            SpaceError: wrong dtype, shape or range; the env was not stepped.
            EnvironmentFault: the env raised, or returned NaN or infinity; the message names step and lane.
        """
        if not self._begun:
            raise ConfigurationError("step() must follow begin(), got step() first. Call begin() to reset every lane.")
        action = self._action_check.check(action)
        if self._fire is not None:
            action, self._fire = np.where(self._fire, FIRE, action), None
        self._tick += 1
        self._action = action
        try:
            return self._advance(action)
        except EnvironmentFault:
            self._begun = False  # the state of the lanes is unknown until the next begin()
            raise

    def state_dict(self, trust: bool = False) -> State:
        """Returns the state of stream and environment between two steps, from which a run continues exactly.

        Args:
            trust: pickle an environment that has no `state_dict()`.

        Raises:
            NoEnvState: the state is not available; the message gives the reason.
        """
        if not self._begun:
            raise NoEnvState("the environment stopped in the middle of a step")
        fire = None if self._fire is None else self._fire.copy()
        own = {"tick": self._tick, "last": self._last.copy(), "lives": self._lives.copy(), "fire": fire}
        return {**own, "env": env_state(self.env, trust)}

    def load_state_dict(self, state: State, trust: bool = False) -> None:
        """Restores a `state_dict`; the next call is `step`.

        Raises:
            CheckpointError: the state is of another environment, or requires `trust`.
        """
        self.env = restored_env(self.env, state["env"], trust)
        self._tick = int(state["tick"])
        self._fire = state["fire"]
        self._last = read_only(np.array(state["last"], np.bool_))
        self._lives = np.array(state["lives"], np.int64)
        self._begun = True
        self.first_seed = None

    def one_environment(self) -> tuple[EnvLike, bool]:
        """Returns the environment of lane 0, or one like it, and True if it was made for this call.

        Raises:
            ConfigurationError: the environment shows neither its lanes nor their factories.
        """
        vector: EnvLike = getattr(self.env, "unwrapped", self.env)
        if getattr(vector, "envs", None):  # all lanes in this process
            return vector.envs[0], False
        if getattr(vector, "env_fns", None):  # worker processes of gymnasium or Stable-Baselines3
            return vector.env_fns[0](), True
        raise ConfigurationError(
            f"env must be an id, an environment or a list of functions with hindsight, which calls compute_reward of an environment, "
            f"got {type(vector).__name__}. Pass one of these."
        )

    def close(self) -> None:
        """Closes the env."""
        self.env.close()

    def _kept(self, raw: Any) -> Any:
        """Returns what the env returned, as a copy with `copies`."""
        return copy.deepcopy(raw) if self.copies else raw

    def _observe(self, raw: object) -> Observation:
        """Returns a batched observation as a flat dict in the stored dtypes; raises an error on NaN and infinity."""
        obs = flatten_observation(raw, self._leaves)
        for key, (shape, dtype) in self._leaves.items():
            array = obs.get(key)
            if array is None or array.shape != shape:
                actual = "nothing" if array is None else str(array.shape)
                raise EnvironmentFault(
                    f"observation {key!r} at step {self._tick} must have shape {shape} (lanes first), got {actual}. Return "
                    f"observations of the observation space."
                )
            if array.dtype != dtype:
                self._check_dtype(key, array, dtype)
                obs[key] = array.astype(dtype)
        self._check_values(obs)
        return obs

    def _check_dtype(self, key: str, array: Array, dtype: np.dtype[Any], lane: str = "") -> None:
        """Raises an error where the conversion to `dtype` would change numbers, or the array holds none."""
        if array.dtype.kind not in ("biuf" if dtype.kind == "f" else "biu"):
            raise SpaceError(
                f"observation {key!r}{lane} at step {self._tick} must have the dtype of the observation space, {dtype}, got "
                f"{array.dtype}. Correct the space, or convert with gymnasium.wrappers.DtypeObservation."
            )
        if dtype.kind in "biu" and (array.astype(dtype) != array).any():
            raise EnvironmentFault(
                f"observation {key!r}{lane} at step {self._tick} must have the dtype of the observation space, {dtype}, got "
                f"{array.dtype} from {array.min()} to {array.max()}. Return observations of the observation space."
            )

    def _check_values(self, obs: Observation, lanes: BoolArray | None = None) -> None:
        """Raises an error on NaN, infinity and choices that a discrete space lacks, in `lanes`, by default in all lanes.

        The bounds of a Box are not checked, since many environments exceed them.
        """
        for key in self._float_keys:
            if not is_finite(obs[key]):
                finite = np.isfinite(obs[key]).reshape(self.num_envs, -1).min(axis=1)
                self._raise_not_finite(~finite if lanes is None else ~finite & lanes, f"observation {key!r}")
        for key, choices in self._choices.items():
            fits = choices.contain(obs[key])
            if not fits.all():
                wrong = ~fits.reshape(self.num_envs, -1).min(axis=1)
                for lane in np.flatnonzero(wrong if lanes is None else wrong & lanes).tolist():
                    raise EnvironmentFault(
                        f"observation {key!r} in lane {self.first_lane + lane} at step {self._tick} must be in "
                        f"{flatten_space(self.observation_space)[key]}, got {obs[key][lane].tolist()}. Return observations of the "
                        f"observation space."
                    )

    def _check_score(self, score: FloatArray) -> None:
        if not is_finite(score):
            self._raise_not_finite(~np.isfinite(score), "the reward")

    def _raise_not_finite(self, lanes: BoolArray, name: str) -> None:
        for lane in np.flatnonzero(lanes):
            raise EnvironmentFault(
                f"{name} in lane {self.first_lane + int(lane)} at step {self._tick} must be finite, got NaN or infinity. Fix the "
                f"environment."
            )

    def _fault(self, error: Exception) -> EnvironmentFault:
        """Returns the error to raise for one from inside the env; ends all workers where some died or hang."""
        failures = worker_failures(self.env, self._action, error)
        if failures is not None:
            end_workers(self.env)
            if failures.cause is not None:
                error.__cause__ = failures.cause
            step = f" at step {self._tick}" if self._tick else ""
            return EnvironmentFault(f"{failures.text}{step}; all workers were ended. {failures.fix}", crashed=True)
        when = f"at step {self._tick}" if self._tick else "while resetting"
        message = f"{error}" if isinstance(error, EnvironmentFault) else with_fix(f"{type(error).__name__}: {error}")
        lanes = [self.first_lane + lane for lane in raising_lanes(self.env)]
        if len(lanes) > 1:
            return EnvironmentFault(
                f"the environments in lanes {lanes} raised {when}, the last of them {message}", crashed=True
            )
        if lanes:
            return EnvironmentFault(f"the environment in lane {lanes[0]} raised {when}: {message}", crashed=True)
        return EnvironmentFault(f"the environment raised {when}: {message}", crashed=True)

    def _clip(self, score: FloatArray) -> FloatArray:
        return np.sign(score) if self.options.clip_reward else score

    def _lost_lives(self, lives: IntArray, resets: BoolArray, last: BoolArray) -> BoolArray:
        """Returns the lanes that lost a life but not the last one, and schedules FIRE where the episode continues.

        Reset rows count as no loss.
        """
        lost: BoolArray = (lives > 0) & (lives < self._lives) & ~resets
        self._lives = lives
        if self.options.fire_after_life_loss and any_true(due := lost & ~last):
            self._fire = due
        return lost

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, stacklevel=2)

    def _lives_in(self, infos: Sequence[Info], previous: Sequence[int]) -> IntArray:
        """Returns the lives in the info of each lane, those of `previous` where it has none."""
        if self._tick == 1 and not any("lives" in info for info in infos):
            raise self._no_lives()
        return np.array([info.get("lives", lives) for info, lives in zip(infos, previous, strict=True)], np.int64)

    def _no_lives(self) -> ConfigurationError:
        return ConfigurationError(
            "info must contain 'lives' with terminal_on_life_loss or fire_after_life_loss, got none. Set both to False in "
            "StreamOptions."
        )

    def _first_rows(self, obs: Observation, infos: object) -> Rows:
        """Returns the rows of a reset of every lane; for `infos` see `_mask`."""
        zero = np.zeros(self.num_envs, np.float32)
        mask = self._mask(obs, infos, self._none)
        slot = Slot(obs, zero, zero, self._none, self._none, self._all, mask=mask)
        return Rows(None, (slot,), self._none, 0, partial(empty_infos, self.num_envs))

    def _two_slots(
        self,
        obs: Observation,
        final: Observation | None,
        score: FloatArray,
        terminal: BoolArray,
        ended: BoolArray,
        infos: object,
        final_infos: object,
    ) -> tuple[Slot, ...]:
        """Returns a slot with the final rows of ended lanes, if any, and a slot with the returned observations.

        In ended lanes the second holds reset rows. The reward returned with a reset observation belongs to the final row.
        """
        if final is None:
            mask = self._mask(obs, infos, self._none)
            return (Slot(obs, self._clip(score), score, terminal, self._none, self._all, mask=mask),)
        final_score = np.where(ended, score, ZERO)
        open_score = np.where(ended, ZERO, score)
        final_terminal, open_terminal = terminal & ended, terminal & ~ended
        final_mask = self._mask(final, final_infos, final_terminal | ~ended)
        mask = self._mask(obs, infos, self._none)
        full = bool(ended.all())
        return (
            Slot(final, self._clip(final_score), final_score, final_terminal, ended, ended, full, final_mask),
            Slot(obs, self._clip(open_score), open_score, open_terminal, self._none, self._all, mask=mask),
        )

    def _mask(self, obs: Observation, infos: Any, final: BoolArray) -> BoolArray | None:
        """Returns the masks of legal actions, or None without masks; rows that are `final` need none.

        Args:
            infos: one info per lane; streams with batched infos override this method.
        """
        return None if self._mask_reader is None else self._mask_reader.from_infos(obs, infos, final, self._tick)

    def _of_lane(self, batched: Any, lane: int) -> Any:
        """Returns a copy of the observation of one lane, in the env's own structure."""
        is_dict = isinstance(self.observation_space, spaces.Dict)
        return lane_observation(batched, lane) if is_dict else np.array(batched[lane])

    def _final_rows(self, raws: Sequence[Any], ended: BoolArray) -> Observation:
        """Returns the final observations of ended lanes as one batch, with zeros in the other lanes."""
        batch = {key: np.zeros(shape, dtype) for key, (shape, dtype) in self._leaves.items()}
        for lane in np.flatnonzero(ended).tolist():
            obs = flatten_observation(raws[lane], self._leaves)
            for key, rows in batch.items():
                if key not in obs or obs[key].shape != rows.shape[1:]:
                    raise EnvironmentFault(
                        f"the final observation {key!r} of lane {self.first_lane + lane} at step {self._tick} must have shape "
                        f"{rows.shape[1:]}, got {obs[key].shape if key in obs else 'nothing'}. Return observations of the "
                        f"observation space."
                    )
                if obs[key].dtype != rows.dtype:
                    self._check_dtype(f"final {key}", obs[key], rows.dtype, f" in lane {self.first_lane + lane}")
                rows[lane] = obs[key]
        self._check_values(batch, ended)
        return batch


def read_only(mask: BoolArray) -> BoolArray:
    """Returns the same array, made read-only because several ticks share it."""
    mask.flags.writeable = False
    return mask


def is_finite(array: Array) -> bool:
    """Returns True if a float array holds neither NaN nor infinity.

    A cheap sum comes first. It is never finite where a number is not; where only the sum overflows, all numbers are checked.
    """
    if array.size <= SMALL_SIZE:
        return math.isfinite(sum(array.ravel().tolist()))
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(np.add.reduce(array, axis=None))
    return math.isfinite(total) or bool(np.isfinite(array).all())


def empty_infos(num_envs: int) -> list[Info]:
    """Returns the infos of reset rows: one empty dict per lane."""
    return [{} for _ in range(num_envs)]


def lane_observation(batched: Any, lane: int) -> Any:
    """Returns a copy of the observation of one lane, in the env's own structure."""
    if isinstance(batched, Mapping):
        return {key: lane_observation(value, lane) for key, value in batched.items()}
    if isinstance(batched, tuple):
        return tuple(lane_observation(value, lane) for value in batched)
    one = batched[lane]
    if isinstance(one, tuple):
        return tuple(lane_observation([value], 0) for value in one)
    return (
        {key: lane_observation([value], 0) for key, value in one.items()} if isinstance(one, Mapping) else np.array(one)
    )


def final_info(info: Info, final: object, terminated: bool, truncated: bool) -> Info:
    """Returns the info of a final row with the two extra entries of Stable-Baselines3."""
    return {**info, "terminal_observation": final, "TimeLimit.truncated": truncated and not terminated}


def stacked_space(space: Space, frames: int, channels: int = 1) -> Space:
    """Returns the policy's observation space: `[K * C, H, W]` where the library stacks K frames `[C, H, W]`.

    Raises:
        ConfigurationError: the env does not return single frames.
    """
    if frames == 1:
        return space
    if not isinstance(space, spaces.Box) or len(space.shape) != 3 or space.shape[0] != channels:
        raise ConfigurationError(
            f"the observation space must be of single frames of shape (1, height, width) with frame_stack={frames}, got "
            f"{space}. Leave frame_stack out (stacks of the environment are stored whole), or return single frames."
        )
    return spaces.Box(
        np.repeat(space.low, frames, axis=0), np.repeat(space.high, frames, axis=0), dtype=np.dtype(space.dtype).type
    )


def shares_environment(env: EnvLike, other: object) -> bool:
    """Returns True if two environments share an innermost environment; wrappers do not matter."""
    return not _innermost_ids(env).isdisjoint(_innermost_ids(other))


def _innermost_ids(env: EnvLike) -> set[int]:
    """Returns the ids of the innermost environments: one per lane where a vector env steps them in this process."""
    env = env.env if isinstance(env, Stream) else env
    lanes = getattr(env, "envs", None)
    return {id(getattr(one, "unwrapped", one)) for one in (lanes if isinstance(lanes, (list, tuple)) else (env,))}
