"""The kinds of actors: who steps the environments of a model, and the collector of their rows."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import cloudpickle

from sb_dqn.accelerate import acting_mode, choose_mode
from sb_dqn.acting.action_selection import ActingConfig
from sb_dqn.acting.actor import Actor
from sb_dqn.acting.collector import ActingControl, Collector, InlineCollector
from sb_dqn.acting.network_runner import unchanged
from sb_dqn.actors.chunks import ChunkLayout
from sb_dqn.actors.lanes import LaneGroups, RemoteLanes, open_lanes
from sb_dqn.actors.overlapped import LaneGroup, OverlappedCollector
from sb_dqn.actors.processes import WorkerProcesses
from sb_dqn.actors.ray_actors import RayWorkers
from sb_dqn.actors.settings import OVERLAPPED, Actors, MadeLanes, OverlappedActors, ProcessActors, RayActors
from sb_dqn.actors.worker import CPU, Weights, WorkerConfig
from sb_dqn.actors.worker_collector import WorkerCollector
from sb_dqn.envs.streams.base import Stream, shares_environment
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.envs.vector.sync_env import NOT_OWN
from sb_dqn.errors import ConfigurationError
from sb_dqn.types import EnvLike

FACTORY = "an id such as 'CartPole-v1', an environment class, a function that makes an environment, or a list of such functions"


def open_for_training(
    actors: Actors, env: EnvLike, action_mask: str | None = None, frame_stack: int | None = None
) -> Any:
    """Opens an environment; returns its stream, or what stands in for one where actors make the environments.

    Args:
        actors: who steps it.
        env: environment of any supported kind; a factory where actors make it.
        action_mask: source of the legal actions: "info", a key of a Dict observation; None: as the environment declares.
        frame_stack: see `open_stream`.

    Raises:
        ConfigurationError: `env` is an environment instead of a factory, cannot be pickled, or is a list of another length.
    """
    if isinstance(actors, ProcessActors):
        return env if isinstance(env, RemoteLanes) else _open_remote(env, actors, action_mask)
    if isinstance(actors, OverlappedActors):
        return env if isinstance(env, LaneGroups) else _open_groups(env, actors, action_mask)
    return open_stream(env, frame_stack=frame_stack, action_mask=action_mask)


def make_collector(actors: Actors, stream: Stream, config: ActingConfig, control: ActingControl) -> Collector:
    """Returns the collector of a model for what `open_for_training` returned; workers start with the first `learn`.

    Raises:
        ConfigurationError: the policy cannot be pickled for workers.
    """
    if isinstance(stream, LaneGroups):
        groups = []
        for part in stream.streams:
            lanes = slice(part.first_lane, part.first_lane + part.num_envs)
            actor = Actor.build(config, part, control.rng.explore, control.rng.noise, first_lane=lanes.start)
            actor.leader = control.exploration
            groups.append(LaneGroup(actor, lanes))
        return OverlappedCollector(stream, groups, control)
    if isinstance(stream, RemoteLanes):
        assert isinstance(actors, ProcessActors)
        return _worker_collector(actors, stream, config, control)
    actor = Actor.build(config, stream, control.rng.explore, control.rng.noise, exploration=control.exploration)
    if actors == OVERLAPPED:
        return OverlappedCollector(stream, [LaneGroup(actor, slice(0, stream.num_envs))], control)
    if control.observe is not None:
        actor.observe = control.observe  # the frames are there; those of the actor are for checkpoints
    return InlineCollector(actor, control)


def _open_remote(env: EnvLike, actors: ProcessActors, action_mask: str | None) -> RemoteLanes:
    """Returns what a model needs to know of the environments of workers; makes those of one worker and closes them again."""
    _check_factory(env, actors, "processes", "each process makes its own")
    pickled("env", env)
    stream = open_lanes(_for_lanes(env, slice(0, actors.lanes)), actors.lanes, action_mask)
    try:
        return RemoteLanes.stand_in_for(stream, env, actors.num_envs)
    finally:
        stream.close()


def _open_groups(env: EnvLike, actors: OverlappedActors, action_mask: str | None) -> LaneGroups:
    """Makes the environments of all groups; returns what a model needs to know of them."""
    _check_factory(env, actors, "groups", "each group makes its own")
    streams: list[Stream] = []
    try:
        for part in actors.lane_slices:
            stream = open_lanes(_for_lanes(env, part), actors.lanes, action_mask)
            streams.append(stream)
            stream.number_lanes(part.start)
            if any(shares_environment(stream, other) for other in streams[:-1]):
                raise ConfigurationError(NOT_OWN)
    except Exception:
        for stream in streams:
            stream.close()
        raise
    return LaneGroups.stand_in_for(streams[0], env, actors.num_envs, streams=tuple(streams))


def _check_factory(env: EnvLike, actors: MadeLanes, parts: str, why: str) -> None:
    if isinstance(env, (list, tuple)) and len(env) != actors.num_envs:
        raise ConfigurationError(
            f"the list of factories must have {parts} * lanes = {actors.num_envs} entries, got {len(env)}. Change one of them."
        )
    if not (isinstance(env, (str, list, tuple)) or callable(env)):
        raise ConfigurationError(
            f"env must be {FACTORY} with actors={actors!r}, since {why}, got {type(env).__name__}. Pass for example "
            f"lambda: gymnasium.make('CartPole-v1')."
        )


def _for_lanes(env: EnvLike, lanes: slice) -> Any:
    """Returns the factories of some lanes where there is one for each, else what makes all of them."""
    return env[lanes] if isinstance(env, (list, tuple)) else env


def pickled(name: str, value: object) -> bytes:
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


def _worker_collector(
    settings: ProcessActors, remote: RemoteLanes, config: ActingConfig, control: ActingControl
) -> WorkerCollector:
    policy = copy.deepcopy(control.policy).to(CPU)
    mode = acting_mode(policy, CPU, choose_mode([policy], CPU, torch_compile=False), policy.recurrent)
    config = replace(
        config, policy=policy, transform=unchanged, spectral_weights=None, mode=mode, later_mode=None
    )  # without what only this process has
    configs = [
        pickled("policy", WorkerConfig(_for_lanes(remote.env, part), part, remote.blueprint, config))
        for part in settings.lane_slices
    ]
    weights = Weights(control.policy.acting_network, control.normalizer)
    layout = ChunkLayout.for_stream(remote, settings.chunk, settings.ahead)
    copies = settings.ahead + 1
    workers: Any
    if isinstance(settings, RayActors):
        workers = RayWorkers(configs, settings.lane_slices, layout, weights.size, copies, settings)
    else:
        workers = WorkerProcesses(configs, layout, weights.size, copies, settings.step_timeout)
    return WorkerCollector(remote, workers, settings, weights.write, control, config.learner[0])
