"""Env steps per second of training in the steady state, for this library and Stable-Baselines3 through the same calls."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from scripts.benchmarks.machine import finish_kernels


def train(
    library: str,
    policy: str,
    env: str,
    settings: Mapping[str, Any],
    *,
    warm_up: int,
    steps: int,
    lanes: int = 1,
    threads: int | None = None,
    algorithm: str = "DQN",
    device: str = "cpu",
) -> dict[str, float]:
    """Learns for `warm_up` env steps, then measures `steps` further ones with `reset_num_timesteps=False`.

    The warm-up is past `learning_starts` and holds whatever is traced or compiled; it is at least a ninth of the whole,
    so that epsilon has come down to its last value on both sides.

    Args:
        library: "sb_dqn" or "sb3".
        policy: alias.
        env: id; `...NoFrameskip-v4` gets the library's own Atari preprocessing (84 x 84, four frames stacked).
        settings: keywords of the algorithm.
        warm_up: env steps, not measured.
        steps: env steps, measured.
        lanes: environments side by side.
        threads: of torch; None leaves the default.
        algorithm: class of both libraries.
        device: of the networks.

    Returns:
        Env steps per second, and the gradient steps that were made for each.
    """
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    build = {"sb_dqn": _ours, "sb3": _sb3}[library]
    model = build(algorithm, policy, env, lanes, {"seed": 0, "device": device, **settings})
    model.learn(warm_up)
    finish_kernels()
    steps_before, updates_before = model.num_timesteps, model._n_updates
    start = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    finish_kernels()
    seconds = time.perf_counter() - start
    made = model.num_timesteps - steps_before
    updates = model._n_updates - updates_before
    if (library, algorithm) == ("sb3", "PPO"):  # which counts epochs
        updates *= -(-model.n_steps * lanes // model.batch_size)
    return {"": made / seconds, "updates/step": updates / made}


def _ours(algorithm: str, policy: str, env: str, lanes: int, settings: Mapping[str, Any]) -> Any:
    import sb_dqn
    from sb_dqn import make_atari_env, make_vec_env

    made: Any = make_atari_env(env, lanes, protocol="classic") if "NoFrameskip" in env else make_vec_env(env, lanes)
    return getattr(sb_dqn, algorithm)(policy, made, **settings)


def _sb3(algorithm: str, policy: str, env: str, lanes: int, settings: Mapping[str, Any]) -> Any:
    import stable_baselines3
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    made_of = getattr(stable_baselines3, algorithm, None) or getattr(import_module("sb3_contrib"), algorithm)
    if "NoFrameskip" not in env:
        return made_of(policy, make_vec_env(env, lanes), **settings)
    import ale_py  # noqa: F401 - registers its ids

    return made_of(policy, VecFrameStack(make_atari_env(env, lanes), 4), **settings)
