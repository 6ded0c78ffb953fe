"""The reader of Stable-Baselines3's `VecEnv`, known by its name alone: that package need not be installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import create_empty_array

from sb_dqn.envs.stream_base import Stream
from sb_dqn.envs.stream_options import StreamOptions, options_of
from sb_dqn.envs.stream_parts import no_infos, one_of, some
from sb_dqn.envs.stream_sb3_frames import StackedFrames, repeated_frames, stacked_frames
from sb_dqn.errors import ConfigurationError, EnvironmentFault
from sb_dqn.spaces import leaf_shape
from sb_dqn.types import ActionArray, BoolArray, IntArray, Rows, Slot

INSTEAD = {
    "VecNormalize": "normalize_observations=True, normalize_rewards=True of the model do what VecNormalize does",
    "VecFrameStack": "make_vec_env(..., wrapper_class=gymnasium.wrappers.FrameStackObservation, wrapper_kwargs={'stack_size': 4}) "
    "does what VecFrameStack does",
    "VecMonitor": "make_vec_env(..., monitor_dir=...) does what VecMonitor does; the model counts episodes by itself",
    "VecTransposeImage": "VecTransposeImage is not needed",
}
"""Wrapper of Stable-Baselines3 to what does its work here."""
STACKED = "VecFrameStack is not needed, the model stacks {} frames of this environment"


def is_sb3(env: Any) -> bool:
    """Whether an env is a Stable-Baselines3 `VecEnv`, or a class that says it is one."""
    return any(base.__name__ == "VecEnv" for base in type(env).__mro__)


def check_wrapped(env: Any) -> None:
    """Refuses wrappers of Stable-Baselines3 around a gymnasium `VectorEnv`, whose answers they cannot read.

    Raises:
        ConfigurationError: `env` is such a wrapper; with the way out.
    """
    wrappers, inner = [], env
    while (further := getattr(inner, "__dict__", {}).get("venv")) is not None:  # a getattr would ask all wrappers
        wrappers.append(type(inner).__name__)
        inner = further
    if not wrappers or not isinstance(inner, VectorEnv):
        return
    stacks = (options_of(inner) or StreamOptions()).frame_stack
    instead = {**INSTEAD, "VecFrameStack": STACKED.format(stacks)} if stacks > 1 else INSTEAD
    ways = [instead[name] for name in wrappers if name in instead]
    whole = "(".join([*wrappers, type(inner).__name__]) + ")" * len(wrappers)
    raise ConfigurationError(
        f"{whole} cannot be read: Stable-Baselines3's wrappers take a VecEnv, {type(inner).__name__} is a gymnasium "
        f"VectorEnv; make it with make_vec_env(..., vec_env_cls=stable_baselines3.common.vec_env.DummyVecEnv), or leave the wrappers "
        f"out{': ' * bool(ways)}{'; '.join(ways)}"
    )


def sb3_stream(env: Any, frame_stack: int | None, options: StreamOptions) -> SB3Stream:
    """Returns the reader of a `VecEnv`; of a `VecFrameStack` of images the newest frame is a row, and stacked by us.

    Args:
        env: the `VecEnv`.
        frame_stack: K; None is what the `VecFrameStack` has; 1 reads its stacks whole.
        options: how to read it.
    """
    frames = stacked_frames(env) if frame_stack != 1 else None
    count = frame_stack or (options.frame_stack if frames is None else frames.count)
    options = replace(options, frame_stack=count)
    stream = SB3Stream(env, options, frames)
    stream.repeated_frames = 1 if frames or frame_stack is not None else repeated_frames(env)
    return stream


class SB3Stream(Stream):
    """Same-step resets: final observations lie in `infos[i]["terminal_observation"]`, reset infos in `reset_infos`."""

    def __init__(self, env: Any, options: StreamOptions, frames: StackedFrames | None = None) -> None:
        self._frames = frames
        space = env.observation_space
        if frames is not None:
            space, self.frame_channels = frames.space, leaf_shape(frames.space)[0]
        super().__init__(env, env.num_envs, space, env.action_space, options)

    def _reset(self, seed: int | None) -> Rows:
        try:
            if seed is not None:
                self.env.seed(seed)
            raw = self.env.reset()
        except Exception as error:
            raise self._fault(error) from error
        if self._watches_lives:
            self._lives = self._after_reset(self._all, self._lives)
        zero = np.zeros(self.num_envs, np.float32)
        obs = self._observe(self._newest(raw))
        mask = self._mask(obs, self._reset_infos(), self._none)
        slot = Slot(obs, zero, zero, self._none, self._none, self._all, mask=mask)
        return Rows(None, (slot,), self._none, 0, partial(no_infos, self.num_envs))

    def _advance(self, action: ActionArray) -> Rows:
        try:
            raw, reward, dones, infos = self.env.step(self._door.outgoing(action))
        except Exception as error:
            raise self._fault(error) from error
        score = np.array(reward, np.float32)
        self._check_score(score)
        ended = np.array(dones, np.bool_)
        any_ended = some(ended)
        terminated = ended & ~self._truncated(ended, infos) if any_ended else self._none
        terminal = terminated
        if self._watches_lives:
            terminal = self._with_lives(terminated, ended, infos)
        obs = self._observe(self._newest(raw))
        final = self._final_rows(self._finals(ended, terminated, infos), ended) if any_ended else None
        open_infos = infos
        if any_ended and self._masks is not None:
            both = zip(ended, self._reset_infos(), infos, strict=True)
            open_infos = [reset if end else info for end, reset, info in both]
        slots = self._two_slots(obs, final, score, terminal, ended, open_infos, infos)
        return Rows(action, slots, self._all, self.num_envs, partial(_copied, infos))

    def _newest(self, raw: Any) -> Any:
        return raw if self._frames is None or raw is None else self._frames.newest(raw)

    def _truncated(self, ended: BoolArray, infos: Sequence[dict[str, Any]]) -> BoolArray:
        return np.array(
            [bool(end and info.get("TimeLimit.truncated", False)) for end, info in zip(ended, infos, strict=True)]
        )

    def _finals(self, ended: BoolArray, terminated: BoolArray, infos: Sequence[dict[str, Any]]) -> list[Any]:
        """The final observations by lane. A termination without one is read with zeros: no value lies beyond it.

        Raises:
            EnvironmentFault: a truncation without one, which could not be bootstrapped.
        """
        finals: list[Any] = [self._newest(info.get("terminal_observation")) for info in infos]
        missing = [lane for lane in np.flatnonzero(ended).tolist() if finals[lane] is None]
        for lane in missing:
            if not terminated[lane]:
                raise EnvironmentFault(
                    f"lane {lane} was truncated at step {self._tick} without "
                    f"infos[{lane}]['terminal_observation'], so its value "
                    f"cannot be bootstrapped; let step_wait() put the last observation there, as DummyVecEnv does"
                )
            finals[lane] = one_of(create_empty_array(self.observation_space, n=1, fn=np.zeros), 0)
        if missing:
            self._say_once(
                f"{type(self.env).__name__} gave no infos[i]['terminal_observation'] at the end of an episode; the end is "
                f"read as a termination (nothing beyond it counts). If it was a time limit, set 'terminal_observation' "
                f"and 'TimeLimit.truncated'"
            )
        return finals

    def _with_lives(self, terminated: BoolArray, ended: BoolArray, infos: Sequence[dict[str, Any]]) -> BoolArray:
        """`terminated`, or a lost life if so configured; remembers the lives of the rows that are now open."""
        if self._tick == 1 and not any("lives" in info for info in infos):
            raise self._no_lives()
        lives = np.array(
            [info.get("lives", old) for info, old in zip(infos, self._lives.tolist(), strict=True)], np.int64
        )
        lost = self._lost_lives(lives, self._none, ended)
        self._lives = self._after_reset(ended, lives)
        return terminated | lost if self.options.terminal_on_life_loss else terminated

    def _after_reset(self, resets: BoolArray, lives: IntArray) -> IntArray:
        """Lives of the open rows: in lanes that were reset those of `reset_infos`, 0 (unknown) where it is silent."""
        return np.where(resets, [info.get("lives", 0) for info in self._reset_infos()], lives)

    def _reset_infos(self) -> Sequence[dict[str, Any]]:
        """The infos of the newest reset of each lane, empty where the env keeps none."""
        return getattr(self.env, "reset_infos", None) or no_infos(self.num_envs)


def _copied(infos: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [dict(info) for info in infos]
