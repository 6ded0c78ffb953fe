"""Lanes that their actors open: how they are opened, and what stands in for the stream of all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import Self

from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.streams.open import Stream, has_lanes, open_stream
from sb_dqn.errors import ConfigurationError
from sb_dqn.spaces import Actions, Space
from sb_dqn.types import ArraySpec, Blueprint, EnvLike


def open_lanes(env: EnvLike, lanes: int, action_mask: str | None) -> Stream:
    """Opens the lanes of one worker.

    Args:
        env: an id, a factory (of one environment, which is called for each lane, or of a vector environment with all lanes), or
            a list of factories.
        lanes: number of lanes.
        action_mask: source of the legal actions.

    Raises:
        ConfigurationError: another kind of environment, or one with another number of lanes.
    """
    if isinstance(env, str):
        return open_stream(env, num_envs=lanes, action_mask=action_mask)
    if isinstance(env, (list, tuple)):
        return open_stream(list(env), action_mask=action_mask)
    made = env()
    if not (isinstance(made, Stream) or has_lanes(made)):
        return open_stream([lambda: made, *[env] * (lanes - 1)], action_mask=action_mask)
    stream = open_stream(made, action_mask=action_mask)
    if stream.num_envs != lanes:
        stream.close()
        raise ConfigurationError(
            f"the vector environment of one process must have lanes={lanes} environments, got {stream.num_envs}. Make it with as "
            f"many, or change lanes."
        )
    return stream


@dataclass(frozen=True, kw_only=True)
class RemoteLanes:
    """Stand-in for the `Stream` of environments that workers open: spaces, lanes and what was passed.

    Args:
        env: id or factories, as passed by the user.
        num_envs: number of lanes of all actors.
        blueprint, observation_space, action_space, action_shape, has_masks, options, leaves, repeated_frames: as in `Stream`.
    """

    env: EnvLike
    num_envs: int
    blueprint: Blueprint
    observation_space: Space
    action_space: Space
    action_shape: Actions
    has_masks: bool
    options: StreamOptions
    leaves: dict[str, ArraySpec]
    repeated_frames: int

    @classmethod
    def stand_in_for(cls, stream: Stream, env: EnvLike, num_envs: int, **own: object) -> Self:
        """Returns the stand-in for `num_envs` lanes like those of `stream`."""
        return cls(
            env=env,
            num_envs=num_envs,
            blueprint=replace(stream.blueprint, num_envs=num_envs),
            observation_space=stream.observation_space,
            action_space=stream.action_space,
            action_shape=stream.action_shape,
            has_masks=stream.has_masks,
            options=stream.options,
            leaves={key: ((num_envs, *shape[1:]), dtype) for key, (shape, dtype) in stream.leaves.items()},
            repeated_frames=stream.repeated_frames,
            **own,
        )

    def one_environment(self) -> tuple[EnvLike, bool]:
        """Returns an environment of one lane, which is made for this call, and True."""
        first: Any = self.env[0] if isinstance(self.env, (list, tuple)) else self.env
        stream = open_stream(first if isinstance(first, str) else first(), action_mask=self.options.action_mask)
        env, made = stream.one_environment()
        if made:
            stream.close()
        return env, True

    def close(self) -> None:
        """Does nothing: the workers close their environments."""


@dataclass(frozen=True, kw_only=True)
class LaneGroups(RemoteLanes):
    """Stand-in for the `Stream` of all lanes, with the streams of the groups.

    Args:
        streams: one for each group, with equal numbers of lanes.
    """

    streams: tuple[Stream, ...]

    def one_environment(self) -> tuple[EnvLike, bool]:
        return self.streams[0].one_environment()

    def close(self) -> None:
        """Closes the environments of all groups."""
        for stream in self.streams:
            stream.close()
