"""Spaces at the door: what is supported, how a Dict becomes a flat dict of arrays, what fits and what does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from sb_dqn.action_spaces import Actions as Actions
from sb_dqn.action_spaces import ActionShape as ActionShape
from sb_dqn.action_spaces import BoxActions as BoxActions
from sb_dqn.action_spaces import actions_of as actions_of
from sb_dqn.action_spaces import choices_of as choices_of
from sb_dqn.errors import SpaceError
from sb_dqn.types import Observation

Space = spaces.Space[Any]
LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
Channels = str | Mapping[str, str] | None
"""Where images have their channels: "first", "last", one of them by key of a Dict, or None for what the shape says."""
FEW_CHANNELS = 4
"""No side of an image is as short as this if another axis can be the side; grey, two planes, RGB and RGBA have as many channels."""
SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, or a (nested) Dict of these"


def flatten_space(space: Space, path: str = "") -> dict[str, Space]:
    """`{"obs": space}` for a plain space; for a Dict its leaves, keys joined by `/`.

    Raises:
        SpaceError: a leaf is of a kind that is not supported, or is empty; two have the same name.
    """
    if isinstance(space, spaces.Dict):
        found: dict[str, Space] = {}
        for key, inner in space.spaces.items():
            leaves = flatten_space(inner, f"{path}/{key}" if path else str(key))
            if twice := found.keys() & leaves:
                raise SpaceError(
                    f"observation space {space} has two entries that are called {min(twice)!r}, keys of Dicts within Dicts being "
                    f"joined by '/'; rename one"
                )
            found.update(leaves)
        if not found:
            raise SpaceError(f"observation space {space} is an empty Dict; it needs at least one entry")
        return found
    where = f" at key {path!r}" if path else ""
    if not isinstance(space, LEAVES):
        raise SpaceError(f"observation space {space}{where} is not supported; allowed: {SUPPORTED}")
    if 0 in leaf_shape(space):
        raise SpaceError(f"observation space {space}{where} has an axis of length 0")
    return {path or "obs": space}


def flatten_observation(observation: Any, path: str = "") -> Observation:
    """An observation as the env gave it, batched or not, as a flat dict of arrays with the keys of `flatten_space`."""
    if isinstance(observation, Mapping):
        found: Observation = {}
        for key, inner in observation.items():
            found.update(flatten_observation(inner, f"{path}/{key}" if path else str(key)))
        return found
    return {path or "obs": np.asarray(observation)}


def leaf_shape(space: Space) -> tuple[int, ...]:
    """Shape of one observation of a leaf space (`()` for Discrete)."""
    return tuple(space.shape or ())


def leaf_dtype(space: Space) -> np.dtype[Any]:
    """Dtype in which a leaf is stored: its own, with float64 kept as float32 (no network reads more)."""
    dtype = np.dtype(space.dtype)
    return np.dtype(np.float32) if dtype == np.float64 else dtype


def is_image(space: Space, normalized: bool = False) -> bool:
    """Whether a leaf is an image: three axes, and uint8 of 0..255 or bool.

    Args:
        space: of one observation.
        normalized: any Box of three axes is one; the user says so by `normalize_images=False`.
    """
    if not isinstance(space, spaces.Box) or len(space.shape) != 3:
        return False
    return normalized or space.dtype == np.bool_ or is_bytes(space)


def is_bytes(box: spaces.Box) -> bool:
    """Whether a Box holds whole bytes, which dividing by 255 brings to 0..1: uint8 with bounds 0..255."""
    return box.dtype == np.uint8 and bool(np.all(box.low == 0)) and bool(np.all(box.high == 255))


def image_channels_last(space: spaces.Box) -> bool:
    """Returns True for an image `[H, W, C]` and False for `[C, H, W]`, decided by the shape.

    Two equal axes are height and width, so `(84, 84, 12)` has its channels last. Where no two are equal, an end of at
    most 4 is the channels unless the other end is as short, then an end that is at most half as long as each of the
    other axes. A cube of bool or float is `[H, W, C]`, as in MinAtar's Seaquest.

    Raises:
        SpaceError: the shape is ambiguous, as that of a cube of uint8 is.
    """
    first, middle, last = shape = leaf_shape(space)
    if middle in (first, last):
        channels = last if first == middle else first
        if is_bytes(space) and (channels == middle or middle <= FEW_CHANNELS < channels):
            raise _ambiguous_channels(shape)
        return first == middle
    if (first <= FEW_CHANNELS) != (last <= FEW_CHANNELS):
        return last <= FEW_CHANNELS
    if last <= FEW_CHANNELS or 2 * min(first, last) > min(middle, max(first, last)):
        raise _ambiguous_channels(shape)
    return last < first


def _ambiguous_channels(shape: tuple[int, ...]) -> SpaceError:
    return SpaceError(
        f"image shape must tell which axis holds the channels, got {shape}: both the first and the last axis could. "
        f"Set policy_kwargs=dict(channels='first') or dict(channels='last')."
    )


def batch_observation(space: Space, observation: Any) -> tuple[Observation, bool]:
    """`predict`'s argument as a flat dict with leading axis B, and whether it had that axis already.

    Args:
        space: of one lane.
        observation: one observation of that space, or a batch of them; numbers of a kind that casts safely.

    Raises:
        SpaceError: a key is missing or foreign, or a shape or dtype does not fit.
    """
    leaves = flatten_space(space)
    if isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], Mapping):
        raise SpaceError(
            "the observation is a tuple of two, the second a dict: (observation, info), as gymnasium's reset returns it; give "
            "the first of the two: obs, info = env.reset()"
        )
    try:
        given = flatten_observation(observation)
    except ValueError as error:  # numpy's, for lists of unequal length
        raise SpaceError(
            f"the observation is no array: {error}; allowed: one of {space}, or a batch of them"
        ) from error
    if set(leaves) != set(given):
        raise SpaceError(f"observation has the keys {sorted(given)}, the model was made for {sorted(leaves)}")
    axes = {_checked(key, leaf, given[key]) for key, leaf in leaves.items()}
    if len(axes) != 1:
        shapes = {key: array.shape for key, array in given.items()}
        raise SpaceError(
            f"entries of the observation have different batch axes: {shapes}; give all or none of them one"
        )
    vectorised = axes.pop() != ()
    arrays = {
        key: given[key].astype(leaf_dtype(leaf)) if vectorised else given[key][None].astype(leaf_dtype(leaf))
        for key, leaf in leaves.items()
    }
    return arrays, vectorised


def _checked(key: str, leaf: Space, array: npt.NDArray[Any]) -> tuple[int, ...]:
    """The batch axes of `array` (none or one), after a look at its shape and kind of number."""
    shape = leaf_shape(leaf)
    axes = array.ndim - len(shape)
    if axes not in (0, 1) or array.shape[axes:] != shape:
        raise SpaceError(
            f"observation {key!r} has shape {array.shape}; allowed: {shape}, or (n, {', '.join(map(str, shape))}) for n at once"
        )
    wanted = leaf_dtype(leaf)
    if not np.can_cast(array.dtype, wanted, casting="same_kind"):
        raise SpaceError(
            f"observation {key!r} has dtype {array.dtype}, which does not cast to {wanted}; convert it first"
        )
    if wanted.kind == "f":
        largest = np.abs(array).max(initial=0.0)
        if not largest <= np.finfo(wanted).max:  # NaN is not
            raise SpaceError(
                f"observation {key!r} holds NaN or infinity, or what is infinite as {wanted}; the network would answer NaN"
            )
    choices = choices_of(leaf)  # a Box has none, and its bounds are often only meant
    if choices is not None:
        fits = (array >= choices.start) & (array <= choices.start + (choices.count - 1))
        if not fits.all():
            raise SpaceError(f"observation {key!r} is {array.tolist()}, which is not in {leaf}")
    return array.shape[:axes]
