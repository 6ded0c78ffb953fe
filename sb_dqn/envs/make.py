"""`make_vec_env`: vector environments by id, with Stable-Baselines3's signature."""

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
from sb_dqn.envs import goal_tasks, memory_tasks, reward_units  # noqa: F401  # register their ids
from sb_dqn.envs.bsuite_tasks import register_bsuite
from sb_dqn.envs.minatar import MinAtarGame, is_minatar, register_minatar
from sb_dqn.envs.monitor import Monitor, replaced_monitor_files
from sb_dqn.envs.vector.env_checks import check_has_spaces
from sb_dqn.envs.vector.lane_indices import FirstSeed, SyncLanes
from sb_dqn.envs.vector.restarting_async_env import worker_lanes
from sb_dqn.envs.vector.seed_only import with_reset_options
from sb_dqn.envs.vector.sync_env import Lanes
from sb_dqn.envs.vector.worker_processes import WorkerReports, WorkerTraceback
from sb_dqn.errors import ConfigurationError, EnvironmentFault, import_extra, nearest
from sb_dqn.types import Env, EnvLike, Kwargs, Settings

BACKENDS: Mapping[str, Callable[..., EnvLike]] = {"lanes": Lanes, "sync": SyncLanes, "async": worker_lanes}


def _keywords(function: Callable[..., Any]) -> list[str]:
    """Returns the names of its arguments after the first."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]


KEYWORDS: Mapping[Callable[..., Any], Sequence[str]] = {
    Lanes: _keywords(Lanes),
    SyncVectorEnv: _keywords(SyncVectorEnv),
    SyncLanes: _keywords(SyncVectorEnv),
    worker_lanes: [*_keywords(worker_lanes), *_keywords(AsyncVectorEnv)],
}
"""Backend to the allowed keys of `vec_env_kwargs`; a user's own class checks them itself."""

PACKAGES: Mapping[str, Callable[[], object]] = {
    "MinAtar/": register_minatar,
    "popgym-": partial(import_extra, "popgym", "popgym", "for its environments"),
    "bsuite/": register_bsuite,
}
"""Start of an id to what registers the ids of its package."""


def spec_of(env_id: str) -> Any:
    """Returns gymnasium's spec of an id; registers the ids of its package if the id is not registered.

    Raises:
        ConfigurationError: unknown id (the message names the nearest ones), or its package is missing.
    """
    module, _, name = env_id.rpartition(":")
    if name not in gymnasium.registry and not module:
        for start, register_ids in PACKAGES.items():
            if name.startswith(start):
                register_ids()
        importlib.import_module("ale_py")  # registers its ids when imported
    try:
        if module:
            importlib.import_module(module)
        return gymnasium.spec(name)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        similar = "" if isinstance(error, ModuleNotFoundError) else nearest(name, gymnasium.registry)
        raise ConfigurationError(
            f"the environment must be an id registered with gymnasium, 'module:id' to import a module first, or an environment "
            f"object, got {env_id!r} ({error}). Check its spelling.{similar}"
        ) from error


EXTRAS = {"box2d": "box2d", "mujoco": "mujoco", "classic_control": "render"}
"""Part of the name of the module that defines an environment, to the extra of this package with its packages."""


def _extra_of(spec: Any) -> str:
    """Returns the fix for missing packages of an environment."""
    entry = str(spec.entry_point)
    extra = next((extra for part, extra in EXTRAS.items() if part in entry), None)
    return "Install the missing package." if extra is None else f"Run pip install 'sb_dqn[{extra}]'."


def make_env(env_id: str | Callable[..., Env], kwargs: Settings | None = None) -> Env:
    """Makes one env by id or factory.

    Raises:
        ConfigurationError: unknown id, a keyword that the env does not accept, or a missing package.
    """
    if not isinstance(env_id, str) and not callable(env_id):
        raise ConfigurationError(
            f"env_id must be the id of an environment, or a factory, got {env_id!r}. Pass one of these."
        )
    kwargs = check_mapping("env_kwargs", kwargs)
    if not isinstance(env_id, str):
        return env_id(**kwargs)
    spec = spec_of(env_id)
    try:
        env = gymnasium.make(spec, **kwargs)
        return MinAtarGame(env) if is_minatar(spec) else env
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise ConfigurationError(
            f"packages of environment {env_id!r} must be installed, got an import error ({error}). {_extra_of(spec)}"
        ) from error
    except TypeError as error:
        if not kwargs:
            raise
        raise ConfigurationError(
            f"env_kwargs must be arguments of {env_id!r}, got {dict(kwargs)} ({error}). Remove the others."
        ) from error


