"""The door: whatever an RL user holds in hand becomes a `Stream` of rows. Only `stream*` modules know of autoreset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv

from sb_dqn.envs.atari import is_atari, make_atari_env
from sb_dqn.envs.lanes import Lanes
from sb_dqn.envs.make import make_vec_env, spec_of
from sb_dqn.envs.stream_ale import ale_stream, is_ale
from sb_dqn.envs.stream_base import Stream
from sb_dqn.envs.stream_envpool import EnvPoolStream, is_envpool
from sb_dqn.envs.stream_gymnasium import NextStepStream, SameStepStream
from sb_dqn.envs.stream_lanes import LanesStream
from sb_dqn.envs.stream_options import StreamOptions, options_of
from sb_dqn.envs.stream_sb3 import check_wrapped, is_sb3, sb3_stream
from sb_dqn.envs.training_env import env_itself
from sb_dqn.errors import ConfigurationError

__all__ = ["Stream", "StreamOptions", "open_stream", "opened_here"]

ALLOWED = (
    "an id, a gymnasium.Env, a list of factories, a gymnasium VectorEnv with NEXT_STEP or SAME_STEP autoreset, "
    "an EnvPool env (env_type='gymnasium'), or a Stable-Baselines3 VecEnv"
)


def open_stream(
    env: Any,
    *,
    num_envs: int | None = None,
    seed: int | None = None,
    frame_stack: int | None = None,
    options: StreamOptions | None = None,
    action_mask: str | None = None,
) -> Stream:
    """Reads an environment of any kind as rows.

    Args:
        env: an id, a gymnasium.Env, a list of factories, a VectorEnv (NEXT_STEP or SAME_STEP), an EnvPool env, a
            Stable-Baselines3 VecEnv, or a stream, which is returned as it is.
        num_envs: lanes, where the env is an id or one factory; otherwise the env's own number, if given.
        seed: of the first `begin`.
        frame_stack: K frames stacked by us; None is 4 for Atari ids, the K of a `VecFrameStack` of images, else what the
            env's own options say. 1 stores the stacks of an environment whole.
        options: how to read it; None takes the env's own `stream_options`, or the defaults.
        action_mask: "info", or the key of a Dict observation that holds the legal actions; None is what the options say.

    Raises:
        ConfigurationError: an env that cannot be read safely, with the fix.
    """
    env = env_itself(env)
    if isinstance(env, Stream):
        own = env.options
        allowed = {"frame_stack": own.frame_stack, "options": own, "action_mask": own.action_mask}
        given = {"frame_stack": frame_stack, "options": options, "action_mask": action_mask}
        late = [f"{name}={value!r}" for name, value in given.items() if value not in (None, allowed[name])]
        if late:
            raise ConfigurationError(
                f"the stream was opened with {own}; {', '.join(late)} come too late: give them to the first open_stream()"
            )
        return _checked(env, num_envs, seed)
    if isinstance(env, str):
        env = _by_id(env, num_envs or 1, frame_stack)
    env = _vectorised(env, num_envs or 1)
    options = options or options_of(env) or StreamOptions()
    if action_mask is not None:
        options = replace(options, action_mask=action_mask)
    stream = _reader(env, frame_stack, options)
    return _checked(stream, num_envs, seed)


def opened_here(env: Any) -> bool:
    """Whether `open_stream` makes the environment itself, so that nobody else could close it."""
    return isinstance(env, (str, list, tuple)) or callable(env)


def _checked(stream: Stream, num_envs: int | None, seed: int | None) -> Stream:
    if num_envs is not None and num_envs != stream.num_envs:
        raise ConfigurationError(
            f"num_envs={num_envs}, but the environment has {stream.num_envs} lanes; leave num_envs out"
        )
    if seed is not None:
        stream.first_seed = seed
    return stream


def _by_id(env_id: str, num_envs: int, frame_stack: int | None) -> Any:
    if is_atari(spec_of(env_id)):
        return make_atari_env(env_id, num_envs, frame_stack=frame_stack)
    return make_vec_env(env_id, num_envs)


def _vectorised(env: Any, num_envs: int) -> Any:
    """The env itself if it has lanes, else `Lanes` of it."""
    if is_sb3(env):
        check_wrapped(env)
        return env
    if isinstance(env, VectorEnv) or is_envpool(env):
        return env
    if isinstance(env, gymnasium.Env):
        return Lanes([lambda: env])
    if isinstance(env, Sequence) and all(callable(make) for make in env):
        return Lanes(env)
    if callable(env):
        factory: Callable[[], Any] = env
        return Lanes([factory] * num_envs)
    raise ConfigurationError(f"{type(env).__name__} is not an environment that can be read; allowed: {ALLOWED}")


def _reader(env: Any, frame_stack: int | None, options: StreamOptions) -> Stream:
    if is_ale(env):
        return ale_stream(env, frame_stack, options)
    if is_sb3(env):
        return sb3_stream(env, frame_stack, options)
    if frame_stack is not None:
        options = replace(options, frame_stack=frame_stack)
    if is_envpool(env):
        return EnvPoolStream(env, options)
    if isinstance(env, Lanes):
        return LanesStream(env, options)
    mode = _autoreset_mode(env)
    return SameStepStream(env, options) if mode is AutoresetMode.SAME_STEP else NextStepStream(env, options)


def _autoreset_mode(env: Any) -> AutoresetMode:
    """What the env's metadata say about the reset of an ended lane.

    Raises:
        ConfigurationError: nothing, or a mode that cannot be read.
    """
    given = env.metadata.get("autoreset_mode")
    name = type(env).__name__
    if given is None:
        raise ConfigurationError(
            f"{name}.metadata names no autoreset mode, so where an episode ends cannot be read safely; set "
            f"metadata['autoreset_mode'] = gymnasium.vector.AutoresetMode.NEXT_STEP (or SAME_STEP), whichever the "
            f"env does"
        )
    try:
        mode = AutoresetMode(given)
    except ValueError as error:
        raise ConfigurationError(
            f"{name}.metadata['autoreset_mode'] is {given!r}; allowed: NEXT_STEP, SAME_STEP"
        ) from error
    if mode is AutoresetMode.DISABLED:
        raise ConfigurationError(
            f"{name} has autoreset DISABLED, so nobody would reset an ended lane; make it with "
            f"autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP"
        )
    return mode
