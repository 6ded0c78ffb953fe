"""Stream of `Lanes`: rows directly from the lanes' results, without batched infos. The path of small, fast envs."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from sb_dqn.envs.action_checks import SMALL_SIZE
from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.streams.base import Stream, final_info
from sb_dqn.envs.vector.sync_env import Lanes, LaneSteps
from sb_dqn.errors import EnvironmentFault, SpaceError
from sb_dqn.spaces import flatten_observation
from sb_dqn.types import ActionArray, Info, IntArray, Observation, Rows, Slot

LARGEST = float(np.finfo(np.float32).max)


class SyncVectorStream(Stream):
    """Stream of `Lanes`, which resets an ended lane in the next step."""

    env: Lanes

    def __init__(self, env: Lanes, options: StreamOptions) -> None:
        super().__init__(env, env.num_envs, env.single_observation_space, env.single_action_space, options)
        # Two alternating buffers: the observations of one tick stay unchanged during the next tick.
        self._buffer = self._zeros()
        self._next_buffer = self._zeros()
        self._single_array = list(self._leaves) == ["obs"]
        self._small_floats = (
            self._single_array and self._float_keys == ["obs"] and self._buffer["obs"].size <= SMALL_SIZE
        )

    def number_lanes(self, first: int) -> None:
        super().number_lanes(first)
        self.env.first_lane = first

    def _zeros(self) -> Observation:
        return {key: np.zeros(shape, dtype) for key, (shape, dtype) in self._leaves.items()}

    def _reset(self, seed: int | None) -> Rows:
        results = self.env.begin(seed)
        for lane, raw in enumerate(results.observations):
            for key, array in flatten_observation(raw, self._leaves).items():
                if key in self._leaves:
                    self._check_dtype(key, array, self._leaves[key][1], f" in lane {self.first_lane + lane}")
        if self._reads_lives:
            self._lives = self._lives_of(results)
        return self._first_rows(self._copy(results.observations), results.infos)

    def _advance(self, action: ActionArray) -> Rows:
        results = self.env.advance(self._action_check.to_env(action))
        _, rewards, terminated, truncated, _, resets = results
        if sum(map(abs, rewards)) < LARGEST:  # false for NaN, too
            score = np.array(rewards, np.float32)
        else:
            with np.errstate(over="ignore"):
                score = np.array(rewards, np.float32)
            self._check_score(score)
        obs = self._copy(results.observations)
        final = terminal = np.array(terminated, np.bool_) if True in terminated else self._none  # usually none is set
        last = self._none
        if True in truncated or terminal is not self._none:
            last = terminal | np.array(truncated, np.bool_)
        stepped, steps = self._all, self.num_envs
        if True in resets:
            stepped = ~np.array(resets, np.bool_)
            steps = self.num_envs - sum(resets)
        if self._reads_lives:
            lost = self._lost_lives(self._lives_of(results), ~stepped, last)
            if self.options.terminal_on_life_loss:
                terminal = terminal | lost
        self._last = last
        mask = None if self._mask_reader is None else self._mask(obs, results.infos, final)
        slot = Slot(obs, self._clip(score), score, terminal, last, self._all, mask=mask)
        return Rows(action, (slot,), stepped, steps, partial(self._infos, results))

    def _copy(self, observations: list[Any]) -> Observation:
        """Copies the lanes' observations into the next buffer and returns it."""
        obs = self._next_buffer
        self._next_buffer, self._buffer = self._buffer, obs
        lane = 0
        try:
            if self._single_array:
                rows = obs["obs"]
                shape = rows.shape[1:]
                exact = rows.dtype.kind in "biu"  # floats are checked at resets only, which is faster
                for lane, raw in enumerate(observations):
                    array = np.asarray(raw)
                    if array.shape != shape:
                        raise self._wrong_shape(lane, "obs", array.shape, shape)
                    if exact and array.dtype != rows.dtype:
                        self._check_dtype("obs", array, rows.dtype, f" in lane {self.first_lane + lane}")
                    rows[lane] = array
                if self._small_floats and math.isfinite(sum(rows.ravel().tolist())):  # the usual case, without a call
                    return {"obs": rows}
            else:
                for lane, raw in enumerate(observations):
                    self._copy_lane(obs, lane, flatten_observation(raw, self._leaves))
        except SpaceError:
            raise
        except (TypeError, ValueError) as error:  # from NumPy, for values that are no numbers
            raise EnvironmentFault(
                f"the observation in lane {self.first_lane + lane} at step {self._tick} must be in {self.observation_space}, got "
                f"one that cannot be stored ({error}). Return observations of the observation space."
            ) from error
        if self._float_keys or self._choices:
            self._check_values(obs)
        return dict(obs)

    def _copy_lane(self, obs: Observation, lane: int, arrays: Observation) -> None:
        for key, rows in obs.items():
            shape = arrays[key].shape if key in arrays else None
            if shape != rows.shape[1:]:
                raise self._wrong_shape(lane, key, shape, rows.shape[1:])
            if rows.dtype.kind in "biu" and arrays[key].dtype != rows.dtype:
                self._check_dtype(key, arrays[key], rows.dtype, f" in lane {self.first_lane + lane}")
            rows[lane] = arrays[key]

    def _wrong_shape(self, lane: int, key: str, actual: object, expected: object) -> EnvironmentFault:
        return EnvironmentFault(
            f"observation {key!r} in lane {self.first_lane + lane} at step {self._tick} must have shape {expected}, got "
            f"{'nothing' if actual is None else actual}. Return observations of the observation space."
        )

    def _lives_of(self, results: LaneSteps) -> IntArray:
        """Returns the lives per lane. Without an info entry they are the previous ones, or 0 (unknown) after a reset."""
        previous = [0 if reset else lives for reset, lives in zip(results.resets, self._lives.tolist(), strict=True)]
        return self._lives_in(results.infos, previous)

    def _infos(self, results: LaneSteps) -> list[Info]:
        infos: list[Info] = []
        for observation, terminated, truncated, info, reset in zip(
            results.observations, results.terminated, results.truncated, results.infos, results.resets, strict=True
        ):
            if terminated or truncated:
                final = self._of_lane([observation], 0)
                infos.append(final_info(info, final, bool(terminated), bool(truncated)))
            else:
                infos.append({} if reset else info)
        return infos
