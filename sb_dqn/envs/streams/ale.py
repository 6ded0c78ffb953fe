"""A user's own `AtariVectorEnv`: its stack is read as single frames, and what it cannot show safely is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from sb_dqn.envs.streams.gymnasium_vector import NextStepStream, SameStepStream, VectorStream
from sb_dqn.envs.streams.helpers import some
from sb_dqn.envs.streams.options import StreamOptions
from sb_dqn.errors import ConfigurationError
from sb_dqn.types import ActionArray, BoolArray, FloatArray, IntArray, Rows

FIX = (
    "make it with episodic_life=False, life_loss_info=False and open it with "
    "StreamOptions(terminal_on_life_loss=True), "
    "or use make_atari_env(..., protocol='classic')"
)


def is_ale(env: Any) -> bool:
    """Whether an env is ale_py's AtariVectorEnv, or a wrapper around one."""
    inner = getattr(env, "unwrapped", env)
    return any(base.__module__ == "ale_py.vector_env" for base in type(inner).__mro__)


def ale_stream(env: Any, frame_stack: int | None, options: StreamOptions) -> VectorStream:
    """Its reader; of a stack of K grey frames (padded with zeros, as ours) the newest is stored and stacked by us.

    Raises:
        ConfigurationError: it answers for some lanes only, or ends games at lost lives.
    """
    inner = env.unwrapped
    if inner.batch_size != inner.num_envs:
        raise ConfigurationError(
            f"AtariVectorEnv with batch_size={inner.batch_size} for {inner.num_envs} lanes is not deterministic; "
            f"leave batch_size out"
        )
    kwargs = env.spec.kwargs if env.spec is not None else {}
    for flag in ("episodic_life", "life_loss_info"):
        if kwargs.get(flag):
            raise ConfigurationError(f"AtariVectorEnv with {flag}=True hides where a game ends; {FIX}")
    space = env.single_observation_space
    stacked = (
        isinstance(space, spaces.Box)
        and len(space.shape) == 3
        and inner.single_observation_space == space
        and space.shape[0] > 1
    )
    newest = stacked and frame_stack != 1
    options = replace(options, frame_stack=frame_stack or (space.shape[0] if newest else options.frame_stack))
    kind = SameStepStream if AutoresetMode(inner.autoreset_mode) is AutoresetMode.SAME_STEP else AleNextStepStream
    return kind(env, options, newest_frame=newest)


class AleNextStepStream(NextStepStream):
    """NEXT_STEP from a raw AtariVectorEnv, which does not say whether it ends games at lost lives: its answers do."""

    _known_lives: IntArray

    def _rows(
        self,
        action: ActionArray,
        raw: Any,
        score: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        info: dict[str, Any],
    ) -> Rows:
        lives = np.array(info["lives"], np.int64)
        if some(terminated) and some(wrong := terminated & (lives > 0) & (lives < self._known_lives)):
            lane = int(np.flatnonzero(wrong)[0])
            raise ConfigurationError(
                f"lane {lane} ended at step {self._tick} with {lives[lane]} lives left: this AtariVectorEnv was "
                f"made with "
                f"episodic_life=True or life_loss_info=True, which hide where a game ends; {FIX}"
            )
        self._known_lives = lives
        return super()._rows(action, raw, score, terminated, truncated, info)

    def _forget(self) -> None:
        super()._forget()
        self._known_lives = np.zeros(self.num_envs, np.int64)
