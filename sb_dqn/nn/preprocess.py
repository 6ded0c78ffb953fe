"""From stored observations to what a network reads: images to 0..1 in NCHW, whole numbers to one-hot."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import singledispatch
from typing import Any, Protocol

import torch
from gymnasium import spaces
from torch import Tensor

from sb_dqn.action_spaces import Choices
from sb_dqn.errors import SpaceError
from sb_dqn.spaces import Channels, choices_of, flatten_space, image_channels_last, is_bytes, is_image, leaf_shape

Space = spaces.Space[Any]


class Reader(Protocol):
    """How one leaf is read: `[N, *shape]` as stored becomes floats of `dtype`."""

    space: Space
    """Of one observation afterwards: what a features extractor is built for."""

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor: ...


class Preprocess:
    """Turns a flat dict of `[N, *shape]` tensors into floats of `dtype`, each key as its space asks.

    Args:
        space: observation space of one lane, as the policy sees it.
        normalize_images: divide images of bytes (uint8, bounds 0..255, three axes) by 255; those of bool are 0 and 1
            already. False leaves all numbers as they are and takes every Box of three axes for an image.
        channels: "first" or "last", for all images or by key; None decides by the shape, see `image_channels_last`.
    """

    def __init__(self, space: Space, normalize_images: bool = True, channels: Channels = None) -> None:
        leaves = flatten_space(space)
        by_key = channels if isinstance(channels, Mapping) else dict.fromkeys(leaves, channels)
        self.images = {
            key: Pixels(leaf, normalize_images, by_key.get(key))
            for key, leaf in leaves.items()
            if is_image(leaf, not normalize_images)
        }
        self.readers: dict[str, Reader] = {key: self.images.get(key) or _reader(leaf) for key, leaf in leaves.items()}

    def feature_spaces(self) -> dict[str, Space]:
        """Space of each key after preprocessing: what a features extractor is built for."""
        return {key: reader.space for key, reader in self.readers.items()}

    def leave_bytes(self) -> None:
        """Images that were to be divided by 255 are handed on as they are stored: the extractor does it."""
        for image in self.images.values():
            image.raw = image.divided

    def __call__(self, obs: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
        if isinstance(obs, Tensor):  # type: ignore[unreachable]  # of users who are not checked
            raise SpaceError(
                f"the nets were given a tensor of shape {list(obs.shape)}; they take a flat dict of tensors [N, *shape], with the "
                f"keys {list(self.readers)}: net({{'obs': tensor}}) where there is one observation; values are in its .q"
            )
        return {key: reader(obs[key], dtype) for key, reader in self.readers.items()}


class Pixels:
    """Images, channels first; bytes divided by 255 where they are to be normalised, unless `raw` says that another does it."""

    def __init__(self, image: Any, normalize: bool, channels: str | None) -> None:
        self.hwc = channels == "last" if channels else image_channels_last(image)
        self.shape = leaf_shape(image)
        self.divided = normalize and is_bytes(image)
        self.raw = False
        self.space: Space = image
        if self.hwc:
            low, high = image.low.transpose(2, 0, 1), image.high.transpose(2, 0, 1)
            self.space = spaces.Box(low, high, dtype=image.dtype)

    @property
    def channels(self) -> str:
        """Returns "last" for images `[H, W, C]` and "first" for `[C, H, W]`."""
        return "last" if self.hwc else "first"

    def describe(self) -> str:
        """Returns the axes as they are read, for people."""
        depth, height, width = leaf_shape(self.space)
        return f"{self.shape} is read with channels {self.channels}: {depth} channels of {height} x {width} pixels"

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        if self.hwc:
            x = x.permute(0, 3, 1, 2)  # HWC in memory is channels_last already: free
        if self.raw:
            return x
        x = x.contiguous(memory_format=torch.channels_last).to(dtype)  # bytes move faster than what they turn into
        return x.mul_(1.0 / 255.0) if self.divided else x


class Numbers:
    """A Box as it is."""

    def __init__(self, space: Space) -> None:
        self.space = space

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return x.to(dtype)


class Bits:
    """A MultiBinary in one row."""

    def __init__(self, space: Space) -> None:
        self.space: Space = spaces.Box(0.0, 1.0, (math.prod(leaf_shape(space)),))

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return x.flatten(1).to(dtype)


class OneHot:
    """A Discrete as one one-hot row, a MultiDiscrete as those of its numbers, one after the other."""

    def __init__(self, choices: Choices) -> None:
        starts, counts = choices.start.ravel().tolist(), choices.count.ravel().tolist()
        self.ranges = [(start, start + count) for start, count in zip(starts, counts, strict=True)]
        self.space: Space = spaces.Box(0.0, 1.0, (sum(counts),))

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        columns = x.long().reshape(-1, len(self.ranges), 1)
        # torch's own one_hot looks at the values, which a recording must not
        hot = [columns[:, i] == torch.arange(*ends, device=x.device) for i, ends in enumerate(self.ranges)]
        return (hot[0] if len(hot) == 1 else torch.cat(hot, -1)).to(dtype)


@singledispatch
def _reader(leaf: Space) -> Reader:
    choices = choices_of(leaf)
    return Numbers(leaf) if choices is None else OneHot(choices)


_reader.register(spaces.MultiBinary, Bits)
