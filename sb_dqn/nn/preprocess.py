"""From stored observations to what a network reads: images to 0..1 in NCHW, whole numbers to one-hot."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from sb_dqn.spaces import channels_last, flatten_space, is_image, leaf_shape


class Preprocess:
    """Turns a flat dict of `[N, *shape]` tensors into floats of `dtype`, each key as its space asks.

    Args:
        space: observation space of one lane, as the policy sees it.
        normalize_images: divide images (uint8, bounds 0..255, three axes) by 255.
        channels: "first" or "last" for images of which the shape does not tell; None asks the shape.
    """

    def __init__(self, space: spaces.Space[Any], normalize_images: bool = True, channels: str | None = None) -> None:
        self.leaves = flatten_space(space)
        self.normalize_images = normalize_images
        self.hwc = {
            key: (channels == "last" if channels else channels_last(leaf_shape(leaf)))
            for key, leaf in self.leaves.items()
            if is_image(leaf)
        }

    def feature_spaces(self) -> dict[str, spaces.Space[Any]]:
        """Space of each key after preprocessing: what a features extractor is built for."""
        found: dict[str, spaces.Space[Any]] = {}
        for key, leaf in self.leaves.items():
            shape = leaf_shape(leaf)
            if key in self.hwc:
                chw = (shape[2], shape[0], shape[1]) if self.hwc[key] else shape
                found[key] = spaces.Box(0, 255, chw, dtype=leaf.dtype)  # type: ignore[arg-type]  # uint8, checked by is_image
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
            return x.mul_(1.0 / 255.0) if self.normalize_images else x
        if isinstance(leaf, spaces.Discrete):
            return _one_hot(x.long() - int(leaf.start), int(leaf.n)).to(dtype)
        if isinstance(leaf, spaces.MultiDiscrete):
            x = (x.long() - torch.as_tensor(leaf.start, device=x.device)).flatten(1)
            sizes = leaf.nvec.flatten().tolist()
            return torch.cat([_one_hot(x[:, i], size) for i, size in enumerate(sizes)], -1).to(dtype)
        if isinstance(leaf, spaces.MultiBinary):
            return x.flatten(1).to(dtype)
        return x.to(dtype)


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
