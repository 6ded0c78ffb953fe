"""Readers of gymnasium's vector envs: NEXT_STEP and SAME_STEP autoreset."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from sb_dqn.envs.streams.base import Stream
from sb_dqn.envs.streams.helpers import lane_ends, no_infos, one_of, some
from sb_dqn.envs.streams.options import StreamOptions
from sb_dqn.errors import EnvironmentFault
from sb_dqn.types import ActionArray, BoolArray, FloatArray, IntArray, Observation, Rows, Slot


def lane_info(info: Mapping[str, Any], lane: int) -> dict[str, Any]:
    """One lane's part of a batched info: an entry counts only where its mask `_key` (if any) is set."""
    found: dict[str, Any] = {}
    for key, value in info.items():
        if (key.startswith("_") and key[1:] in info) or key in ("final_obs", "final_info"):
            continue
        mask = info.get("_" + key)
        if mask is not None and not mask[lane]:
            continue
        if isinstance(value, Mapping):
            found[key] = lane_info(value, lane)
        else:
            found[key] = value[lane] if np.ndim(value) else value
    return found


class VectorStream(Stream):
    """What the readers of both autoreset modes share."""

    def __init__(self, env: Any, options: StreamOptions, newest_frame: bool = False) -> None:
        space = env.single_observation_space
        self._newest_frame = newest_frame
        """Whether the env stacks frames that we stack again, so that only the newest one is a row."""
        if newest_frame:
            space = spaces.Box(space.low[-1:], space.high[-1:], dtype=space.dtype.type)
        super().__init__(env, env.num_envs, space, env.single_action_space, options)

    def _reset(self, seed: int | None) -> Rows:
        try:
            raw, info = self.env.reset(seed=seed) if seed is not None else self.env.reset()
        except Exception as error:
            raise self._fault(error) from error
        if self._watches_lives:
            self._lives = self._lives_of(info, self._none)
        zero = np.zeros(self.num_envs, np.float32)
        obs = self._observe(self._frames(raw))
        mask = self._mask(obs, info, self._none)
        slot = Slot(obs, zero, zero, self._none, self._none, self._all, mask=mask)
        return Rows(None, (slot,), self._none, 0, partial(no_infos, self.num_envs))

    def _advance(self, action: ActionArray) -> Rows:
        try:
            raw, reward, terminated, truncated, info = self._stepped(self._door.outgoing(action))
        except Exception as error:
            raise self._fault(error) from error
        score = np.asarray(reward, np.float32)
        if score.shape != (self.num_envs,):
            raise EnvironmentFault(
                f"rewards have shape {score.shape} at step {self._tick}; allowed: ({self.num_envs},)"
            )
        self._check_score(score)
        return self._rows(
            action, raw, self._score(score, info), np.array(terminated, np.bool_), np.asarray(truncated, np.bool_), info
        )

    def _stepped(self, action: Any) -> Any:
        """`env.step`, with the patience of `step_timeout` where the env can wait."""
        timeout, wait = self.options.step_timeout, getattr(self.env, "step_wait", None)
        if timeout is None or wait is None:
            return self.env.step(action)
        self.env.step_async(action)
        return wait(timeout=timeout)

    @abstractmethod
    def _rows(
        self,
        action: ActionArray,
        raw: Any,
        score: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        info: dict[str, Any],
    ) -> Rows:
        """Reads what `env.step` answered."""

    def _mask(self, obs: Observation, infos: Any, final: BoolArray) -> BoolArray | None:
        return None if self._masks is None else self._masks.of_batch(obs, infos, final, self._tick)

    def _frames(self, raw: Any) -> Any:
        return raw[:, -1:] if self._newest_frame else raw

    def _score(self, reward: FloatArray, info: Mapping[str, Any]) -> FloatArray:
        """The reward as the game gave it."""
        return reward

    def _lives_of(self, info: Mapping[str, Any], resets: BoolArray) -> IntArray:
        """Lives by lane; where the info is silent those known before, and none known after a reset."""
        if "lives" not in info:
            if self._tick == 1:
                raise self._no_lives()
            return np.where(resets, 0, self._lives)
        lives = np.array(info["lives"], np.int64)
        told = info.get("_lives")
        return lives if told is None else np.where(told, lives, np.where(resets, 0, self._lives))


