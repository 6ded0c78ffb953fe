"""Frame stacks of Stable-Baselines3's `VecFrameStack`: their layout and their newest frame."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from sb_dqn.spaces import flatten_space, is_bytes, leaf_shape
from sb_dqn.types import Blueprint


@dataclass(frozen=True)
class StackedFrames:
    """Layout of the observations of a `VecFrameStack`, which pads with zeros like the library's own stacks."""

    space: spaces.Box
    """Space of one frame, `[C, H, W]`."""
    count: int
    """Number of frames K in an observation."""
    channels_last: bool
    """True for observations `[H, W, K * C]`, False for `[K * C, H, W]`."""

    def newest(self, stack: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns the newest frame `[..., C, H, W]` of observations."""
        depth = leaf_shape(self.space)[0]
        return np.moveaxis(stack[..., -depth:], -1, -3) if self.channels_last else stack[..., -depth:, :, :]


def stacked_frames(env: Any) -> StackedFrames | None:
    """Returns the layout of a `VecFrameStack` of uint8 images, in a `VecTransposeImage` or not; else None."""
    transposed = _is(env, "VecTransposeImage") and not env.skip
    stacker = env.venv if _is(env, "VecTransposeImage") else env
    if not _is(stacker, "VecFrameStack"):
        return None
    stack, frame = stacker.stacked_obs, stacker.venv.observation_space
    if stack.n_stack < 2 or not isinstance(frame, spaces.Box) or len(frame.shape) != 3 or not is_bytes(frame):
        return None
    shape = frame.shape if stack.channels_first else (frame.shape[2], *frame.shape[:2])
    return StackedFrames(spaces.Box(0, 255, shape, np.uint8), stack.n_stack, not (stack.channels_first or transposed))


def repeated_frames(env: Any) -> int:
    """Returns K if a `VecFrameStack` among the wrappers repeats each image in K observations, else 1."""
    for wrapper in wrappers_of(env):
        if _is(wrapper, "VecFrameStack"):
            leaves = flatten_space(wrapper.observation_space).values()
            return int(wrapper.stacked_obs.n_stack) if any(map(_has_axes, leaves)) else 1
    return 1


def has_stacks_of(env: Any, made: Blueprint) -> bool:
    """Returns True if `made` stores the whole stacks of this `VecFrameStack`, as models in older files do."""
    return made.frame_stack == 1 and stacked_frames(env) is not None and env.observation_space == made.observation_space


def _is(env: Any, name: str) -> bool:
    return type(env).__name__ == name and type(env).__module__.startswith("stable_baselines3.")


def _has_axes(leaf: Any) -> bool:
    return len(leaf_shape(leaf)) == 3


def wrappers_of(env: Any) -> Iterator[Any]:
    """Yields the wrappers around a `VecEnv`, from the outermost in."""
    while (inner := getattr(env, "__dict__", {}).get("venv")) is not None:  # getattr would search inner wrappers too
        yield env
        env = inner
