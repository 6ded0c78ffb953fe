"""Frame stacks of Stable-Baselines3: reads the newest frame of what `VecFrameStack` stacks."""

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
    """Where the newest frame lies in the observations of a `VecFrameStack`, which pads with zeros as our own stacks do."""

    space: spaces.Box
    """Of one frame, `[C, H, W]`."""
    count: int
    """K frames in an observation."""
    channels_last: bool
    """Observations are `[H, W, K * C]`, not `[K * C, H, W]`."""

    def newest(self, stack: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns the newest frame `[..., C, H, W]` of observations."""
        depth = leaf_shape(self.space)[0]
        return np.moveaxis(stack[..., -depth:], -1, -3) if self.channels_last else stack[..., -depth:, :, :]


def stacked_frames(env: Any) -> StackedFrames | None:
    """Returns the frames of a `VecFrameStack` of one uint8 image, with `VecTransposeImage` around it or not; else None."""
    turned = _is(env, "VecTransposeImage") and not env.skip
    stacker = env.venv if _is(env, "VecTransposeImage") else env
    if not _is(stacker, "VecFrameStack"):
        return None
    stack, frame = stacker.stacked_obs, stacker.venv.observation_space
    if stack.n_stack < 2 or not isinstance(frame, spaces.Box) or len(frame.shape) != 3 or not is_bytes(frame):
        return None
    shape = frame.shape if stack.channels_first else (frame.shape[2], *frame.shape[:2])
    return StackedFrames(spaces.Box(0, 255, shape, np.uint8), stack.n_stack, not (stack.channels_first or turned))


def repeated_frames(env: Any) -> int:
    """Returns K where a `VecFrameStack` among the wrappers repeats each frame of an image in K observations, else 1."""
    for wrapper in _wrappers(env):
        if _is(wrapper, "VecFrameStack"):
            leaves = flatten_space(wrapper.observation_space).values()
            return int(wrapper.stacked_obs.n_stack) if any(map(_has_axes, leaves)) else 1
    return 1


def has_stacks_of(env: Any, made: Blueprint) -> bool:
    """Returns True for a `VecFrameStack` around which a model was made that learns from whole stacks, as files of before."""
    return made.frame_stack == 1 and stacked_frames(env) is not None and env.observation_space == made.observation_space


def _is(env: Any, name: str) -> bool:
    return type(env).__name__ == name and type(env).__module__.startswith("stable_baselines3.")


def _has_axes(leaf: Any) -> bool:
    return len(leaf_shape(leaf)) == 3


def _wrappers(env: Any) -> Iterator[Any]:
    while (inner := getattr(env, "__dict__", {}).get("venv")) is not None:  # a getattr would ask all wrappers
        yield env
        env = inner
