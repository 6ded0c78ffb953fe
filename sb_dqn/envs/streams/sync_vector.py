"""The reader of `Lanes`: straight from the lanes' answers, no batched infos between. The path of small, fast envs."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from sb_dqn.envs.streams.base import Stream
from sb_dqn.envs.streams.helpers import FEW, lane_ends, no_infos, one_of
from sb_dqn.envs.streams.options import StreamOptions
from sb_dqn.envs.vector.sync_env import Arrived, Lanes
from sb_dqn.errors import EnvironmentFault
from sb_dqn.spaces import flatten_observation
from sb_dqn.types import ActionArray, BoolArray, IntArray, Observation, Rows, Slot


class SyncVectorStream(Stream):
    """NEXT_STEP rows from `Lanes`."""

    env: Lanes

    def __init__(self, env: Lanes, options: StreamOptions) -> None:
        super().__init__(env, env.num_envs, env.single_observation_space, env.single_action_space, options)
        # Two buffers in turn: the observations of the tick before stay as they were for one tick more.
        self._buffer, self._spare = self._empty(), self._empty()
        self._plain = list(self._leaves) == ["obs"]
        self._few = self._plain and self._floats == ["obs"] and self._buffer["obs"].size <= FEW

    def _empty(self) -> Observation:
        return {key: np.zeros(shape, dtype) for key, (shape, dtype) in self._leaves.items()}

    def _reset(self, seed: int | None) -> Rows:
        arrived = self.env.begin(seed)
        for lane, raw in enumerate(arrived.observations):
            for key, found in flatten_observation(raw).items():
                if key in self._leaves:
                    self._check_kind(key, found, self._leaves[key][1], f" in lane {lane}")
        if self._watches_lives:
            self._lives = self._lives_of(arrived)
        zero = np.zeros(self.num_envs, np.float32)
        obs = self._read(arrived.observations)
        mask = self._mask(obs, arrived.infos, self._none)
        slot = Slot(obs, zero, zero, self._none, self._none, self._all, mask=mask)
        return Rows(None, (slot,), self._none, 0, partial(no_infos, self.num_envs))

    def _advance(self, action: ActionArray) -> Rows:
        arrived = self.env.advance(self._door.outgoing(action))
        _, rewards, terminated, truncated, _, resets = arrived
        score = np.array(rewards, np.float32)
        if not math.isfinite(sum(rewards)):
            self._check_score(score)
        obs = self._read(arrived.observations)
        over = terminal = self._flags(terminated)
        last = self._none
        if True in truncated or terminal is not self._none:
            last = terminal | np.array(truncated, np.bool_)
        stepped, steps = self._all, self.num_envs
        if True in resets:
            stepped = ~np.array(resets, np.bool_)
            steps = self.num_envs - sum(resets)
        if self._watches_lives:
            lost = self._lost_lives(self._lives_of(arrived), ~stepped, last)
            if self.options.terminal_on_life_loss:
                terminal = terminal | lost
        self._last = last
        mask = None if self._masks is None else self._mask(obs, arrived.infos, over)
        slot = Slot(obs, self._clipped(score), score, terminal, last, self._all, mask=mask)
        return Rows(action, (slot,), stepped, steps, partial(self._infos, arrived))

    def _flags(self, values: list[bool]) -> BoolArray:
        """As an array; the shared one where nothing is set, as is usual."""
        return np.array(values, np.bool_) if True in values else self._none

    def _read(self, observations: list[Any]) -> Observation:
        """Copies the lanes' observations into a kept buffer."""
        obs, self._buffer, self._spare = self._spare, self._spare, self._buffer
        lane = 0
        try:
            if self._plain:
                rows = obs["obs"]
                shape = rows.shape[1:]
                for lane, raw in enumerate(observations):
                    one = np.asarray(raw)
                    if one.shape != shape:
                        raise self._misfit(lane, "obs", one.shape, shape)
                    rows[lane] = one
                if self._few and math.isfinite(sum(rows.ravel().tolist())):  # the usual case, without a call of our own
                    return {"obs": rows}
            else:
                for lane, raw in enumerate(observations):
                    self._read_one(obs, lane, flatten_observation(raw))
        except (TypeError, ValueError) as error:  # numpy's, of what holds no numbers
            raise self._unreadable(lane, error) from error
        if self._floats:
            self._check_observation(obs)
        return dict(obs)

    def _read_one(self, obs: Observation, lane: int, found: Observation) -> None:
        for key, rows in obs.items():
            shape = found[key].shape if key in found else None
            if shape != rows.shape[1:]:
                raise self._misfit(lane, key, shape, rows.shape[1:])
            rows[lane] = found[key]

    def _misfit(self, lane: int, key: str, given: Any, wanted: Any) -> EnvironmentFault:
        return EnvironmentFault(
            f"observation {key!r} in lane {lane} at step {self._tick} "
            f"{'is missing' if given is None else f'has shape {given}'}; "
            f"the observation space promises shape {wanted}"
        )

    def _unreadable(self, lane: int, error: Exception) -> EnvironmentFault:
        return EnvironmentFault(
            f"the observation in lane {lane} at step {self._tick} cannot be stored ({error}); the observation space "
            f"promises {self.observation_space}"
        )

    def _lives_of(self, arrived: Arrived) -> IntArray:
        """Lives by lane; where an info is silent those known before, and none known after a reset."""
        if self._tick == 1 and not any("lives" in info for info in arrived.infos):
            raise self._no_lives()
        known = [0 if reset else old for reset, old in zip(arrived.resets, self._lives.tolist(), strict=True)]
        return np.array([info.get("lives", old) for info, old in zip(arrived.infos, known, strict=True)], np.int64)

    def _infos(self, arrived: Arrived) -> list[dict[str, Any]]:
        infos: list[dict[str, Any]] = []
        for observation, terminated, truncated, info, reset in zip(
            arrived.observations, arrived.terminated, arrived.truncated, arrived.infos, arrived.resets, strict=True
        ):
            if terminated or truncated:
                infos.append(lane_ends(info, one_of([observation], 0), bool(terminated), bool(truncated)))
            else:
                infos.append({} if reset else info)
        return infos
