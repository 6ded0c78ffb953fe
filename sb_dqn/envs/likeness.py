"""Whether two environments are one and the same, and whether one looks as that which a model was made for."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from sb_dqn.envs.stream_base import Stream
from sb_dqn.types import Blueprint


def is_same(env: Any, other: Any) -> bool:
    """Whether the two share an environment, whatever is wrapped around it."""
    return not _cores(env).isdisjoint(_cores(other))


def _cores(env: Any) -> set[int]:
    """The innermost environments, by identity; those of a vector env that steps them in this process are its lanes."""
    env = env.env if isinstance(env, Stream) else env
    lanes = getattr(env, "envs", None)
    return {id(getattr(one, "unwrapped", one)) for one in (lanes if isinstance(lanes, (list, tuple)) else (env,))}


def difference(given: Blueprint, made: Blueprint) -> str:
    """Which space of an environment is not that of the model, in words; empty where `predict` can read it.

    Lanes may differ, and so may who stacks frames: a model that does it itself reads single ones, too, and both with
    their channels last.
    """
    seen, wanted = given.observation_space, made.observation_space
    if seen != wanted and (made.frame_stack == 1 or seen not in _readable(wanted, made.frame_stack)):
        return f"observation_space is {seen}, the model was made for {wanted}"
    if given.action_space != made.action_space:
        return f"action_space is {given.action_space}, the model was made for {made.action_space}"
    return ""


def _readable(stack: Any, count: int) -> list[spaces.Box]:
    """Returns a frame `[C, H, W]` of a stack of `count`, a frame `[H, W, C]`, and the stack `[H, W, count * C]`."""
    depth = stack.shape[0] // count
    frame = spaces.Box(stack.low[-depth:], stack.high[-depth:], dtype=stack.dtype.type)
    return [frame, *(_with_channels_last(space) for space in (frame, stack))]


def _with_channels_last(image: Any) -> spaces.Box:
    low, high = np.moveaxis(image.low, 0, -1), np.moveaxis(image.high, 0, -1)
    return spaces.Box(low, high, dtype=image.dtype.type)
