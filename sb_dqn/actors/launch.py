"""Makes the workers of a model, and their collector, from the settings of `actors`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle

from sb_dqn.accelerate import are_small, choose_mode
from sb_dqn.actors.chunks import ChunkLayout
from sb_dqn.actors.collector import Acting, RemoteLanes, WorkerCollector, remote_lanes
from sb_dqn.actors.lane_groups import LaneGroups
from sb_dqn.actors.processes import WorkerProcesses
from sb_dqn.actors.ray_actors import RayWorkers
from sb_dqn.actors.settings import OverlappedActors, ProcessActors, RayActors
from sb_dqn.actors.worker import CPU, Weights, WorkerConfig, on_cpu, open_lanes
from sb_dqn.envs.streams.base import Stream
from sb_dqn.errors import ConfigurationError
from sb_dqn.exploration.config import ExplorationConfig
from sb_dqn.normalize import NormalizationConfig, Normalizer
from sb_dqn.policies.base import Policy

FACTORY = "an id such as 'CartPole-v1', an environment class, a function that makes an environment, or a list of such functions"


def open_remote(env: Any, actors: ProcessActors, action_mask: str | None) -> RemoteLanes:
    """Returns what a model needs to know of the environments of workers; makes those of one worker and closes them again.

    Raises:
        ConfigurationError: `env` is an environment instead of a factory, cannot be pickled, or is a list of another length.
    """
    if isinstance(env, RemoteLanes):
        return env
    _check_factory(env, actors, "processes", "each process makes its own")
    pickled("env", env)
    stream = open_lanes(_for_lanes(env, slice(0, actors.lanes)), actors.lanes, action_mask)
    try:
        return remote_lanes(env, stream, actors.num_envs)
    finally:
        stream.close()


def open_groups(env: Any, actors: OverlappedActors, action_mask: str | None) -> LaneGroups:
    """Makes the environments of all groups; returns what a model needs to know of them.

    Raises:
        ConfigurationError: `env` is an environment instead of a factory, or a list of another length.
    """
    if isinstance(env, LaneGroups):
        return env
    _check_factory(env, actors, "groups", "each group makes its own")
    streams: list[Stream] = []
    try:
        for part in _parts(actors):
            streams.append(open_lanes(_for_lanes(env, part), actors.lanes, action_mask))
            streams[-1].number_lanes(part.start)
    except Exception:
        for stream in streams:
            stream.close()
        raise
    return LaneGroups(**vars(remote_lanes(env, streams[0], actors.num_envs)), streams=tuple(streams))


def _check_factory(env: Any, actors: OverlappedActors | ProcessActors, parts: str, why: str) -> None:
    if isinstance(env, (list, tuple)) and len(env) != actors.num_envs:
        raise ConfigurationError(
            f"the list of factories must have {parts} * lanes = {actors.num_envs} entries, got {len(env)}. Change one of them."
        )
    if not (isinstance(env, (str, list, tuple)) or callable(env)):
        raise ConfigurationError(
            f"env must be {FACTORY} with actors={actors!r}, since {why}, got {type(env).__name__}. Pass for example "
            f"lambda: gymnasium.make('CartPole-v1')."
        )


def _parts(actors: OverlappedActors | ProcessActors) -> list[slice]:
    """Returns the lanes of each process or group, within those of the model."""
    return [slice(first, first + actors.lanes) for first in range(0, actors.num_envs, actors.lanes)]


def _for_lanes(env: Any, lanes: slice) -> Any:
    """Returns the factories of some lanes where there is one for each, else what makes all of them."""
    return env[lanes] if isinstance(env, (list, tuple)) else env


def pickled(name: str, value: Any) -> bytes:
    """Returns a value as bytes for another process; functions and classes of the user's script are part of it.

    Raises:
        ConfigurationError: it cannot be pickled.
    """
    try:
        data: bytes = cloudpickle.dumps(value)
    except Exception as error:  # of the object's own code too
        raise ConfigurationError(
            f"{name} must be picklable with process actors, got {value!r} ({type(error).__name__}: {error}). For an environment pass "
            f"{FACTORY}, which makes in each process what cannot be copied."
        ) from error
    return data


def worker_collector(
    settings: ProcessActors,
    remote: RemoteLanes,
    policy: Policy,
    exploration: ExplorationConfig | None,
    normalization: NormalizationConfig,
    normalizer: Normalizer,
    action_mask: str | None,
    acting: Callable[[], Acting],
    seed: int,
    env_seed: int | None,
    learner: tuple[int, int],
    stores_q_values: bool,
) -> WorkerCollector:
    """Returns the collector of a model with process actors; the processes start with the first `learn`.

    Args:
        settings: number of processes and lanes, order.
        remote: the lanes.
        policy: networks of the model.
        exploration: strategy of a Q-policy; None for policies that sample.
        normalization: arguments of the model's normalization.
        normalizer: the model's normalizer.
        action_mask: source of the legal actions.
        acting: returns the current settings of acting.
        seed, env_seed: see `WorkerCollector`.
        learner: number of this learner, and number of all learners.
        stores_q_values: see `QActionSelector`.

    Raises:
        ConfigurationError: the policy cannot be pickled.
    """
    copied = on_cpu(policy)
    small = are_small([copied], CPU)
    mode = choose_mode([copied], CPU, torch_compile=False) if small else "eager"
    lanes = _parts(settings)
    configs = []
    for part in lanes:
        strategy = None if exploration is None else exploration.for_lanes(part.start, settings.num_envs, learner)
        config = WorkerConfig(
            _for_lanes(remote.env, part),
            part.start,
            settings.lanes,
            remote.blueprint,
            action_mask,
            copied,
            strategy,
            normalization,
            mode,
            stores_q_values,
        )
        configs.append(pickled("policy", config))
    networks: Any = policy
    weights = Weights(networks.networks[0], normalizer)
    layout = ChunkLayout.of(remote, settings.chunk, settings.ahead)
    copies = settings.ahead + 1
    workers: Any
    if isinstance(settings, RayActors):
        workers = RayWorkers(configs, lanes, layout, weights.size, copies, settings)
    else:
        workers = WorkerProcesses(configs, layout, weights.size, copies, settings.step_timeout)
    return WorkerCollector(
        remote, workers, lanes, settings.order, settings.ahead, weights.write, acting, (seed, learner[0]), env_seed
    )