class NextStepStream(VectorStream):
    """NEXT_STEP: one observation per lane and step; the step after an end is a reset row whose action is ignored."""

    def _rows(
        self,
        action: ActionArray,
        raw: Any,
        score: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        info: dict[str, Any],
    ) -> Rows:
        resets, terminal = self._last, terminated
        last = terminated | truncated
        obs = self._observe(self._frames(raw))
        stepped, steps = self._all, self.num_envs
        if some(resets):
            score, stepped = np.where(resets, np.float32(0), score), ~resets
            steps = int(np.count_nonzero(stepped))
        if self._watches_lives:
            lost = self._lost_lives(self._lives_of(info, resets), resets, last)
            if self.options.terminal_on_life_loss:
                terminal = terminated | lost
        self._last = last
        mask = None if self._masks is None else self._mask(obs, info, terminated)
        slot = Slot(obs, self._clipped(score), score, terminal, last, self._all, mask=mask)
        return Rows(action, (slot,), stepped, steps, partial(self._infos, raw, info, stepped, terminated, truncated))

    def _infos(
        self, raw: Any, info: dict[str, Any], stepped: BoolArray, terminated: BoolArray, truncated: BoolArray
    ) -> list[dict[str, Any]]:
        infos: list[dict[str, Any]] = []
        for lane in range(self.num_envs):
            own = lane_info(info, lane) if stepped[lane] else {}
            if terminated[lane] or truncated[lane]:
                own = lane_ends(own, one_of(raw, lane), bool(terminated[lane]), bool(truncated[lane]))
            infos.append(own)
        return infos


class SameStepStream(VectorStream):
    """SAME_STEP: an ended lane is reset at once; its final row lies in `final_obs` and `final_info`."""

    def _rows(
        self,
        action: ActionArray,
        raw: Any,
        score: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        info: dict[str, Any],
    ) -> Rows:
        ended = terminated | truncated  # never "is there a final_obs": ALE leaves stale memory in the other lanes
        any_ended, terminal, finals = some(ended), terminated, None
        if self._watches_lives:
            lives = after = self._lives_of(info, ended)
            final_info = info.get("final_info", {})
            if any_ended and "lives" in final_info:
                lives = np.where(ended, np.asarray(final_info["lives"], np.int64), lives)
            elif any_ended:
                lives = np.where(ended, self._lives, lives)
                self._say_once(
                    f"{type(self.env).__name__} in SAME_STEP autoreset gives no final_info['lives'], so a life lost on the "
                    f"very step of a time limit is not seen; NEXT_STEP shows it"
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

    def _finals(self, info: dict[str, Any], ended: BoolArray) -> list[Any]:
        """The final observations as a list by lane."""
        if "final_obs" not in info:
            raise EnvironmentFault(
                f"lane {int(np.flatnonzero(ended)[0])} ended at step {self._tick} without info['final_obs']; a "
                f"SAME_STEP env must "
                f"give it. Make the env with autoreset_mode NEXT_STEP instead"
            )
        given = info["final_obs"]
        if getattr(given, "dtype", None) == np.dtype(object):
            return list(given)
        dense = self._frames(given)
        return [one_of(dense, lane) if ended[lane] else None for lane in range(self.num_envs)]

    def _infos(
        self, info: dict[str, Any], finals: list[Any] | None, terminated: BoolArray, truncated: BoolArray
    ) -> list[dict[str, Any]]:
        infos: list[dict[str, Any]] = []
        for lane in range(self.num_envs):
            if finals is not None and (terminated[lane] or truncated[lane]):
                own = lane_info(info.get("final_info", {}), lane)
                infos.append(lane_ends(own, one_of([finals[lane]], 0), bool(terminated[lane]), bool(truncated[lane])))
            else:
                infos.append(lane_info(info, lane))
        return infos
