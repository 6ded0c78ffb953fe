"""Streams of gymnasium vector envs, with NEXT_STEP or SAME_STEP autoreset."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.streams.base import Stream, final_info
from sb_dqn.errors import ConfigurationError, EnvironmentFault
from sb_dqn.types import ActionArray, BoolArray, EnvLike, FloatArray, Info, IntArray, Observation, Rows, Slot, any_true

Results = tuple[Any, FloatArray, BoolArray, BoolArray, dict[str, Any]]
"""Observations, raw rewards, terminated, truncated and infos of all lanes."""


def lane_info(info: Mapping[str, Any], lane: int) -> Info:
    """Returns one lane's part of a batched info; an entry counts only where its mask `_key` (if any) is set."""
    own: Info = {}
    for key, value in info.items():
        if (key.startswith("_") and key[1:] in info) or key in ("final_obs", "final_info"):
            continue
        mask = info.get("_" + key)
        if mask is not None and not mask[lane]:
            continue
        if isinstance(value, Mapping):
            own[key] = lane_info(value, lane)
        else:
            own[key] = value[lane] if np.ndim(value) else value
    return own


class VectorStream(Stream):
    """Base class of the streams of both autoreset modes."""

    def __init__(self, env: EnvLike, options: StreamOptions, newest_frame: bool = False) -> None:
        space = env.single_observation_space
        if newest_frame:
            space = spaces.Box(space.low[-1:], space.high[-1:], dtype=space.dtype.type)
        if options.step_timeout is not None and getattr(env, "step_wait", None) is None:
            raise ConfigurationError(
                f"step_timeout must be None for an environment without step_wait(timeout), got {options.step_timeout} for a "
                f"{type(env).__name__}. Pass the AsyncVectorEnv itself, with wrappers inside its factories."
            )
        super().__init__(env, env.num_envs, space, env.single_action_space, options)
        self._newest_frame = newest_frame
        """True if the env's stacks are reduced to their newest frame, and stacked again by the library."""

    def _reset(self, seed: int | None) -> Rows:
        try:
            raw, info = self.env.reset(seed=seed) if seed is not None else self.env.reset()
        except Exception as error:
            raise self._fault(error) from error
        if self._reads_lives:
            self._lives = self._lives_of(info, self._none)
        return self._first_rows(self._observe(self._kept(self._frames(raw))), info)

    def _advance(self, action: ActionArray) -> Rows:
        try:
            raw, reward, terminated, truncated, info = self._stepped(self._action_check.to_env(action))
        except Exception as error:
            raise self._fault(error) from error
        score = np.array(reward, np.float32)
        if score.shape != (self.num_envs,):
            raise EnvironmentFault(
                f"rewards at step {self._tick} must have shape ({self.num_envs},), got {score.shape}. Return one per lane."
            )
        self._check_score(score)
        flags = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        return self._rows(action, (self._kept(raw), self._score(score, info), *flags, info))

    def _stepped(self, action: object) -> Any:
        """Returns the result of `env.step`, within `step_timeout`."""
        if self.options.step_timeout is None:
            return self.env.step(action)
        self.env.step_async(action)
        return self.env.step_wait(timeout=self.options.step_timeout)

    @abstractmethod
    def _rows(self, action: ActionArray, results: Results) -> Rows:
        """Returns the rows of one result of `env.step`."""

    def _mask(self, obs: Observation, infos: Any, final: BoolArray) -> BoolArray | None:
        return None if self._mask_reader is None else self._mask_reader.from_batch(obs, infos, final, self._tick)

    def _frames(self, raw: Any) -> Any:
        return raw[:, -1:] if self._newest_frame else raw

    def _score(self, reward: FloatArray, info: Info) -> FloatArray:
        """Returns the raw reward."""
        return reward

    def _lives_of(self, info: Info, resets: BoolArray) -> IntArray:
        """Returns the lives per lane. Without an info entry they are the previous ones, or 0 (unknown) after a reset."""
        if "lives" not in info:
            if self._tick == 1:
                raise self._no_lives()
            return np.where(resets, 0, self._lives)
        lives = np.array(info["lives"], np.int64)
        present = info.get("_lives")
        return lives if present is None else np.where(present, lives, np.where(resets, 0, self._lives))


