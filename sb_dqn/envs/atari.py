"""Atari environments on ale_py's C++ `AtariVectorEnv`: single grey 84 x 84 frames, raw scores, named protocols."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gymnasium.vector import AutoresetMode

from sb_dqn.checks import check_bool, check_choice, check_int, check_mapping
from sb_dqn.envs.make import make_vec_env, spec_of
from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.vector.atari_env import AtariLanes
from sb_dqn.envs.vector.sync_env import Lanes
from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.types import Settings

PROTOCOLS: Mapping[str, Settings] = {
    "classic": {"repeat_action_probability": 0.0, "noop_max": 30},
    "sticky": {"repeat_action_probability": 0.25, "noop_max": 0},
}
"""classic: Mnih et al. 2015, random no-op starts. sticky: Machado et al. 2018, arXiv:1709.06009, no no-op starts."""
RESERVED = (
    "stack_num", "reward_clipping", "episodic_life", "life_loss_info", "autoreset_mode", "batch_size", "game",
    "num_envs", "num_threads",
)  # fmt: skip
"""Arguments of AtariVectorEnv that `make_atari_env` sets itself or has under another name."""
SB3_KEYWORDS = {
    "wrapper_kwargs": "Use protocol=, frame_stack=, max_frames= or clip_reward= instead, since the wrappers are built in",
    "vec_env_cls": "Use num_threads= instead, since one C++ environment runs all lanes",
    "vec_env_kwargs": "Use num_threads= or env_kwargs= instead, since one C++ environment runs all lanes",
    "wrapper_class": "Use make_vec_env instead, since one C++ environment runs all lanes and single lanes cannot be wrapped",
    "monitor_kwargs": "Use monitor_dir= instead",
}
"""Keywords of Stable-Baselines3's make_atari_env and make_vec_env, with their replacements."""
GYMNASIUM_KEYS = ("mode", "difficulty", "obs_type", "render_mode", "sound_obs")
"""Keywords that only gymnasium.make supports; `obs_type` states that its raw observations are intended."""


def is_atari(spec: Any) -> bool:
    """Returns True for a gymnasium spec of ale_py."""
    return str(spec.entry_point).startswith("ale_py")


def protocol_of(spec: Any) -> str:
    """Returns the protocol of an id: "classic" (`...NoFrameskip-v4`), "sticky" (`ALE/...-v5`), "" for the others."""
    if spec.kwargs.get("frameskip") == 1:
        return "classic"
    return "sticky" if spec.vector_entry_point is not None else ""


