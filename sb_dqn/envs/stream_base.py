"""What every reader of an environment shares: the checks at the door, the rule of lives, clipping, the infos."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from sb_dqn.envs.state import NoState, env_state, restored_env
from sb_dqn.envs.stream_actions import open_door
from sb_dqn.envs.stream_masks import open_masks
from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.stream_parts import frozen, is_finite, some, stacked_space
from sb_dqn.envs.workers import end_workers, lost_and_hung
from sb_dqn.errors import ConfigurationError, EnvironmentFault, SpaceError
from sb_dqn.spaces import actions_of, flatten_observation, flatten_space, leaf_dtype, leaf_shape
from sb_dqn.types import ActionArray, Blueprint, BoolArray, FloatArray, IntArray, Observation, Rows, Slot

FIRE = 1
"""ALE orders its action sets, so where a game has FIRE at all it is action 1."""
ZERO = np.float32(0)


class Stream(ABC):
    """An environment read as rows: one tick after another, whatever its kind and its way of resetting."""

    frame_channels = 1
    """Channels of a single frame `[C, H, W]`, where frames are stacked by us."""
    repeated_frames = 1
    """Observations in which the environment repeats each frame, where its stacks are stored whole."""

    def __init__(
        self,
        env: Any,
        num_envs: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        options: StreamOptions,
    ) -> None:
        if options.frame_stack < 1:
            raise ConfigurationError(f"frame_stack={options.frame_stack}; allowed: an integer of at least 1")
        self.env = env
        self.num_envs = num_envs
        self.options = options
        self.observation_space = observation_space
        self.action_space = action_space
        self.action_shape = actions_of(action_space)
        """What an action is made of; choices given to `step` are 0-based."""
        if options.fire_after_life_loss and (self.action_shape.shape or not self.action_shape.num_actions):
            raise ConfigurationError(
                f"fire_after_life_loss needs a Discrete action space, not {action_space}; switch it off in StreamOptions"
            )
        self.blueprint = Blueprint(
            stacked_space(observation_space, options.frame_stack, self.frame_channels),
            self.action_space,
            num_envs,
            options.frame_stack,
        )
        self.first_seed: int | None = None
        """Used by the first `begin` that is given no seed."""
        leaves = flatten_space(observation_space)
        self._leaves = {key: ((num_envs, *leaf_shape(leaf)), leaf_dtype(leaf)) for key, leaf in leaves.items()}
        self._floats = [key for key, (_, dtype) in self._leaves.items() if dtype.kind == "f"]
        self._all = frozen(np.ones(num_envs, np.bool_))
        self._none = frozen(np.zeros(num_envs, np.bool_))
        self._door = open_door(action_space, self.action_shape, num_envs)
        self._masks = open_masks(options.action_mask, leaves, self.action_shape, num_envs)
        self._watches_lives = options.terminal_on_life_loss or options.fire_after_life_loss
        self._begun = False
        self._said: set[str] = set()
        self._action: ActionArray | None = None
        self._forget()

    def _forget(self) -> None:
        self._tick = 0
        self._last = self._none
        self._lives = np.zeros(self.num_envs, np.int64)
        self._fire: BoolArray | None = None

    @abstractmethod
    def _reset(self, seed: int | None) -> Rows:
        """Resets every lane of the env."""

    @abstractmethod
    def _advance(self, action: ActionArray) -> Rows:
        """Sends actions that have been checked, choices 0-based, and reads the answer."""

    @property
    def leaves(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape, lanes first, and dtype of each part of what a slot holds of the observation."""
        return dict(self._leaves)

    @property
    def has_masks(self) -> bool:
        """Whether every slot has a mask of legal actions."""
        return self._masks is not None

    def begin(self, seed: int | None = None) -> Rows:
        """Resets every lane; `rows.action` is None, so a row that was open is cut, not departed.

        Args:
            seed: lane b gets seed + b where the env can be seeded; None goes on with the env's own generators.

        Raises:
            EnvironmentFault: the env raised, or answered NaN or infinity.
        """
        seed, self.first_seed = (self.first_seed if seed is None else seed), None
        if seed is not None and seed < 0:
            raise ConfigurationError(f"seed={seed}; allowed: an integer of at least 0, or None")
        self._begun, self._action = False, None
        self._forget()
        rows = self._reset(None if seed is None else int(seed))
        self._begun = True
        return rows

    def step(self, action: ActionArray) -> Rows:
        """Takes one step in every lane; a lane whose row was `last` is reset instead, and its action is ignored.

        Args:
            action: `[B]` integers, `[B, D]` for branches, 0-based (the `start` of the space is added here); of a Box
                `[B, *shape]` numbers within its bounds.

        Raises:
            SpaceError: dtype, shape or range do not fit; nothing has been sent.
            EnvironmentFault: the env raised, or answered NaN or infinity; names step and lane.
        """
        if not self._begun:
            raise ConfigurationError("step() before begin(): call begin() first, it resets every lane")
        action = self._door.admit(action)
        if self._fire is not None:
            action, self._fire = np.where(self._fire, FIRE, action), None
        self._tick, self._action = self._tick + 1, action
        try:
            return self._advance(action)
        except EnvironmentFault:
            self._begun = False  # where the lanes stand now nobody knows; begin() makes it good
            raise

    def state_dict(self, trust: bool = False) -> dict[str, Any]:
        """Where reader and environment stand between two steps, for an exact continuation.

        Args:
            trust: pickle an environment that cannot say its state.

        Raises:
            NoState: it cannot be had; says why.
        """
        if not self._begun:
            raise NoState("the environment stopped in the middle of a step")
        fire = None if self._fire is None else self._fire.copy()
        known = {"tick": self._tick, "last": self._last.copy(), "lives": self._lives.copy(), "fire": fire}
        return {**known, "env": env_state(self.env, trust)}

    def load_state_dict(self, state: Mapping[str, Any], trust: bool = False) -> None:
        """Goes on where `state_dict` was taken: the next call is `step`.

        Raises:
            CheckpointError: the environment is another, or `trust` is needed.
        """
        self.env = restored_env(self.env, state["env"], trust)
        self._tick, self._fire = int(state["tick"]), state["fire"]
        self._last, self._lives = frozen(np.array(state["last"], np.bool_)), np.array(state["lives"], np.int64)
        self._begun, self.first_seed = True, None

    def close(self) -> None:
        """Closes the env."""
        self.env.close()

    def _observe(self, raw: Any) -> Observation:
        """A batched observation as a flat dict in the dtypes that are stored; NaN and infinity are refused."""
        found = flatten_observation(raw)
        for key, (shape, dtype) in self._leaves.items():
            array = found.get(key)
            if array is None or array.shape != shape:
                given = "is missing" if array is None else f"has shape {array.shape}"
                raise EnvironmentFault(
                    f"observation {key!r} {given} at step {self._tick}; the observation space promises {shape} "
                    f"(lanes first)"
                )
            if array.dtype != dtype:
                self._check_kind(key, array, dtype)
                found[key] = array.astype(dtype)
        self._check_observation(found)
        return found

    def _check_kind(self, key: str, array: npt.NDArray[Any], dtype: np.dtype[Any], lane: str = "") -> None:
        """Refuses what would lose its fraction, or is no number, when it is stored."""
        if array.dtype.kind not in ("biuf" if dtype.kind == "f" else "biu"):
            raise SpaceError(
                f"observation {key!r}{lane} at step {self._tick} has dtype {array.dtype}, the observation space promises {dtype}; "
                f"correct the space, or convert with gymnasium.wrappers.DtypeObservation"
            )

    def _check_observation(self, obs: Observation, lanes: BoolArray | None = None) -> None:
        """Refuses NaN and infinity, in the given lanes if not in all."""
        for key in self._floats:
            if not is_finite(obs[key]):
                fine = np.isfinite(obs[key]).reshape(self.num_envs, -1).min(axis=1)
                self._refuse(~fine if lanes is None else ~fine & lanes, f"observation {key!r} holds NaN or infinity")

    def _check_score(self, score: FloatArray) -> None:
        if not is_finite(score):
            self._refuse(~np.isfinite(score), "the reward is NaN or infinite")

    def _refuse(self, bad: BoolArray, what: str) -> None:
        for lane in np.flatnonzero(bad):
            raise EnvironmentFault(f"{what} in lane {int(lane)} at step {self._tick}; mend the environment")

    def _fault(self, error: Exception) -> EnvironmentFault:
        """What to raise instead of an error from inside the env; lost workers are named, and the others ended."""
        where = "while resetting" if self._tick == 0 else f"at step {self._tick}"
        lost = lost_and_hung(self.env, self._action, error)
        if lost:
            end_workers(self.env)
            return EnvironmentFault(f"{lost} {where}; all workers were ended. Make the environment anew, and resume")
        known = f"{error}" if isinstance(error, EnvironmentFault) else f"{type(error).__name__}: {error}"
        return EnvironmentFault(f"the environment raised {where}: {known}")

    def _clipped(self, score: FloatArray) -> FloatArray:
        return np.sign(score) if self.options.clip_reward else score

    def _lost_lives(self, lives: IntArray, resets: BoolArray, last: BoolArray) -> BoolArray:
        """Lanes that lost a life, not the last one (reset rows say nothing); FIRE falls due where the game goes on."""
        lost: BoolArray = (lives > 0) & (lives < self._lives) & ~resets
        self._lives = lives
        if self.options.fire_after_life_loss and some(due := lost & ~last):
            self._fire = due
        return lost

    def _say_once(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            warnings.warn(what, stacklevel=2)

    def _no_lives(self) -> ConfigurationError:
        return ConfigurationError(
            "terminal_on_life_loss and fire_after_life_loss need info['lives'], which this environment does not give; "
            "switch them off in StreamOptions"
        )

    def _two_slots(
        self,
        obs: Observation,
        final: Observation | None,
        score: FloatArray,
        terminal: BoolArray,
        ended: BoolArray,
        infos: Any,
        final_infos: Any,
    ) -> tuple[Slot, ...]:
        """The final rows of ended lanes, if any, and beside them what the env returned: a reset row in an ended lane.

        The reward that came with a reset observation belongs to the final row.
        """
        if final is None:
            mask = self._mask(obs, infos, self._none)
            return (Slot(obs, self._clipped(score), score, terminal, self._none, self._all, mask=mask),)
        at_end, going_on = np.where(ended, score, ZERO), np.where(ended, ZERO, score)
        over, lost, full = terminal & ended, terminal & ~ended, bool(ended.all())
        final_mask, mask = self._mask(final, final_infos, over | ~ended), self._mask(obs, infos, self._none)
        return (
            Slot(final, self._clipped(at_end), at_end, over, ended, ended, full, final_mask),
            Slot(obs, self._clipped(going_on), going_on, lost, self._none, self._all, mask=mask),
        )

    def _mask(self, obs: Observation, infos: Any, final: BoolArray) -> BoolArray | None:
        """The masks of legal actions, where some are asked for; rows that are `final` need none.

        Args:
            infos: one for each lane; readers of batched infos override this.
        """
        return None if self._masks is None else self._masks.of_lanes(obs, infos, final, self._tick)

    def _final_rows(self, raws: Sequence[Any], ended: BoolArray) -> Observation:
        """The final observations of ended lanes as one batch, zeros in the others.

        Raises:
            EnvironmentFault: one is missing, of the wrong shape, or holds NaN or infinity.
        """
        batch = {key: np.zeros(shape, dtype) for key, (shape, dtype) in self._leaves.items()}
        for lane in np.flatnonzero(ended).tolist():
            found = flatten_observation(raws[lane])
            for key, rows in batch.items():
                if key not in found or found[key].shape != rows.shape[1:]:
                    raise EnvironmentFault(
                        f"the final observation of lane {lane} at step {self._tick} does not fit the observation "
                        f"space at {key!r}"
                    )
                rows[lane] = found[key]
        self._check_observation(batch, ended)
        return batch
