"""From stored observations to what a network reads: images to 0..1 in NCHW, whole numbers to one-hot."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from sb_dqn.spaces import flatten_space, image_channels_last, is_bytes, is_image, leaf_shape


class Preprocess:
    """Turns a flat dict of `[N, *shape]` tensors into floats of `dtype`, each key as its space asks.

    Args:
        space: observation space of one lane, as the policy sees it.
        normalize_images: divide images of bytes (uint8, bounds 0..255, three axes) by 255; those of bool are 0 and 1
            already. False leaves all numbers as they are and takes every Box of three axes for an image.
        channels: "first" or "last" for images of which the shape does not tell; None asks the shape.
    """

    def __init__(self, space: spaces.Space[Any], normalize_images: bool = True, channels: str | None = None) -> None:
        self.leaves = flatten_space(space)
        self.hwc = {
            key: (channels == "last" if channels else image_channels_last(leaf))
            for key, leaf in self.leaves.items()
            if is_image(leaf, not normalize_images)
        }
        self.divided = {key for key in self.hwc if normalize_images and is_bytes(self.leaves[key])}

    def feature_spaces(self) -> dict[str, spaces.Space[Any]]:
        """Space of each key after preprocessing: what a features extractor is built for."""
        found: dict[str, spaces.Space[Any]] = {}
        for key, leaf in self.leaves.items():
            if key in self.hwc:
                found[key] = _in_chw(leaf) if self.hwc[key] else leaf
            elif isinstance(leaf, spaces.Box):
                found[key] = leaf
            else:
                found[key] = spaces.Box(0.0, 1.0, (one_hot_width(leaf),))
        return found

    def __call__(self, obs: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
        return {key: self._leaf(key, leaf, obs[key], dtype) for key, leaf in self.leaves.items()}

    def _leaf(self, key: str, leaf: spaces.Space[Any], x: Tensor, dtype: torch.dtype) -> Tensor:
        if key in self.hwc:
            if self.hwc[key]:
                x = x.permute(0, 3, 1, 2)  # HWC in memory is channels_last already: free
            x = x.to(dtype, memory_format=torch.channels_last)
            return x.mul_(1.0 / 255.0) if key in self.divided else x
        if isinstance(leaf, spaces.Discrete):
            return _one_hot(x.long() - int(leaf.start), int(leaf.n)).to(dtype)
        if isinstance(leaf, spaces.MultiDiscrete):
            x = (x.long() - torch.as_tensor(leaf.start, device=x.device)).flatten(1)
            sizes = leaf.nvec.flatten().tolist()
            return torch.cat([_one_hot(x[:, i], size) for i, size in enumerate(sizes)], -1).to(dtype)
        if isinstance(leaf, spaces.MultiBinary):
            return x.flatten(1).to(dtype)
        return x.to(dtype)


def _in_chw(image: Any) -> spaces.Box:
    """The Box of an HWC image with its channels first."""
    return spaces.Box(image.low.transpose(2, 0, 1), image.high.transpose(2, 0, 1), dtype=image.dtype)


def _one_hot(x: Tensor, size: int) -> Tensor:
    """`[N]` -> `[N, size]` bool; torch's own looks at the values, which a recording must not."""
    return x.unsqueeze(-1) == torch.arange(size, device=x.device)


def one_hot_width(leaf: spaces.Space[Any]) -> int:
    """Numbers that a Discrete, MultiDiscrete or MultiBinary leaf turns into."""
    if isinstance(leaf, spaces.Discrete):
        return int(leaf.n)
    if isinstance(leaf, spaces.MultiDiscrete):
        return int(leaf.nvec.sum())
    return int(torch.Size(leaf_shape(leaf)).numel())
