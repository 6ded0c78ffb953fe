"""Whether two environments are one and the same, and whether one looks as that which a model was made for."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from sb_dqn.envs.streams.base import Stream
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

    Lanes may differ, and so may who stacks frames: a model that does it itself reads single ones, too.
    """
    seen, wanted = given.observation_space, made.observation_space
    if seen != wanted and (made.frame_stack == 1 or seen != _newest_frame(wanted)):
        return f"observation_space is {seen}, the model was made for {wanted}"
    if given.action_space != made.action_space:
        return f"action_space is {given.action_space}, the model was made for {made.action_space}"
    return ""


def _newest_frame(stack: Any) -> spaces.Box:
    return spaces.Box(stack.low[-1:], stack.high[-1:], dtype=stack.dtype.type)
