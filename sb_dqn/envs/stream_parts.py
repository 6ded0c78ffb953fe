"""Small things that every reader of an environment needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from sb_dqn.errors import ConfigurationError
from sb_dqn.types import BoolArray

FEW = 32
"""Below so many numbers a Python list is quicker than a numpy reduction."""


def some(mask: BoolArray) -> bool:
    """`mask.any()`, several times as fast for the few lanes that are usual."""
    return b"\x01" in mask.tobytes()


def frozen(mask: BoolArray) -> BoolArray:
    """The same array, read-only: it is shared between ticks."""
    mask.flags.writeable = False
    return mask


def is_finite(array: npt.NDArray[Any]) -> bool:
    """Whether no number of a float array is NaN or infinite: one cheap sum first, which may only cry wolf."""
    if array.size <= FEW:
        return math.isfinite(sum(array.ravel().tolist()))
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(np.add.reduce(array, axis=None))
    return math.isfinite(total) or bool(np.isfinite(array).all())


def no_infos(lanes: int) -> list[dict[str, Any]]:
    """The infos of reset rows."""
    return [{} for _ in range(lanes)]


def one_of(batched: Any, lane: int) -> Any:
    """The observation of one lane, copied, in the structure in which the env gave it."""
    if isinstance(batched, Mapping):
        return {key: one_of(value, lane) for key, value in batched.items()}
    one = batched[lane]
    return {key: one_of([value], 0) for key, value in one.items()} if isinstance(one, Mapping) else np.array(one)


def lane_ends(info: dict[str, Any], final: Any, terminated: bool, truncated: bool) -> dict[str, Any]:
    """The info of a final row, with the two entries that Stable-Baselines3's users read."""
    return {**info, "terminal_observation": final, "TimeLimit.truncated": truncated and not terminated}


def stacked_space(space: spaces.Space[Any], frames: int, channels: int = 1) -> spaces.Space[Any]:
    """The observation space as the policy sees it: `[K * C, H, W]` where single frames `[C, H, W]` are stacked by us.

    Raises:
        ConfigurationError: the env does not give single frames.
    """
    if frames == 1:
        return space
    if not isinstance(space, spaces.Box) or len(space.shape) != 3 or space.shape[0] != channels:
        raise ConfigurationError(
            f"frame_stack={frames} needs single frames of shape (1, height, width); the observation space is {space}. "
            f"An env that stacks by itself is stored whole: leave frame_stack out, or let it give single frames"
        )
    return spaces.Box(
        np.repeat(space.low, frames, axis=0), np.repeat(space.high, frames, axis=0), dtype=np.dtype(space.dtype).type
    )