class NextStepStream(VectorStream):
    """Stream of NEXT_STEP autoreset: the step after the end of an episode returns a reset row and ignores its action."""

    def _rows(self, action: ActionArray, results: Results) -> Rows:
        raw, score, terminated, truncated, info = results
        resets, terminal = self._last, terminated
        last = terminated | truncated
        obs = self._observe(self._frames(raw))
        stepped, steps = self._all, self.num_envs
        if any_true(resets):
            score, stepped = np.where(resets, np.float32(0), score), ~resets
            steps = int(np.count_nonzero(stepped))
        if self._reads_lives:
            lost = self._lost_lives(self._lives_of(info, resets), resets, last)
            if self.options.terminal_on_life_loss:
                terminal = terminated | lost
        self._last = last
        mask = None if self._mask_reader is None else self._mask(obs, info, terminated)
        slot = Slot(obs, self._clip(score), score, terminal, last, self._all, mask=mask)
        return Rows(action, (slot,), stepped, steps, partial(self._infos, raw, info, stepped, terminated, truncated))

    def _infos(
        self, raw: object, info: Info, stepped: BoolArray, terminated: BoolArray, truncated: BoolArray
    ) -> list[dict[str, Any]]:
        infos: list[Info] = []
        for lane in range(self.num_envs):
            own = lane_info(info, lane) if stepped[lane] else {}
            if terminated[lane] or truncated[lane]:
                own = final_info(own, self._of_lane(raw, lane), bool(terminated[lane]), bool(truncated[lane]))
            infos.append(own)
        return infos


class SameStepStream(VectorStream):
    """Stream of SAME_STEP autoreset: an ended lane is reset at once, its final row is in `final_obs` and `final_info`."""

    def _rows(self, action: ActionArray, results: Results) -> Rows:
        raw, score, terminated, truncated, info = results
        ended = terminated | truncated  # not by the presence of final_obs: ALE leaves stale memory in the other lanes
        any_ended = any_true(ended)
        terminal, finals = terminated, None
        if self._reads_lives:
            lives = after = self._lives_of(info, ended)
            ended_info = info.get("final_info", {})
            if any_ended and "lives" in ended_info:
                lives = np.where(ended, np.asarray(ended_info["lives"], np.int64), lives)
            elif any_ended:
                lives = np.where(ended, self._lives, lives)
                self._warn_once(
                    f"{type(self.env).__name__} in SAME_STEP autoreset returns no final_info['lives'], so a life lost on the "
                    f"step of a time limit is missed. Use NEXT_STEP to detect it."
                )
            lost = self._lost_lives(lives, self._none, ended)
            self._lives = after
            if self.options.terminal_on_life_loss:
                terminal = terminated | lost
        obs = self._observe(self._frames(raw))
        final = None
        if any_ended:
            finals = self._finals(info, ended)
            final = self._final_rows(finals, ended)
        slots = self._two_slots(obs, final, score, terminal, ended, info, info.get("final_info", {}))
        make_infos = partial(self._infos, info, finals, terminated, truncated)
        return Rows(action, slots, self._all, self.num_envs, make_infos)

    def _finals(self, info: Info, ended: BoolArray) -> list[Any]:
        """Returns the final observations as a list, one entry per lane."""
        if "final_obs" not in info:
            lane = self.first_lane + int(np.flatnonzero(ended)[0])
            raise EnvironmentFault(
                f"info at step {self._tick} must contain 'final_obs', since lane {lane} ended, got none. "
                f"Return it (SAME_STEP autoreset requires it), or make the env with autoreset_mode NEXT_STEP."
            )
        finals = info["final_obs"]
        if getattr(finals, "dtype", None) == np.dtype(object):
            return list(finals)
        frames = self._frames(finals)
        return [self._of_lane(frames, lane) if ended[lane] else None for lane in range(self.num_envs)]

    def _infos(
        self, info: Info, finals: list[Any] | None, terminated: BoolArray, truncated: BoolArray
    ) -> list[dict[str, Any]]:
        infos: list[Info] = []
        for lane in range(self.num_envs):
            if finals is not None and (terminated[lane] or truncated[lane]):
                own = lane_info(info.get("final_info", {}), lane)
                infos.append(
                    final_info(own, self._of_lane([finals[lane]], 0), bool(terminated[lane]), bool(truncated[lane]))
                )
            else:
                infos.append(lane_info(info, lane))
        return infos
