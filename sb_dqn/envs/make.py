"""Vector envs by id, with Stable-Baselines3's `make_vec_env`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from sb_dqn.checks import check_int, check_keys, check_mapping
from sb_dqn.envs.answers import check_env
from sb_dqn.envs.indices import SyncLanes
from sb_dqn.envs.lanes import Env, Lanes
from sb_dqn.envs.minatar import MinAtarGame, is_minatar, register_minatar
from sb_dqn.envs.monitor import Monitor, results_begun_anew
from sb_dqn.envs.renewed_workers import worker_lanes
from sb_dqn.envs.seed_only import taking_options
from sb_dqn.errors import ConfigurationError, nearest

BACKENDS: Mapping[str, Callable[..., Any]] = {"lanes": Lanes, "sync": SyncLanes, "async": worker_lanes}


def _keywords(made_by: Callable[..., Any]) -> list[str]:
    """What it takes beside its first argument."""
    parameters = list(inspect.signature(made_by).parameters.values())[1:]
    return [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]


KEYWORDS: Mapping[Callable[..., Any], Sequence[str]] = {
    Lanes: _keywords(Lanes),
    SyncVectorEnv: _keywords(SyncVectorEnv),
    SyncLanes: _keywords(SyncVectorEnv),
    worker_lanes: [*_keywords(worker_lanes), *_keywords(AsyncVectorEnv)],
}
"""Backend to what may stand in `vec_env_kwargs`; a class of the user's own says it itself."""


def spec_of(env_id: str) -> Any:
    """gymnasium's spec of an id; the Atari and MinAtar ids are registered when an id is not known otherwise.

    Raises:
        ConfigurationError: unknown id, the nearest registered ones are offered; or its package is missing.
    """
    module, _, name = env_id.rpartition(":")
    if name not in gymnasium.registry and not module:
        if name.startswith("sb_dqn/"):
            importlib.import_module("sb_dqn.envs.memory")  # registers its ids when imported
        register_minatar(name)
        importlib.import_module("ale_py")  # registers its ids when imported
    try:
        if module:
            importlib.import_module(module)
        return gymnasium.spec(name)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        known = nearest(name, gymnasium.registry)
        raise ConfigurationError(
            f"unknown environment {env_id!r} ({error}).{known} "
            f"Allowed: any id that gymnasium has registered, 'module:id' to import a module first, or an "
            f"environment itself"
        ) from error


def make_env(env_id: str | Callable[..., Env], kwargs: Mapping[str, Any] | None = None) -> Env:
    """One env by id or factory.

    Raises:
        ConfigurationError: unknown id, keyword that the env does not take, or a package that the env needs is missing.
    """
    if not isinstance(env_id, str) and not callable(env_id):
        raise ConfigurationError(f"env_id={env_id!r} is not allowed: give the id of an environment, or a factory")
    kwargs = check_mapping("env_kwargs", kwargs)
    if not isinstance(env_id, str):
        return env_id(**kwargs)
    spec = spec_of(env_id)
    try:
        made = gymnasium.make(spec, **kwargs)
        return MinAtarGame(made) if is_minatar(spec) else made
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise ConfigurationError(f"environment {env_id!r} needs a package that is not installed: {error}") from error
    except TypeError as error:
        if not kwargs:
            raise
        raise ConfigurationError(f"environment {env_id!r} does not take env_kwargs={dict(kwargs)}: {error}") from error


