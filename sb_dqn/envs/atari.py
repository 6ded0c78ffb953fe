"""Atari on ale_py's C++ `AtariVectorEnv`: single grey frames 84x84, raw scores, protocols by name."""

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
from sb_dqn.envs.streams.options import StreamOptions
from sb_dqn.envs.vector.atari_env import AtariLanes
from sb_dqn.envs.vector.sync_env import Lanes
from sb_dqn.errors import ConfigurationError, nearest

PROTOCOLS: Mapping[str, Mapping[str, Any]] = {
    "classic": {"repeat_action_probability": 0.0, "noop_max": 30},
    "sticky": {"repeat_action_probability": 0.25, "noop_max": 0},
}
"""classic: Mnih et al. 2015, random no-op starts. sticky: Machado et al. 2018, arXiv:1709.06009, without them."""
OURS = (
    "stack_num",
    "reward_clipping",
    "episodic_life",
    "life_loss_info",
    "autoreset_mode",
    "batch_size",
    "game",
    "num_envs",
    "num_threads",
)
"""What of AtariVectorEnv's arguments belongs to the stream's contract, or has a name of its own here."""
THEIRS = {
    "wrapper_kwargs": "the wrappers are built in; give protocol=, frame_stack=, max_frames= or clip_reward=",
    "vec_env_cls": "one C++ environment plays all lanes; give num_threads=",
    "vec_env_kwargs": "one C++ environment plays all lanes; give num_threads= or env_kwargs=",
    "wrapper_class": "one C++ environment plays all lanes, none can be wrapped alone; use make_vec_env for that",
    "monitor_kwargs": "give monitor_dir=",
}
"""Keywords of Stable-Baselines3's make_atari_env and make_vec_env, and what stands for them."""
PLAIN = ("mode", "difficulty", "obs_type", "render_mode", "sound_obs")
"""What only gymnasium.make can do; `obs_type` alone says that its raw observations are meant."""


def is_atari(spec: Any) -> bool:
    """Whether a gymnasium spec is one of ale_py's."""
    return str(spec.entry_point).startswith("ale_py")


def protocol_of(spec: Any) -> str:
    """The protocol that an id means: "classic" (`...NoFrameskip-v4`), "sticky" (`ALE/...-v5`), "" for the others."""
    if spec.kwargs.get("frameskip") == 1:
        return "classic"
    return "sticky" if spec.vector_entry_point is not None else ""


def default_threads(num_envs: int) -> int:
    """All cores that this process may use, but not more than lanes."""
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
    env_kwargs: Mapping[str, Any] | None = None,
    exact_resume: bool = False,
    clip_reward: bool | None = None,
    **unknown: Any,
) -> AtariLanes | Lanes:
    """Atari lanes of single frames `[1, 84, 84]`, which ring and actor stack.

    Args:
        env_id: `ALE/Pong-v5`, `PongNoFrameskip-v4`; `Pong-v0`, `Pong-v4` and the keywords `mode`, `difficulty`,
            `obs_type`, `render_mode`, `sound_obs` are made by gymnasium.make, lane by lane and without preprocessing.
        n_envs: lanes.
        seed: of the first reset; lane b gets seed + b.
        start_index: number of the first lane in the names of monitor files.
        monitor_dir: folder for one `*.monitor.csv` per lane, with raw scores.
        protocol: "classic" (no sticky actions, terminal on life loss, clipped reward, FIRE after a lost life) or
            "sticky" (repeats the last action with probability 0.25, a lost life ends nothing, clipped reward; with
            `env_kwargs=dict(full_action_space=True)` as in Machado et al. 2018). None: as the id says.
        frame_stack: K; None is 4, and 1 for games that gymnasium.make makes, which allow nothing else.
        num_threads: of the emulators; None takes all cores, at most one per lane.
        max_frames: emulator frames after which a game is truncated; None is what the id says (108,000, half an hour).
        env_kwargs: further arguments of AtariVectorEnv.
        exact_resume: each game begins from a seed of its own (about 0.1 s a game), so that full checkpoints hold the games
            under way as seeds and actions, and a resumed run plays on as if nothing had happened.
        clip_reward: learn from the signs of rewards, as both protocols do; scores are raw in any case. None is True, and
            False for games that gymnasium.make makes, which allow nothing else.

    Raises:
        ConfigurationError: unknown id, protocol or keyword, a number out of range, or preprocessing that was asked for
            together with what only gymnasium.make can do.
    """
    _refuse_unknown(unknown)
    spec, kwargs = spec_of(env_id), check_mapping("env_kwargs", env_kwargs)
    if not is_atari(spec):
        raise ConfigurationError(f"{env_id!r} is not an Atari game of ale_py; use make_vec_env for it")
    n_envs = check_int("n_envs", n_envs, 1)
    stacked = check_int("frame_stack", 4 if frame_stack is None else frame_stack, 1)
    clipped = check_bool("clip_reward", True if clip_reward is None else clip_reward)
    seed = None if seed is None else check_int("seed", seed, 0)
    max_frames = None if max_frames is None else check_int("max_frames", max_frames, 1)
    if plain_keys(kwargs) or not protocol_of(spec):
        asked = {"protocol": protocol, "exact_resume": exact_resume or None, "num_threads": num_threads}
        asked |= {"frame_stack": None if stacked == 1 else frame_stack, "clip_reward": clip_reward or None}
        _check_plain(env_id, spec, kwargs, {name: value for name, value in asked.items() if value is not None})
        if frame_stack is None and protocol_of(spec) and "obs_type" not in kwargs:
            fix = f"leave {', '.join(plain_keys(kwargs))} out, or say that this is meant: obs_type='rgb'"
            warnings.warn(f"{unprocessed(env_id, kwargs)}; {fix}", stacklevel=2)
        return _plain(env_id, n_envs, seed, start_index, monitor_dir, max_frames, kwargs)
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