def make_vec_env(
    env_id: str | Callable[..., Env],
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: str | Path | None = None,
    wrapper_class: Callable[..., Env] | None = None,
    env_kwargs: Settings | None = None,
    vec_env_cls: str | Callable[..., EnvLike] | None = None,
    vec_env_kwargs: Settings | None = None,
    monitor_kwargs: Settings | None = None,
    wrapper_kwargs: Settings | None = None,
) -> EnvLike:
    """Makes a vector env of `n_envs` equal lanes.

    Args:
        env_id: id, or a factory that accepts `env_kwargs`.
        n_envs: number of lanes B, >= 1.
        seed: seed of the first reset, >= 0; lane b gets seed + b.
        start_index: number of the first lane in the names of monitor files and the seeds of action spaces.
        monitor_dir: folder for one monitor file per lane. Without it, and without `monitor_kwargs`, the lanes have no Monitor
            (the training loop counts episodes).
        wrapper_class: wrapper of each lane, outside the Monitor.
        env_kwargs: arguments of the env or the factory.
        vec_env_cls: "lanes" (the default: all lanes in this process), "sync", "async" (one process per lane), "vector" (the
            env's own vectorized form), or a class that accepts a list of factories.
        vec_env_kwargs: arguments of `vec_env_cls`. "lanes" and "async" accept `on_env_error="restart"`: a lane that raises is
            restarted and its episode counts as truncated; "async" restarts all lanes when one raises, dies or hangs
            (`step_timeout` in seconds).
        monitor_kwargs: arguments of the Monitor.
        wrapper_kwargs: arguments of `wrapper_class`.

    Raises:
        ConfigurationError: unknown id, missing package, or a number out of range.
        EnvironmentFault: an environment raised in its worker process.
    """
    n_envs = check_int("n_envs", n_envs, 1)
    start_index = check_int("start_index", start_index, 0)
    seed = None if seed is None else check_int("seed", seed, 0)
    env_kwargs = check_mapping("env_kwargs", env_kwargs)
    vec_env_kwargs = check_mapping("vec_env_kwargs", vec_env_kwargs)
    if vec_env_cls == "vector":
        of_lanes: dict[str, object] = {
            "wrapper_class": wrapper_class,
            "monitor_dir": monitor_dir,
            "monitor_kwargs": monitor_kwargs,
        }
        of_lanes |= {"wrapper_kwargs": wrapper_kwargs, "start_index": start_index or None}
        return _vectorized(env_id, n_envs, seed, {**env_kwargs, **vec_env_kwargs}, of_lanes)
    make = _backend(vec_env_cls)
    if make in KEYWORDS:
        check_keys("vec_env_kwargs", vec_env_kwargs, KEYWORDS[make])
    monitor_options = check_keys("monitor_kwargs", monitor_kwargs, _keywords(Monitor)[1:])  # monitor_dir sets the file
    wrapper_options = check_mapping("wrapper_kwargs", wrapper_kwargs)
    ranks = range(start_index, start_index + n_envs)
    files = {rank: None if monitor_dir is None else str(Path(monitor_dir) / str(rank)) for rank in ranks}
    override_existing = monitor_options.pop("override_existing", True)

    def lane(rank: int) -> Env:
        env = make_env(env_id, env_kwargs)
        check_has_spaces(env, rank - start_index)
        env = with_reset_options(env)
        if seed is not None:
            env.action_space.seed(seed + rank)
        if monitor_dir is not None or monitor_kwargs is not None:
            env = Monitor(env, files[rank], **monitor_options, override_existing=False)
        return wrapper_class(env, **wrapper_options) if wrapper_class is not None else env

    if isinstance(env_id, str):
        spec_of(env_id)  # raises on an unknown id here, not in another process
    replaced = [file for file in files.values() if file is not None and override_existing]
    with replaced_monitor_files(replaced):  # not in the Monitor, because a restarted lane appends to its file
        env = _made(make, [partial(lane, rank) for rank in files], vec_env_kwargs)
    return _seeded(env, seed)


def _made(make: Callable[..., EnvLike], env_fns: Sequence[Callable[[], Env]], kwargs: Settings) -> EnvLike:
    """Returns a vector env of the lanes; exceptions that end its worker processes, if it has some, are kept for its errors."""
    if make in (Lanes, SyncLanes, SyncVectorEnv):
        return make(env_fns, **kwargs)
    reports = WorkerReports()
    try:
        env = make(reports.around(env_fns), **kwargs)
    except (EOFError, OSError) as error:  # from a broken pipe
        for lane in range(len(env_fns)):
            if (report := reports.take(lane)) is not None:
                error.__cause__ = WorkerTraceback(report.traceback)
                raise EnvironmentFault(
                    f"the worker of lane {lane} raised {report.text} while it started. Fix the environment."
                ) from error
        raise
    reports.attach(env)
    return env


def _backend(vec_env_cls: str | Callable[..., EnvLike] | None) -> Callable[..., EnvLike]:
    if vec_env_cls is None:
        return Lanes
    if callable(vec_env_cls):
        return vec_env_cls
    if vec_env_cls not in tuple(BACKENDS):
        allowed = [*BACKENDS, "vector"]
        raise ConfigurationError(
            f"vec_env_cls must be a class or one of {allowed}, got {vec_env_cls!r}. Use one of "
            f"them.{nearest(str(vec_env_cls), allowed)}"
        )
    return BACKENDS[vec_env_cls]


def _seeded(env: EnvLike, seed: int | None) -> EnvLike:
    """Returns the env with the seed of its first reset; resets it now if it cannot store a seed."""
    if seed is None:
        return env
    if isinstance(env, (Lanes, FirstSeed)):
        env.first_seed = seed
    elif callable(set_seed := getattr(env, "seed", None)):  # Stable-Baselines3's VecEnv stores it for the next reset
        set_seed(seed)
    else:
        env.reset(seed=seed)
    return env


def _vectorized(
    env_id: str | Callable[..., Env], n_envs: int, seed: int | None, kwargs: Kwargs, of_lanes: Mapping[str, object]
) -> EnvLike:
    passed = {name: value for name, value in of_lanes.items() if value is not None}
    if not isinstance(env_id, str) or passed:
        raise ConfigurationError(
            f"env_id must be an id, and {', '.join(of_lanes)} left out, with vec_env_cls='vector', which has no single lanes to "
            f"wrap, got env_id={env_id!r} and {passed}. Use vec_env_cls='lanes'."
        )
    spec = spec_of(env_id)
    try:
        env = gymnasium.make_vec(spec, num_envs=n_envs, vectorization_mode="vector_entry_point", **kwargs)
    except gymnasium.error.Error as error:
        raise ConfigurationError(
            f"env_id must have a vectorized form with vec_env_cls='vector', got {env_id!r} ({error}). Use vec_env_cls='lanes'."
        ) from error
    return _seeded(env, seed)