def make_vec_env(
    env_id: str | Callable[..., Env],
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: str | Path | None = None,
    wrapper_class: Callable[..., Env] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    vec_env_cls: str | Callable[..., Any] | None = None,
    vec_env_kwargs: Mapping[str, Any] | None = None,
    monitor_kwargs: Mapping[str, Any] | None = None,
    wrapper_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """A vector env of `n_envs` equal lanes.

    Args:
        env_id: id, or a factory that takes `env_kwargs`.
        n_envs: lanes.
        seed: of the first reset; lane b gets seed + b.
        start_index: number of the first lane in the names of monitor files and the seeds of action spaces.
        monitor_dir: folder for one monitor file per lane; without it, and without `monitor_kwargs`, no Monitor is put
            around the lanes (episodes are counted by the training loop).
        wrapper_class: put around each lane, outside the Monitor.
        vec_env_cls: "lanes" (the default: all lanes in this process), "sync", "async" (a process for each lane),
            "vector" (the env's own vectorised form), or a class that takes a list of factories.
        vec_env_kwargs: for it; "lanes" and "async" take `on_env_error="restart"`: a lane that raises is made anew and its
            episode counts as truncated; with "async" all of them, when one raises, dies or hangs (`step_timeout`).

    Raises:
        ConfigurationError: unknown id, missing package, or a number out of range.
    """
    n_envs, start_index = check_int("n_envs", n_envs, 1), check_int("start_index", start_index, 0)
    seed = None if seed is None else check_int("seed", seed, 0)
    env_kwargs, vec_env_kwargs = (
        check_mapping("env_kwargs", env_kwargs),
        check_mapping("vec_env_kwargs", vec_env_kwargs),
    )
    if vec_env_cls == "vector":
        return _vectorised(env_id, n_envs, seed, {**env_kwargs, **vec_env_kwargs}, wrapper_class or monitor_dir)
    make = _backend(vec_env_cls)
    if make in KEYWORDS:
        check_keys("vec_env_kwargs", vec_env_kwargs, KEYWORDS[make])
    watching = check_keys("monitor_kwargs", monitor_kwargs, _keywords(Monitor)[1:])  # the file is said by monitor_dir
    around = check_mapping("wrapper_kwargs", wrapper_kwargs)
    files = {start_index + lane: _monitor_file(monitor_dir, start_index + lane) for lane in range(n_envs)}
    begins = watching.pop("override_existing", True)

    def lane(rank: int) -> Env:
        env = make_env(env_id, env_kwargs)
        check_env(env, rank - start_index)
        env = taking_options(env)
        if seed is not None:
            env.action_space.seed(seed + rank)
        if monitor_dir is not None or monitor_kwargs is not None:
            env = Monitor(env, files[rank], **watching, override_existing=False)
        return wrapper_class(env, **around) if wrapper_class is not None else env

    if isinstance(env_id, str):
        spec_of(env_id)  # an unknown id is reported here, not from inside another process
    old = [file for file in files.values() if file is not None and begins]
    with results_begun_anew(old):  # here, because a lane that is made anew goes on with its file
        env = make([partial(lane, rank) for rank in files], **vec_env_kwargs)
    return _seeded(env, seed)


def _monitor_file(folder: str | Path | None, rank: int) -> str | None:
    return None if folder is None else str(Path(folder) / str(rank))


def _backend(vec_env_cls: str | Callable[..., Any] | None) -> Callable[..., Any]:
    if vec_env_cls is None:
        return Lanes
    if callable(vec_env_cls):
        return vec_env_cls
    if vec_env_cls not in tuple(BACKENDS):
        allowed = [*BACKENDS, "vector"]
        raise ConfigurationError(
            f"vec_env_cls={vec_env_cls!r}; allowed: {allowed} or a class.{nearest(str(vec_env_cls), allowed)}"
        )
    return BACKENDS[vec_env_cls]


def _seeded(env: Any, seed: int | None) -> Any:
    """The env, whose first reset will be seeded: now where it cannot remember a seed for later."""
    if seed is None:
        return env
    if isinstance(env, Lanes):
        env.first_seed = seed
    elif callable(own := getattr(env, "seed", None)):  # Stable-Baselines3's VecEnv keeps it for the next reset
        own(seed)
    else:
        env.reset(seed=seed)
    return env


def _vectorised(
    env_id: str | Callable[..., Env], n_envs: int, seed: int | None, kwargs: dict[str, Any], lane_wrapper: Any
) -> Any:
    if not isinstance(env_id, str) or lane_wrapper is not None:
        raise ConfigurationError(
            "vec_env_cls='vector' takes an env id and neither wrapper_class nor monitor_dir: there are no single "
            "lanes to wrap"
        )
    spec = spec_of(env_id)
    try:
        env = gymnasium.make_vec(spec, num_envs=n_envs, vectorization_mode="vector_entry_point", **kwargs)
    except gymnasium.error.Error as error:
        raise ConfigurationError(
            f"environment {env_id!r} has no vectorised form ({error}); use vec_env_cls='lanes'"
        ) from error
    return _seeded(env, seed)