def plain_keys(kwargs: Mapping[str, Any]) -> list[str]:
    """Those of `kwargs` that only gymnasium.make can do."""
    return [key for key in PLAIN if key in kwargs]


def unprocessed(env_id: str, kwargs: Mapping[str, Any]) -> str:
    """What is lost by the `plain_keys` of `kwargs`."""
    given = ", ".join(f"{key}={kwargs[key]!r}" for key in plain_keys(kwargs))
    return (
        f"{env_id} with {given} is made by gymnasium.make: its observations are neither scaled to 84 x 84 nor stacked, its "
        f"rewards not clipped"
    )


def _check_plain(env_id: str, spec: Any, kwargs: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuses what only the C++ vector env can do, where gymnasium.make makes the game.

    Raises:
        ConfigurationError: `asked` is not empty.
    """
    if not asked:
        return
    own, keys = ", ".join(f"{name}={value!r}" for name, value in asked.items()), ", ".join(plain_keys(kwargs))
    fixes = [f"leave {keys} out of env_kwargs"] if keys else []
    fixes += [] if protocol_of(spec) else [f"take the id {_preprocessed_id(spec)}"]
    raise ConfigurationError(
        f"{own}: only ale_py's C++ vector env can do that, and it cannot make {env_id}{keys and f' with {keys}'}; "
        f"{' and '.join(fixes)}, or set {', '.join(asked)} to None"
    )


def _preprocessed_id(spec: Any) -> str:
    """The id of the same game that has a protocol."""
    game = "".join(part.title() for part in spec.kwargs["game"].split("_"))
    return f"ALE/{game}-v5"


def _refuse_unknown(unknown: Mapping[str, Any]) -> None:
    allowed = [name for name in inspect.signature(make_atari_env).parameters if name != "unknown"]
    for name in unknown:
        if name in THEIRS:
            raise ConfigurationError(f"make_atari_env takes no {name!r}: {THEIRS[name]}")
        raise ConfigurationError(
            f"make_atari_env takes no {name!r}.{nearest(name, allowed)} It takes {sorted(allowed)}"
        )


def _vector_env(game: str, n_envs: int, threads: int, settings: Mapping[str, Any]) -> Any:
    from ale_py.vector_env import AtariVectorEnv  # here, so that importing this module does not load the emulator

    fixed = [key for key in settings if key in OURS]
    if fixed:
        raise ConfigurationError(
            f"env_kwargs may not set {fixed}: frames are stacked, rewards clipped and lives read on our side; "
            f"use protocol=, frame_stack=, n_envs=, num_threads="
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
        raise ConfigurationError(f"AtariVectorEnv does not take {dict(settings)}: {error}") from error


def _plain(
    env_id: str,
    n_envs: int,
    seed: int | None,
    start: int,
    monitor_dir: str | Path | None,
    max_frames: int | None,
    kwargs: dict[str, Any],
) -> Lanes:
    if max_frames is not None:
        kwargs["max_num_frames_per_episode"] = max_frames
    made: Lanes = make_vec_env(env_id, n_envs, seed, start, monitor_dir, env_kwargs=kwargs)
    return made
