"""Observation spaces (supported kinds, flattening of Dict spaces, checks of observations) and the structure of actions."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from sb_dqn.errors import SpaceError
from sb_dqn.types import Array, BoolArray, FloatArray, IntArray, Observation

Space = spaces.Space[Any]
LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
Channels = str | Mapping[str, str] | None
"""Where images have their channels: "first", "last", one of them by key of a Dict, or None for what the shape says."""
FEW_CHANNELS = 4
"""No side of an image is as short as this if another axis can be the side; grey, two planes, RGB and RGBA have as many channels."""
SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, or a (nested) Dict or Tuple of these"


def with_dicts(space: Space) -> Space:
    """Returns a space with a Dict in place of each Tuple; its keys are "0", "1" and so on."""
    if isinstance(space, spaces.Tuple):
        return spaces.Dict([(str(number), with_dicts(inner)) for number, inner in enumerate(space.spaces)])
    if isinstance(space, spaces.Dict):
        parts = {key: with_dicts(inner) for key, inner in space.spaces.items()}
        if any(parts[key] is not inner for key, inner in space.spaces.items()):
            return spaces.Dict(list(parts.items()))
    return space


def flatten_space(space: Space, path: str = "") -> dict[str, Space]:
    """Returns the leaves of a space: `{"obs": space}` for a plain space; for a Dict its leaves, keys joined by `/`.

    Raises:
        SpaceError: a leaf is empty or of a kind that is not supported, or two leaves have the same name.
    """
    if isinstance(space, spaces.Dict):
        found: dict[str, Space] = {}
        for key, inner in space.spaces.items():
            leaves = flatten_space(inner, f"{path}/{key}" if path else str(key))
            if twice := found.keys() & leaves:
                raise SpaceError(
                    f"names of the entries of an observation space must differ, got {min(twice)!r} twice in {space} (keys of "
                    f"nested Dicts are joined by '/'). Rename one of them."
                )
            found.update(leaves)
        if not found:
            raise SpaceError(f"a Dict observation space must have at least one entry, got {space}. Add one.")
        return found
    where = f" at key {path!r}" if path else ""
    if not isinstance(space, LEAVES):
        raise SpaceError(f"observation space{where} must be {SUPPORTED}, got {space}. Convert it with a wrapper.")
    if 0 in leaf_shape(space):
        raise SpaceError(f"observation space{where} must have no axis of length 0, got {space}. Remove that entry.")
    return {path or "obs": space}


def flatten_observation(observation: object, leaves: Container[str], path: str = "") -> Observation:
    """Converts an observation of an env, batched or not, to a flat dict of arrays with the keys of `flatten_space`.

    Args:
        observation: array, or (nested) dict or tuple of arrays. A tuple is an array where `leaves` has its key.
        leaves: keys that `flatten_space` has.
        path: key of the observation.
    """
    if isinstance(observation, tuple) and (path or "obs") not in leaves:
        observation = {str(number): inner for number, inner in enumerate(observation)}
    if isinstance(observation, Mapping):
        found: Observation = {}
        for key, inner in observation.items():
            found.update(flatten_observation(inner, leaves, f"{path}/{key}" if path else str(key)))
        return found
    return {path or "obs": np.asarray(observation)}


def as_observation(obs: Any, space: Space) -> Any:
    """Returns a flat dict as the observation that programs see: itself where the space is a Dict, else its only entry.

    Args:
        obs: with the keys of `flatten_space`.
        space: of a model, which has a Dict in place of each Tuple.
    """
    return obs if isinstance(space, spaces.Dict) else obs["obs"]


def leaf_shape(space: Space) -> tuple[int, ...]:
    """Returns the shape of one observation of a leaf space (`()` for Discrete)."""
    return tuple(space.shape or ())


def leaf_dtype(space: Space) -> np.dtype[Any]:
    """Returns the dtype in which a leaf is stored: its own, but float32 for float64 (networks use no more)."""
    dtype = np.dtype(space.dtype)
    return np.dtype(np.float32) if dtype == np.float64 else dtype


def is_image(space: Space, normalized: bool = False) -> bool:
    """Returns True if a leaf is an image: three axes, and bool or uint8 with bounds 0..255.

    Args:
        space: space of one observation.
        normalized: True to treat any Box of three axes as an image, as with `normalize_images=False`.
    """
    if not isinstance(space, spaces.Box) or len(space.shape) != 3:
        return False
    return normalized or space.dtype == np.bool_ or is_bytes(space)


def is_bytes(box: spaces.Box) -> bool:
    """Returns True for a uint8 Box with bounds 0..255, whose values are divided by 255 to 0..1."""
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


def batch_observation(space: Space, observation: object) -> tuple[Observation, bool]:
    """Converts `predict`'s argument to a flat dict with leading axis B; also returns True if it had that axis already.

    Args:
        space: space of one lane.
        observation: one observation of that space, or a batch of them, of a dtype that casts to the space's kind.

    Raises:
        SpaceError: a key is missing or unknown, or a shape, dtype or value does not match the space.
    """
    leaves = flatten_space(space)
    second = space.spaces.get("1") if isinstance(space, spaces.Dict) else None  # of what was a Tuple, it may be a Dict
    with_info = isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], Mapping)
    if with_info and not isinstance(second, spaces.Dict):
        raise SpaceError(
            "the observation must be an array or dict, got the tuple (observation, info) that gymnasium's reset returns. "
            "Unpack it: obs, info = env.reset()."
        )
    try:
        arrays = flatten_observation(observation, leaves)
    except ValueError as error:  # raised by NumPy for lists of unequal length
        raise SpaceError(
            f"the observation must be an element of {space}, or a batch of them, got no array ({error}). Pass "
            f"an array or a dict of arrays."
        ) from error
    if set(leaves) != set(arrays):
        raise SpaceError(f"the observation must have the keys {sorted(leaves)}, got {sorted(arrays)}. Pass these keys.")
    axes = {_checked(key, leaf, arrays[key]) for key, leaf in leaves.items()}
    if len(axes) != 1:
        shapes = {key: array.shape for key, array in arrays.items()}
        raise SpaceError(
            f"all or none of the entries of an observation must have a batch axis, got the shapes {shapes}. Add the "
            f"missing axes."
        )
    vectorized = axes.pop() != ()
    arrays = {
        key: arrays[key].astype(leaf_dtype(leaf)) if vectorized else arrays[key][None].astype(leaf_dtype(leaf))
        for key, leaf in leaves.items()
    }
    return arrays, vectorized


def _checked(key: str, leaf: Space, array: Array) -> tuple[int, ...]:
    """Checks shape, dtype and values of an entry; returns its batch axes (none or one)."""
    shape = leaf_shape(leaf)
    axes = array.ndim - len(shape)
    if axes not in (0, 1) or array.shape[axes:] != shape:
        raise SpaceError(
            f"observation {key!r} must have shape {shape}, or (n, {', '.join(map(str, shape))}) for a batch of n, got "
            f"{array.shape}. Reshape it."
        )
    wanted = leaf_dtype(leaf)
    if not np.can_cast(array.dtype, wanted, casting="same_kind"):
        raise SpaceError(
            f"observation {key!r} must have a dtype that casts to {wanted}, got {array.dtype}. Convert it first."
        )
    if wanted.kind == "f":
        largest = np.abs(array).max(initial=0.0)
        if not largest <= np.finfo(wanted).max:  # NaN is not
            raise SpaceError(
                f"observation {key!r} must be finite as {wanted}, got NaN, infinity or too large a number. Fix the observation."
            )
    choices = choices_of(leaf)  # bounds of a Box are not checked, since many environments exceed them
    if choices is not None and not choices.contain(array).all():
        raise SpaceError(f"observation {key!r} must be in {leaf}, got {array.tolist()}. Fix the observation.")
    return array.shape[:axes]


@dataclass(frozen=True, eq=False)
class Choices:
    """Ranges of a discrete space; arrays of the shape of one element, `()` for Discrete."""

    count: IntArray
    """Number of values of each entry."""
    start: IntArray
    """Smallest value of each entry."""

    def contain(self, array: Array) -> BoolArray:
        """Returns True for each entry of one element or a batch that is in its range."""
        return (array >= self.start) & (array <= self.start + (self.count - 1))


def choices_of(space: Space) -> Choices | None:
    """Returns the ranges of a Discrete, MultiDiscrete or MultiBinary space; None for any other space."""
    if isinstance(space, spaces.Discrete):
        return Choices(np.array(space.n, np.int64), np.array(space.start, np.int64))
    if isinstance(space, spaces.MultiDiscrete):
        return Choices(space.nvec.astype(np.int64), space.start.astype(np.int64))
    if isinstance(space, spaces.MultiBinary):
        return Choices(np.full(space.shape, 2), np.zeros(space.shape, np.int64))
    return None


@dataclass(frozen=True)
class ActionShape:
    """Structure of discrete actions: one choice, or one per branch of a MultiDiscrete; zero-based inside this library."""

    branches: tuple[int, ...]
    """Number of choices of each branch; `(A,)` for Discrete."""
    starts: tuple[int, ...]
    """Number of the first choice of each branch in the environment."""
    branched: bool = False
    """True if actions have an axis D: for MultiDiscrete and MultiBinary, even with one branch."""

    @classmethod
    def of(cls, space: Space) -> ActionShape:
        """Returns the structure of the actions of a discrete space.

        Raises:
            SpaceError: the space is neither Discrete nor a MultiDiscrete or MultiBinary of one axis.
        """
        choices = choices_of(space)
        if choices is None or choices.count.ndim > 1 or not choices.count.size:
            box = isinstance(space, spaces.Box)  # which only Q-agents refuse
            fix = "For continuous actions use SAC or PPO, or discretize them" if box else "Convert others"
            raise SpaceError(
                f"the action space{' of a Q-agent' if box else ''} must be Discrete(n, start=...), MultiDiscrete([n, ...], start=...) "
                f"or MultiBinary(n) of one axis{'' if box else ', or a Box where the algorithm has continuous actions'}, got {space}. "
                f"{fix} with a gymnasium.ActionWrapper."
            )
        branches, starts = tuple(choices.count.ravel().tolist()), tuple(choices.start.ravel().tolist())
        return cls(branches, starts, branched=choices.count.ndim == 1)

    @property
    def num_actions(self) -> int:
        """A, the number of choices of the largest branch."""
        return max(self.branches)

    @property
    def num_branches(self) -> int:
        """D, the number of branches; 0 if actions have no such axis."""
        return len(self.branches) if self.branched else 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action: `()` or `(D,)`."""
        return (len(self.branches),) if self.branched else ()

    @property
    def start(self) -> IntArray:
        """Offset of the environment's actions from zero-based ones: `[]` or `[D]`, broadcasts over a batch."""
        return np.array(self.starts, np.int64).reshape(self.shape)

    @property
    def legal(self) -> BoolArray:
        """Mask of existing actions, `[A]` or `[D, A]`: False only where a branch has fewer than A choices."""
        return (np.arange(self.num_actions) < np.array(self.branches)[:, None]).reshape(*self.shape, self.num_actions)

    def uniform(self, rows: int, rng: np.random.Generator, mask: BoolArray | None = None) -> IntArray:
        """Samples actions uniformly, each branch independently.

        Args:
            rows: number of actions.
            rng: generator.
            mask: `[rows, A]` (`[rows, D, A]`), True where legal; a row without a legal action allows all.

        Returns:
            `[rows]` (`[rows, D]`), zero-based.
        """
        if mask is None:
            if not self.branched:
                return rng.integers(self.num_actions, size=rows)
            return rng.integers(self.branches, size=(rows, len(self.branches)))
        mask = mask | ~mask.any(-1, keepdims=True)
        if self.branched:
            mask = mask & self.legal
        rank = rng.integers(mask.sum(-1))  # zero-based index among the legal actions
        drawn: IntArray = (mask.cumsum(-1) > rank[..., None]).argmax(-1)
        return drawn


