"""Features of observations: preprocessing, the base class of features extractors, and the flattening one."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.devices import is_host_visible
from sb_dqn.errors import ConfigurationError, SpaceError, nearest
from sb_dqn.spaces import (
    Channels,
    Choices,
    Space,
    choices_of,
    flatten_space,
    image_channels_last,
    is_bytes,
    is_image,
    leaf_shape,
)
from sb_dqn.types import Kwargs, Settings


class BaseFeaturesExtractor(nn.Module):
    """Base class of features extractors, including user-defined ones.

    Args:
        observation_space: space after preprocessing: images `[C, H, W]`, integers one-hot; a Dict for several keys.
        features_dim: width of the output of `forward`, `[N, features_dim]`.

    Raises:
        ConfigurationError: `features_dim` is below 1.
    """

    HIDDEN: ClassVar[int]
    """Width of the hidden layer in the paper of a CNN of this package; the policy builds that layer."""

    def __init__(self, observation_space: Space, features_dim: int = 0) -> None:
        super().__init__()
        if features_dim <= 0:
            raise ConfigurationError(
                f"features_dim must be an integer from 1, got {features_dim}. Pass the width of the output of forward."
            )
        self._observation_space = observation_space
        self._features_dim = features_dim

    @property
    def features_dim(self) -> int:
        return self._features_dim


class FlattenExtractor(BaseFeaturesExtractor):
    """Flattens the observation."""

    def __init__(self, observation_space: Space) -> None:
        super().__init__(observation_space, spaces.utils.flatdim(observation_space))

    def forward(self, observation: Tensor) -> Tensor:
        return observation.flatten(1) if observation.dim() > 1 else observation.unsqueeze(1)  # scalars


def make_extractor(
    extractor_class: object,
    space: Space,
    kwargs: Kwargs,
    names: tuple[str, str] = ("features_extractor_class", "features_extractor_kwargs"),
) -> BaseFeaturesExtractor:
    """Returns a features extractor from a built-in or user-defined class.

    Args:
        extractor_class: the class.
        space: space after preprocessing.
        kwargs: further keyword arguments.
        names: argument names of `extractor_class` and `kwargs`, for messages.

    Raises:
        ConfigurationError: not such a class, or it refuses the arguments.
    """
    if not callable(extractor_class) or isinstance(extractor_class, nn.Module):
        raise ConfigurationError(
            f"{names[0]} must be a subclass of BaseFeaturesExtractor, got {extractor_class!r}. Give such a class."
        )
    name = getattr(extractor_class, "__name__", repr(extractor_class))
    try:
        extractor: BaseFeaturesExtractor = extractor_class(space, **kwargs)
    except TypeError as error:
        allowed = list(inspect.signature(extractor_class).parameters)[1:]
        unknown = next((str(key) for key in kwargs if key not in allowed), "")
        raise ConfigurationError(
            f"{names[1]} must be arguments of {name}, among {allowed}, got {kwargs} ({error}). Change "
            f"them.{nearest(unknown, allowed)}"
        ) from error
    if getattr(extractor, "features_dim", None) is None:
        raise ConfigurationError(
            f"{names[0]} must have features_dim, got {name} without it. Derive it from BaseFeaturesExtractor and pass "
            f"the width of its output to super().__init__(observation_space, features_dim)."
        )
    return extractor


class Features(nn.Module):
    """Preprocessing and a features extractor: maps a flat dict of stored observations to `[N, features_dim]`.

    Args:
        observation_space: space of one lane.
        extractor_class: features extractor, made for the preprocessed space.
        extractor_kwargs: its keyword arguments besides the space.
        normalize_images: divide images by 255.
        channels: "first" or "last", for all images or by key of a Dict. If None, they are chosen by the shapes of the images.

    Raises:
        ConfigurationError: the extractor refuses its arguments, or its output does not have the width `features_dim`.
    """

    def __init__(
        self,
        observation_space: Space,
        extractor_class: type[BaseFeaturesExtractor],
        extractor_kwargs: Settings,
        normalize_images: bool,
        channels: Channels,
    ) -> None:
        super().__init__()
        self.preprocess = Preprocess(observation_space, normalize_images, channels)
        leaves = self.preprocess.feature_spaces()
        self.is_dict = isinstance(observation_space, spaces.Dict)
        space: Space = spaces.Dict(leaves) if self.is_dict else leaves["obs"]
        self.extractor = make_extractor(extractor_class, space, dict(extractor_kwargs))
        self.dtype = torch.float32
        if not type(self.extractor).__module__.startswith("sb_dqn."):
            self._check_width(leaves)

    def _check_width(self, leaves: Mapping[str, Space]) -> None:
        """Checks the shape of the output for one observation of zeros."""
        zeros = {key: torch.zeros(1, *(leaf.shape or ())) for key, leaf in leaves.items()}
        modes = {part: part.training for part in self.extractor.modules()}
        with torch.no_grad():
            output = self.extractor.eval()(zeros if self.is_dict else zeros["obs"])  # updates no batch statistics
        for part, training in modes.items():  # a user may have set some to eval
            part.training = training
        if output.shape != (1, self.features_dim):
            raise ConfigurationError(
                f"The output of {type(self.extractor).__name__} must have the shape [N, features_dim], got {list(output.shape)} "
                f"for N=1 and features_dim={self.features_dim}. Pass its width to super().__init__."
            )

    @property
    def features_dim(self) -> int:
        return self.extractor.features_dim

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        x = self.preprocess(obs, self.dtype)
        return self.extractor(x if self.is_dict else x["obs"])  # type: ignore[no-any-return]  # nn.Module.__call__


class Preprocess:
    """Maps a flat dict of `[N, *shape]` tensors to floats, each key according to its space.

    Args:
        space: observation space of one lane, as the policy sees it.
        normalize_images: divide images of bytes (uint8, bounds 0..255, three axes) by 255; bool images are 0 and 1
            already. False leaves all numbers as they are and treats every Box of three axes as an image.
        channels: "first" or "last", for all images or by key. If None, the shape decides, see `image_channels_last`.
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
        """Returns the space of each key after preprocessing."""
        return {key: reader.space for key, reader in self.readers.items()}

    def __call__(self, obs: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
        if isinstance(obs, Tensor):  # type: ignore[unreachable]  # users' code is not type-checked
            raise SpaceError(
                f"Observations must be a flat dict of tensors [N, *shape] with the keys {list(self.readers)}, got a tensor of "
                f"shape {list(obs.shape)}. Call net({{'obs': tensor}}) for a single key; action values are in its .q."
            )
        return {key: reader(obs[key], dtype) for key, reader in self.readers.items()}


class Pixels:
    """Preprocessing of images: channels first, bytes divided by 255 if normalized.

    Args:
        image: space of the image, a Box of three axes.
        normalize: True divides bytes by 255.
        channels: "first" or "last". If None, the shape decides.
    """

    def __init__(self, image: Any, normalize: bool, channels: str | None) -> None:
        self.hwc = channels == "last" if channels else image_channels_last(image)
        self.shape = leaf_shape(image)
        self.divided = normalize and is_bytes(image)
        self.space: Space = image
        if self.hwc:
            low, high = image.low.transpose(2, 0, 1), image.high.transpose(2, 0, 1)
            self.space = spaces.Box(low, high, dtype=image.dtype)

    @property
    def channels(self) -> str:
        """Returns "last" for images `[H, W, C]` and "first" for `[C, H, W]`."""
        return "last" if self.hwc else "first"

    def describe(self) -> str:
        """Returns a sentence about the axes."""
        depth, height, width = leaf_shape(self.space)
        return f"{self.shape} is read with channels {self.channels}: {depth} channels of {height} x {width} pixels"

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        if self.hwc:
            x = x.permute(0, 3, 1, 2)  # free: HWC in memory is channels_last already
        x = x.contiguous(memory_format=torch.channels_last)  # cast last: moving uint8 is cheaper
        if not self.divided:
            return x.to(dtype)
        if is_host_visible(x.device) and x.dtype != dtype:  # a new tensor, which is not the caller's
            return x.to(dtype).mul_(1.0 / 255.0)
        # the same numbers by one kernel, and not in place, so that a trace computes them once for several networks
        return (x * (1.0 / 255.0)).to(dtype)


class Numbers:
    """Preprocessing of a non-image Box: converts the dtype only."""

    def __init__(self, space: Space) -> None:
        self.space = space

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return x.to(dtype)


class Bits:
    """Preprocessing of a MultiBinary: flattens it."""

    def __init__(self, space: Space) -> None:
        self.space: Space = spaces.Box(0.0, 1.0, (math.prod(leaf_shape(space)),))

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return x.flatten(1).to(dtype)


class OneHot:
    """Preprocessing of a Discrete or MultiDiscrete: one-hot, one-hot vectors concatenated."""

    def __init__(self, choices: Choices) -> None:
        starts, counts = choices.start.ravel().tolist(), choices.count.ravel().tolist()
        self.ranges = [(start, start + count) for start, count in zip(starts, counts, strict=True)]
        self.space: Space = spaces.Box(0.0, 1.0, (sum(counts),))

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        columns = x.long().reshape(-1, len(self.ranges), 1)
        # torch's own one_hot branches on values, which a traced function must not
        hot = [columns[:, i] == torch.arange(*ends, device=x.device) for i, ends in enumerate(self.ranges)]
        return (hot[0] if len(hot) == 1 else torch.cat(hot, -1)).to(dtype)


Reader = Pixels | Numbers | Bits | OneHot
"""Preprocessing of one key: maps `[N, *shape]` as stored to floats of `dtype`; its `space` is that of one observation after it."""


def _reader(leaf: Space) -> Reader:
    if isinstance(leaf, spaces.MultiBinary):
        return Bits(leaf)
    choices = choices_of(leaf)
    return Numbers(leaf) if choices is None else OneHot(choices)