def default_threads(num_envs: int) -> int:
    """Returns the number of cores of this process, at most `num_envs`."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return min(num_envs, cores)


def make_atari_env(
    env_id: str,
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: str | Path | None = None,
    *,
    protocol: str | None = None,
    frame_stack: int | None = None,
    num_threads: int | None = None,
    max_frames: int | None = None,
    env_kwargs: Settings | None = None,
    exact_resume: bool = False,
    clip_reward: bool | None = None,
    **unknown: object,
) -> AtariLanes | Lanes:
    """Makes Atari lanes with single frames `[1, 84, 84]`, which replay buffer and actor stack.

    Args:
        env_id: id such as `ALE/Pong-v5` or `PongNoFrameskip-v4`. `Pong-v0`, `Pong-v4` and games with the `env_kwargs` `mode`,
            `difficulty`, `obs_type`, `render_mode`, `sound_obs` are made by gymnasium.make, per lane without preprocessing.
        n_envs: number of lanes B, >= 1.
        seed: seed of the first reset, >= 0; lane b gets seed + b.
        start_index: number of the first lane in the names of monitor files.
        monitor_dir: folder for one `*.monitor.csv` per lane, with raw scores.
        protocol: "classic" (no sticky actions, terminal on life loss, clipped reward, FIRE after a lost life) or
            "sticky" (repeats the last action with probability 0.25, a lost life is not terminal, clipped reward; as in
            Machado et al. 2018 with `env_kwargs=dict(full_action_space=True)`). If None, the id determines it.
        frame_stack: number of frames K; None is 4, and 1 for games made by gymnasium.make, which support no other.
        num_threads: number of emulator threads; None takes all cores, at most one per lane.
        max_frames: emulator frames after which a game is truncated; None takes the id's limit (108,000, half an hour).
        env_kwargs: further arguments of AtariVectorEnv.
        exact_resume: starts each game from its own seed (about 0.1 s a game), so that full checkpoints hold the games under
            way as seeds and actions, and a resumed run continues exactly.
        clip_reward: learns from the signs of rewards, as both protocols do; scores are always raw. None is True, and False
            for games made by gymnasium.make, which support no other.

    Raises:
        ConfigurationError: unknown id, protocol or keyword, a number out of range, or preprocessing together with keywords
            that only gymnasium.make supports.
    """
    _check_unknown(unknown)
    spec, kwargs = spec_of(env_id), check_mapping("env_kwargs", env_kwargs)
    if not is_atari(spec):
        raise ConfigurationError(f"env_id must be an Atari game of ale_py, got {env_id!r}. Use make_vec_env for it.")
    n_envs = check_int("n_envs", n_envs, 1)
    stacked = check_int("frame_stack", 4 if frame_stack is None else frame_stack, 1)
    clipped = check_bool("clip_reward", True if clip_reward is None else clip_reward)
    seed = None if seed is None else check_int("seed", seed, 0)
    max_frames = None if max_frames is None else check_int("max_frames", max_frames, 1)
    if max_frames is not None and "max_num_frames_per_episode" in kwargs:
        raise ConfigurationError(
            f"max_frames must be None with env_kwargs['max_num_frames_per_episode'], which is the same, got {max_frames} and "
            f"{kwargs['max_num_frames_per_episode']}. Remove one of both."
        )
    if plain_keys(kwargs) or not protocol_of(spec):
        requested = {"protocol": protocol, "exact_resume": exact_resume or None, "num_threads": num_threads}
        requested |= {"frame_stack": None if stacked == 1 else frame_stack, "clip_reward": clip_reward or None}
        _check_plain(env_id, spec, kwargs, {name: value for name, value in requested.items() if value is not None})
        if frame_stack is None and protocol_of(spec) and "obs_type" not in kwargs:
            fix = f"Leave {', '.join(plain_keys(kwargs))} out, or confirm the raw observations with obs_type='rgb'"
            warnings.warn(f"{unprocessed(env_id, kwargs)}. {fix}.", stacklevel=2)
        if max_frames is not None:
            kwargs["max_num_frames_per_episode"] = max_frames
        plain: Lanes = make_vec_env(env_id, n_envs, seed, start_index, monitor_dir, env_kwargs=kwargs)
        return plain
    protocol = check_choice("protocol", protocol_of(spec) if protocol is None else protocol, PROTOCOLS)
    settings = {
        **PROTOCOLS[protocol],
        "max_num_frames_per_episode": max_frames or spec.kwargs["max_num_frames_per_episode"],
        **kwargs,
    }
    threads = default_threads(n_envs) if num_threads is None else check_int("num_threads", num_threads, 0)
    env = _vector_env(spec.kwargs["game"], n_envs, threads, settings)
    actions = [action.name for action in env.ale.get_action_set()]
    classic = protocol == "classic"
    options = StreamOptions(
        clip_reward=clipped,
        terminal_on_life_loss=classic,
        fire_after_life_loss=classic and "FIRE" in actions,
        frame_stack=stacked,
        protocol=protocol,
    )
    lanes = AtariLanes(env, options, actions, seed, exact_resume)
    lanes.spec = spec
    if monitor_dir is not None:
        lanes.watch(monitor_dir, env_id, start_index)
    return lanes


def plain_keys(kwargs: Settings) -> list[str]:
    """Returns the keys of `kwargs` that only gymnasium.make supports."""
    return [key for key in GYMNASIUM_KEYS if key in kwargs]


def unprocessed(env_id: str, kwargs: Settings) -> str:
    """Describes the preprocessing that is missing because of the `plain_keys` of `kwargs`."""
    settings = ", ".join(f"{key}={kwargs[key]!r}" for key in plain_keys(kwargs))
    return (
        f"{env_id} with {settings} is made by gymnasium.make: its observations are neither scaled to 84 x 84 nor stacked, its "
        f"rewards not clipped"
    )


def _check_plain(env_id: str, spec: Any, kwargs: Settings, requested: Settings) -> None:
    """Raises on features of the C++ vector env where gymnasium.make makes the game."""
    if not requested:
        return
    settings = ", ".join(f"{name}={value!r}" for name, value in requested.items())
    keys = ", ".join(plain_keys(kwargs))
    fixes = [f"leave {keys} out of env_kwargs"] if keys else []
    if not protocol_of(spec):
        game = "".join(part.title() for part in spec.kwargs["game"].split("_"))
        fixes.append(f"use the id ALE/{game}-v5")
    names = ", ".join(requested)
    fix = f"{' and '.join(fixes)}, or leave {names} out"
    raise ConfigurationError(
        f"{names} must not be set for {env_id}{keys and f' with {keys}'}, which ale_py's C++ vector env cannot make, "
        f"got {settings}. {fix[0].upper()}{fix[1:]}."
    )


def _check_unknown(unknown: Settings) -> None:
    allowed = [name for name in inspect.signature(make_atari_env).parameters if name != "unknown"]
    for name, value in unknown.items():
        if name in SB3_KEYWORDS:
            raise ConfigurationError(f"{name} must be unset for make_atari_env, got {value!r}. {SB3_KEYWORDS[name]}.")
        raise ConfigurationError(
            f"keywords of make_atari_env must be among {sorted(allowed)}, got {name!r}. Use one of "
            f"them.{nearest(name, allowed)}"
        )


def _vector_env(game: str, n_envs: int, threads: int, settings: Settings) -> Any:
    from ale_py.vector_env import AtariVectorEnv  # here, so that importing this module does not load the emulator

    fixed = [key for key in settings if key in RESERVED]
    if fixed:
        raise ConfigurationError(
            f"env_kwargs must not contain {', '.join(RESERVED)}, got {fixed}. Use protocol=, frame_stack=, clip_reward=, n_envs=, "
            f"num_threads=."
        )
    try:
        return AtariVectorEnv(
            game,
            n_envs,
            num_threads=threads,
            autoreset_mode=AutoresetMode.NEXT_STEP,
            stack_num=1,
            reward_clipping=False,
            episodic_life=False,
            life_loss_info=False,
            **settings,
        )
    except TypeError as error:
        raise ConfigurationError(
            f"env_kwargs must be arguments of AtariVectorEnv, got {dict(settings)} ({error}). Remove the others."
        ) from error