@dataclass(frozen=True, eq=False)
class BoxActions:
    """Structure of continuous actions: numbers in the environment's units, within finite bounds."""

    space: spaces.Box
    low: FloatArray
    """`[*shape]` lower bounds."""
    high: FloatArray
    """`[*shape]` upper bounds, greater than `low` everywhere."""
    branched = False
    num_actions = 0
    """0, since continuous actions cannot be counted."""

    @classmethod
    def of(cls, space: Space) -> BoxActions:
        """Returns the structure of the actions of a Box space.

        Raises:
            SpaceError: the space is not a Box of floats, an axis has length 0, or the bounds are infinite or equal.
        """
        if not isinstance(space, spaces.Box) or np.dtype(space.dtype).kind != "f" or 0 in space.shape:
            raise SpaceError(
                f"a continuous action space must be Box(low, high, shape) of a floating-point dtype with no axis of "
                f"length 0, got {space}. For integers use MultiDiscrete."
            )
        with np.errstate(over="ignore"):
            low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise SpaceError(
                f"bounds of a continuous action space must be finite float32 numbers with low < high, got {space}. Set the "
                f"bounds that the environment uses as its action_space."
            )
        return cls(space, low, high)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return self.low.shape

    @property
    def start(self) -> FloatArray:
        """Offset of the environment's actions from stored ones: 0."""
        return np.zeros((), np.float32)

    def uniform(self, rows: int, rng: np.random.Generator, mask: BoolArray | None = None) -> FloatArray:
        """Samples `[rows, *shape]` actions uniformly between the bounds; `mask` is ignored."""
        drawn = rng.random((rows, *self.shape), np.float32)
        return self.clip(self.low + drawn * (self.high - self.low))

    def clip(self, action: FloatArray) -> FloatArray:
        """Clips actions to the bounds, which rounding may exceed."""
        return np.minimum(np.maximum(action, self.low), self.high)

    def in_space(self, action: FloatArray) -> FloatArray:
        """Returns a copy of actions in the dtype of the space; rounding to float32 may have crossed a bound of float64."""
        if self.space.dtype == np.float32:
            return np.array(action)
        bounded: FloatArray = np.clip(action.astype(self.space.dtype), self.space.low, self.space.high)
        return bounded


Actions = ActionShape | BoxActions
"""Discrete or continuous actions; both have `shape`, `start`, `num_actions` (0 for a Box) and `uniform`."""


def actions_of(space: Space) -> Actions:
    """Returns the structure of the actions of a space.

    Raises:
        SpaceError: the space is not Discrete, MultiDiscrete, MultiBinary or Box, or not supported in this form.
    """
    return BoxActions.of(space) if isinstance(space, spaces.Box) else ActionShape.of(space)
