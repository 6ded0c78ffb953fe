"""`open_stream`: a `Stream` of rows from any supported kind of environment.

Only the modules of this folder read autoreset modes. To add a kind of vector environment, write a subclass of `Stream`, and name it
here in `has_lanes`, `_make_stream` and `ALLOWED`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv

from sb_dqn.envs.atari import is_atari, make_atari_env
from sb_dqn.envs.make import make_vec_env, spec_of
from sb_dqn.envs.stream_options import StreamOptions, options_of
from sb_dqn.envs.streams.base import Stream
from sb_dqn.envs.streams.cpp_vector import EnvPoolStream, ale_stream, is_ale, is_envpool
from sb_dqn.envs.streams.gymnasium_vector import NextStepStream, SameStepStream
from sb_dqn.envs.streams.recorded import RecordedEpisodes, RecordedStream
from sb_dqn.envs.streams.sb3 import check_wrapped, is_sb3, sb3_stream
from sb_dqn.envs.streams.sync_vector import SyncVectorStream
from sb_dqn.envs.streams.training_env import env_itself
from sb_dqn.envs.vector.sync_env import Lanes
from sb_dqn.errors import ConfigurationError
from sb_dqn.types import EnvLike

__all__ = ["Stream", "StreamOptions", "has_lanes", "open_stream", "opened_here"]

ALLOWED = (
    "an id, a gymnasium.Env, a list of factories, a gymnasium VectorEnv with NEXT_STEP or SAME_STEP autoreset, "
    "an EnvPool env (env_type='gymnasium'), a Stable-Baselines3 VecEnv, or RecordedEpisodes"
)


def open_stream(
    env: EnvLike,
    *,
    num_envs: int | None = None,
    seed: int | None = None,
    frame_stack: int | None = None,
    options: StreamOptions | None = None,
    action_mask: str | None = None,
) -> Stream:
    """Opens an environment of any supported kind as a stream of rows.

    Args:
        env: an id, a gymnasium.Env, a list of factories, a VectorEnv (NEXT_STEP or SAME_STEP), an EnvPool env, a
            Stable-Baselines3 VecEnv, or a stream, which is returned unchanged.
        num_envs: number of lanes B for an id or one factory; for other envs None or their own number.
        seed: seed of the first `begin`.
        frame_stack: number of frames K stacked by the library; None is 4 for Atari ids, the K of a `VecFrameStack` of images,
            else that of the options. 1 stores the stacks of an environment whole.
        options: stream options; None takes the env's own `stream_options`, or the defaults. Not for the id of an Atari game.
        action_mask: "info", or the key of a Dict observation with the legal actions; None takes that of the options.

    Raises:
        ConfigurationError: the env is not supported; the message contains the fix.
    """
    env = env_itself(env)
    if isinstance(env, Stream):
        _check_unchanged(env, frame_stack=frame_stack, options=options, action_mask=action_mask)
        return _seeded(env, num_envs, seed)
    if isinstance(env, str):
        atari = is_atari(spec_of(env))
        if atari and options is not None:
            raise ConfigurationError(
                f"options must be None for the id of an Atari game, whose protocol sets them, got {options}. Pass "
                f"make_atari_env({env!r}, protocol=..., clip_reward=...) instead of the id."
            )
        env = make_atari_env(env, num_envs or 1, frame_stack=frame_stack) if atari else make_vec_env(env, num_envs or 1)
    env = _vectorized(env, num_envs or 1)
    options = options or options_of(env) or StreamOptions()
    if action_mask is not None:
        options = replace(options, action_mask=action_mask)
    return _seeded(_make_stream(env, frame_stack, options), num_envs, seed)


def has_lanes(env: EnvLike) -> bool:
    """Returns True for an environment of several lanes, which is opened as it is; a stream is none."""
    return isinstance(env, (VectorEnv, RecordedEpisodes)) or is_sb3(env) or is_envpool(env)


def opened_here(env: EnvLike) -> bool:
    """Returns True if `open_stream` creates the environment, so that the caller must close the stream."""
    return isinstance(env, (str, list, tuple)) or callable(env)


def _check_unchanged(stream: Stream, **arguments: object) -> None:
    """Raises an error on arguments that differ from the options of a stream that is already open."""
    options = stream.options
    current = {"frame_stack": options.frame_stack, "options": options, "action_mask": options.action_mask}
    changed = [f"{name}={value!r}" for name, value in arguments.items() if value not in (None, current[name])]
    if changed:
        raise ConfigurationError(
            f"arguments for an open stream must be those of its {options}, got {', '.join(changed)}. Pass them to the first "
            f"open_stream()."
        )


def _seeded(stream: Stream, num_envs: int | None, seed: int | None) -> Stream:
    """Checks `num_envs`, and sets the seed of the first `begin`."""
    if num_envs is not None and num_envs != stream.num_envs:
        raise ConfigurationError(
            f"num_envs must be the environment's number of lanes, {stream.num_envs}, got {num_envs}. Leave num_envs out."
        )
    if seed is not None:
        stream.first_seed = seed
    return stream


def _vectorized(env: EnvLike, num_envs: int) -> EnvLike:
    """Returns the env itself if it has lanes, else `Lanes` of it."""
    if is_sb3(env):
        check_wrapped(env)
    if has_lanes(env):
        return env
    if isinstance(env, gymnasium.Env):
        return Lanes([lambda: env])
    if isinstance(env, Sequence) and all(callable(make) for make in env):
        return Lanes(env)
    if callable(env):
        factory: Callable[[], EnvLike] = env
        return Lanes([factory] * num_envs)
    fix = "Pass one of these"
    if getattr(env, "possible_agents", None):
        fix = "Wrap it: sb_dqn.envs.PettingZooLanes(env)"
    elif getattr(env, "ac_space", None) is not None:  # of gym3, as Procgen's own package makes
        fix = "Procgen is in EnvPool: envpool.make('CoinrunEasy-v0', env_type='gymnasium', num_envs=64)"
    raise ConfigurationError(f"env must be {ALLOWED}, got {type(env).__name__}. {fix}.")


def _make_stream(env: EnvLike, frame_stack: int | None, options: StreamOptions) -> Stream:
    if is_ale(env):
        return ale_stream(env, frame_stack, options)
    if is_sb3(env):
        return sb3_stream(env, frame_stack, options)
    if frame_stack is not None:
        options = replace(options, frame_stack=frame_stack)
    if is_envpool(env):
        return EnvPoolStream(env, options)
    if isinstance(env, RecordedEpisodes):
        return RecordedStream(env, options)
    if isinstance(env, Lanes):
        return SyncVectorStream(env, options)
    mode = _autoreset_mode(env)
    return SameStepStream(env, options) if mode is AutoresetMode.SAME_STEP else NextStepStream(env, options)


def _autoreset_mode(env: EnvLike) -> AutoresetMode:
    """Returns the autoreset mode in the env's metadata."""
    value = env.metadata.get("autoreset_mode")
    name = f"{type(env).__name__}.metadata['autoreset_mode']"
    if value is None:
        raise ConfigurationError(
            f"{name} must be NEXT_STEP or SAME_STEP, got none. Set it to gymnasium.vector.AutoresetMode.NEXT_STEP or "
            f"SAME_STEP, according to when the env resets an ended lane."
        )
    try:
        mode = AutoresetMode(value)
    except ValueError as error:
        raise ConfigurationError(f"{name} must be NEXT_STEP or SAME_STEP, got {value!r}. Use one of them.") from error
    if mode is AutoresetMode.DISABLED:
        raise ConfigurationError(
            f"{name} must be NEXT_STEP or SAME_STEP, got DISABLED, which never resets an ended lane. Make the env with "
            f"autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP."
        )
    return mode
